"""Pictures in messages: their size in pixels, their cost in tokens, how they are sent and shown.

Only headers are read, never pixels. The sources of the numbers are in docs/guides/pictures.md.
"""

import base64
import binascii
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from rlm._util.text import sendable
from rlm.worker.images import MAX_IMAGE_BYTES, media_type_of

__all__ = [
    "MAX_IMAGE_BYTES",
    "Picture",
    "bound_of_parts",
    "content_of",
    "display_text",
    "image_tokens",
    "media_type_of",
    "picture_of",
    "size_of",
]

_HEAD_CHARS = 128 << 10
"""How much base64 of a picture is decoded to find its size; all of it only if that fails."""

_MAX_SEGMENTS = 1_000
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_ALONE = frozenset((0x01, *range(0xD0, 0xD8)))
_SHOWN_CHARS = 200
_LARGEST_EDGE = 8_000
"""The bound for a picture of unknown size; Anthropic, for one, refuses larger pictures."""


class Picture(Struct, frozen=True):
    """A picture that code may name.

    `read` returns its bytes, or raises ConfigError if they changed.
    """

    media_type: str
    size_bytes: int
    width: int
    height: int
    sha256: str
    read: Callable[[], bytes]

    def facts(self) -> dict[str, str | int]:
        """A short description of the picture."""
        return {
            "media_type": self.media_type,
            "width": self.width,
            "height": self.height,
            "size_bytes": self.size_bytes,
        }


def picture_of(data: bytes, read: Callable[[], bytes] | None = None) -> Picture | None:
    """Return the bytes as a picture; None if models do not accept them as one."""
    media_type, size = media_type_of(data), size_of(data)
    if media_type is None or size is None or len(data) > MAX_IMAGE_BYTES:
        return None
    digest = hashlib.sha256(data).hexdigest()
    return Picture(media_type, len(data), *size, digest, read or (lambda: data))


# -- size in pixels -------------------------------------------------------------------------------


def size_of(data: bytes) -> tuple[int, int] | None:
    """Return width and height from the header; None if it can't be read."""
    read = _READERS.get(media_type_of(data) or "")
    size = read(data) if read is not None else None
    return size if size is not None and min(size) > 0 else None


def _png(data: bytes) -> tuple[int, int] | None:
    if len(data) < 24 or data[12:16] != b"IHDR":
        return None
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


def _gif(data: bytes) -> tuple[int, int] | None:
    if len(data) < 10:
        return None
    return int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")


def _webp(data: bytes) -> tuple[int, int] | None:
    """Read one of the three forms: extended, lossless, lossy."""
    if len(data) < 30:
        return None
    form = data[12:16]
    if form == b"VP8X":
        width, height = data[24:27], data[27:30]
        return int.from_bytes(width, "little") + 1, int.from_bytes(height, "little") + 1
    if form == b"VP8L" and data[20] == 0x2F:
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if form == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = data[26:28], data[28:30]
        return int.from_bytes(width, "little") & 0x3FFF, int.from_bytes(height, "little") & 0x3FFF
    return None


def _jpeg(data: bytes) -> tuple[int, int] | None:
    """Skip segments until one starts a frame; those before it may be long."""
    at = 2
    for _ in range(_MAX_SEGMENTS):
        if at + 9 > len(data) or data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker in _FRAMES:
            height, width = data[at + 5 : at + 7], data[at + 7 : at + 9]
            return int.from_bytes(width, "big"), int.from_bytes(height, "big")
        if marker == 0xFF:  # Any number of these may precede a marker.
            at += 1
        elif marker in _ALONE:
            at += 2
        else:
            at += 2 + max(2, int.from_bytes(data[at + 2 : at + 4], "big"))
    return None


_READERS = {"image/gif": _gif, "image/jpeg": _jpeg, "image/png": _png, "image/webp": _webp}


# -- what it may cost -----------------------------------------------------------------------------


