"""Pictures that a cell sends with its prompts; the host checks them by the same rules.

Each picture is sent once, as bytes, however many prompts of a batch use it. A name is sent as is:
it refers to a picture of the context, which only the host has.
"""

from __future__ import annotations

__all__ = [
    "MAX_CALL_BYTES",
    "MAX_IMAGES",
    "MAX_IMAGE_BYTES",
    "attached",
    "listed",
    "media_type_of",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_IMAGES = 20
"""How many pictures one prompt may have."""

MAX_IMAGE_BYTES = 8 << 20
MAX_CALL_BYTES = 48 << 20
"""The size of all pictures of one call or batch; they must fit into a frame with the prompts."""

_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_KINDS = "PNG, JPEG, GIF or WebP"


def media_type_of(data: bytes) -> str | None:
    """Return the media type that the first bytes show, or None if models do not accept it."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for first, kind in _BEGINNINGS if data.startswith(first)), None)


def listed(images: Any) -> list[Any]:
    """Return the pictures of one prompt, given as a list, a single picture, or None."""
    if images is None:
        return []
    return list(images) if isinstance(images, (list, tuple)) else [images]


def attached(images: list[Any]) -> tuple[list[list[int | str]], list[bytes]]:
    """Return each prompt's pictures, by name or number, and the bytes for the numbers."""
    pictures = _Pictures()
    rows = [pictures.row(listed(each)) for each in images]
    return rows, pictures.parts


class _Pictures:
    """The distinct pictures of one call."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self._numbers: dict[bytes, int] = {}
        self._seen: dict[int, int] = {}
        self._size = 0

    def row(self, images: list[Any]) -> list[int | str]:
        if len(images) > MAX_IMAGES:
            raise ValueError(f"{len(images)} images exceed the limit of {MAX_IMAGES} per prompt")
        return [each if isinstance(each, str) else self._number(each) for each in images]

    def _number(self, image: Any) -> int:
        number = self._seen.get(id(image))
        if number is None:
            number = self._seen[id(image)] = self._numbered(_checked(_as_bytes(image)))
        return number

    def _numbered(self, data: bytes) -> int:
        number = self._numbers.setdefault(data, len(self.parts))
        if number == len(self.parts):
            self._size += len(data)
            if self._size > MAX_CALL_BYTES:
                raise ValueError(
                    f"the images of one call can have at most {MAX_CALL_BYTES >> 20} MiB in total; "
                    "send them in several calls"
                )
            self.parts.append(data)
        return number


def _as_bytes(image: Any) -> bytes:
    """Return the bytes of a file, or of a picture (PIL) or figure (matplotlib) as PNG."""
    if isinstance(image, (bytes, bytearray, memoryview)):
        return bytes(image)
    save = getattr(image, "save", None) or getattr(image, "savefig", None)
    if not callable(save):
        raise TypeError(
            f"an image must be the bytes of a {_KINDS} file, the name of one of the context's "
            f"pictures, or an object with .save(file, format='PNG'), not {type(image).__name__}"
        )
    import io

    buffer = io.BytesIO()
    save(buffer, format="PNG")
    return buffer.getvalue()


def _checked(data: bytes) -> bytes:
    if media_type_of(data) is None:
        raise ValueError(f"these {len(data):,} bytes are not a {_KINDS} file; convert them first")
    if len(data) > MAX_IMAGE_BYTES:
        raise ValueError(
            f"an image can have at most {MAX_IMAGE_BYTES >> 20} MiB, not {len(data):,} bytes; crop "
            "it, or make it smaller"
        )
    return data