def image_tokens(width: int, height: int) -> int:
    """Return at least as many tokens as any known provider bills for a picture of this size."""
    return max(_billed_tiles(width, height), _patches(width, height), _crops(width, height))


def _billed_tiles(width: int, height: int) -> int:
    """Tokens of OpenAI's tiles of 512 pixels, at the highest known rate, that of gpt-4o-mini."""
    scale = min(1.0, 2048 / max(width, height))
    scale = min(scale, 768 / min(width, height))
    across, down = (max(1, math.ceil(edge * scale / 512)) for edge in (width, height))
    return 2_833 + 5_667 * across * down


def _patches(width: int, height: int) -> int:
    """Tokens of patches of 28 pixels, never scaled down.

    That covers Anthropic, Qwen, and OpenAI's patches of 32 pixels at 1.2 tokens each.
    """
    return -(-width // 28) * -(-height // 28)


def _crops(width: int, height: int) -> int:
    """Tokens of Gemini's crops, 258 each; long and thin pictures have many."""
    if max(width, height) <= 384:
        return 258
    edge = max(1, min(width, height) * 2 // 3)
    return 258 * -(-width // edge) * -(-height // edge)


_UNKNOWN_TOKENS = image_tokens(_LARGEST_EDGE, _LARGEST_EDGE)


def bound_of_parts(parts: Sequence[Any]) -> int:
    """Return the most tokens that the parts of one message can have; base64 is not text."""
    return sum(_bound_of_part(part) for part in parts)


def _bound_of_part(part: Any) -> int:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind == "text" and isinstance(part.get("text"), str):
        return len(part["text"].encode("utf-8", "surrogatepass"))
    if not isinstance(kind, str) or "image" not in kind:
        return len(repr(part).encode("utf-8", "surrogatepass"))
    size = _size_in_base64(part.get("data"))
    return _UNKNOWN_TOKENS if size is None else image_tokens(*size)


def _size_in_base64(data: Any) -> tuple[int, int] | None:
    if not isinstance(data, str):
        return None
    head = _decoded(data[:_HEAD_CHARS])
    size = size_of(head) if head is not None else None
    if size is None and len(data) > _HEAD_CHARS and (whole := _decoded(data)) is not None:
        return size_of(whole)
    return size


def _decoded(data: str) -> bytes | None:
    try:
        return base64.b64decode(data)
    except (binascii.Error, ValueError):
        return None


# -- sent and shown -------------------------------------------------------------------------------


def content_of(prompt: str, images: Sequence[tuple[str, bytes]]) -> list[dict[str, Any]]:
    """Return a prompt and pictures (media type and bytes) as the parts of a message."""
    parts: list[dict[str, Any]] = [{"type": "text", "text": sendable(prompt)}]
    for media_type, data in images:
        encoded = base64.b64encode(data).decode("ascii")
        parts.append({"type": "image", "media_type": media_type, "data": encoded})
    return parts


def display_text(content: str | Sequence[Any]) -> str:
    """Return the content of a message for people and logs: text, and pictures by size and hash."""
    if isinstance(content, str):
        return content
    return "\n".join(_display_part(part) for part in content)


def _display_part(part: Any) -> str:
    if not isinstance(part, Mapping):
        return f"[{type(part).__name__}]"
    if part.get("type") == "text":
        return str(part.get("text", ""))
    data, url = part.get("data"), part.get("url")
    if isinstance(data, str) and (decoded := _decoded(data)) is not None:
        digest = hashlib.sha256(decoded).hexdigest()[:16]
        media_type = str(part.get("media_type", "unknown"))[:_SHOWN_CHARS]
        return f"[image: {media_type}, {len(decoded):,} bytes, sha256 {digest}]"
    if isinstance(url, str) and not url.startswith("data:"):
        return f"[image: {url[:_SHOWN_CHARS]}]"
    return f"[{str(part.get('type', 'part'))[:_SHOWN_CHARS]}]"
