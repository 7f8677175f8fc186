"""The frames that travel between host and worker; both sides use this file.

    u32 body_length | u8 type | u32 id | u32 part_count | part_count x u32 length | parts

Little-endian; `body_length` counts everything after itself. Text is UTF-8 with `surrogatepass`,
so lone surrogates, NUL and CRLF arrive exactly. JSON is used for small metadata only.
"""

from __future__ import annotations

import json
import struct

__all__ = [
    "ANSWER",
    "ANSWER_ERROR",
    "CALL",
    "DONE",
    "EXEC",
    "FETCH",
    "INIT",
    "LOAD",
    "LOAD_END",
    "MAX_PARTS",
    "MAX_TO_HOST_BYTES",
    "MAX_TO_WORKER_BYTES",
    "READY",
    "TO_HOST",
    "TO_WORKER",
    "VALUE",
    "Decoder",
    "Frame",
    "WireError",
    "encode",
    "to_bytes",
    "to_json",
    "to_text",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

# Host to worker.
INIT: Final = 1
LOAD: Final = 2
LOAD_END: Final = 3
EXEC: Final = 4
ANSWER: Final = 5
ANSWER_ERROR: Final = 6
FETCH: Final = 7

# Worker to host.
READY: Final = 33
DONE: Final = 34
CALL: Final = 35
VALUE: Final = 36

TO_WORKER = frozenset({INIT, LOAD, LOAD_END, EXEC, ANSWER, ANSWER_ERROR, FETCH})
TO_HOST = frozenset({READY, DONE, CALL, VALUE})

MAX_TO_HOST_BYTES = 64 << 20
MAX_TO_WORKER_BYTES = 1 << 30
MAX_PARTS = 100_000
"""Each part becomes an object of its own, so a few bytes must not become millions of them."""

_LENGTH = struct.Struct("<I")
_HEAD = struct.Struct("<BII")
_LONGEST_U32 = 0xFFFFFFFF


class WireError(ValueError):
    """The bytes are not a frame, or the frame would be too large."""


class Frame:
    """One message: what it is, which request it belongs to, and its raw parts."""

    __slots__ = ("id", "parts", "type")

    def __init__(self, type: int, id: int, parts: list[bytes]) -> None:
        self.type = type
        self.id = id
        self.parts = parts

    def text(self, index: int) -> str:
        """Part `index` as text; WireError if it is missing or not UTF-8."""
        return to_text(self.part(index))

    def json(self, index: int) -> Any:
        """Part `index` as a JSON value; WireError if it is missing or not JSON."""
        try:
            return json.loads(self.text(index))
        except (ValueError, RecursionError) as error:
            raise WireError(f"part {index} is not JSON: {error}") from None

    def part(self, index: int) -> bytes:
        """Part `index` as it came; WireError if it is missing."""
        if index >= len(self.parts):
            raise WireError(f"a frame of type {self.type} has no part {index}")
        return self.parts[index]


def to_bytes(text: str) -> bytes:
    """Encode text so that `to_text` gives back exactly the same string."""
    return text.encode("utf-8", "surrogatepass")


def to_text(part: bytes) -> str:
    """Decode what `to_bytes` made; WireError on anything else."""
    try:
        return part.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise WireError(f"text is not UTF-8: {error.reason}") from None


def to_json(value: Any) -> bytes:
    """Encode small metadata; pure ASCII, so that lone surrogates survive."""
    return json.dumps(value).encode("ascii")


def encode(
    type: int, id: int, parts: list[bytes], max_body_bytes: int = MAX_TO_WORKER_BYTES
) -> bytes:
    """Build a frame; WireError if its body would be longer than `max_body_bytes`."""
    if len(parts) > MAX_PARTS:
        raise WireError(f"{len(parts):,} parts are over the limit of {MAX_PARTS:,} in one frame")
    lengths = [len(part) for part in parts]
    body_length = _HEAD.size + 4 * len(parts) + sum(lengths)
    if body_length > min(max_body_bytes, _LONGEST_U32):
        raise WireError(f"a frame of {body_length:,} bytes is over the limit {max_body_bytes:,}")
    table = struct.pack(f"<{len(lengths)}I", *lengths)
    head = _LENGTH.pack(body_length) + _HEAD.pack(type, id, len(parts))
    return b"".join((head, table, *parts))


class Decoder:
    """Turns bytes, however they were cut, back into frames.

    It never holds more than it was fed, and refuses a frame as soon as its first bytes are wrong.
    """

    def __init__(self, types: frozenset[int], max_body_bytes: int) -> None:
        self._types = types
        self._max_body_bytes = max_body_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes that arrived."""
        self._buffer += data

    def pop(self) -> Frame | None:
        """The next whole frame, or None until more bytes arrive; WireError on a malformed one."""
        body_length = self._check_head()
        if body_length is None or len(self._buffer) < _LENGTH.size + body_length:
            return None
        frame_type, frame_id, part_count = _HEAD.unpack_from(self._buffer, _LENGTH.size)
        offset = _LENGTH.size + _HEAD.size
        lengths = struct.unpack_from(f"<{part_count}I", self._buffer, offset)
        offset += 4 * part_count
        end = _LENGTH.size + body_length
        if offset + sum(lengths) != end:
            raise WireError("the parts do not fill the frame")
        parts = []
        with memoryview(self._buffer) as view:
            for length in lengths:
                parts.append(bytes(view[offset : offset + length]))
                offset += length
        del self._buffer[:end]
        return Frame(frame_type, frame_id, parts)

    def _check_head(self) -> int | None:
        """The body length once the head has arrived and makes sense."""
        buffer = self._buffer
        if len(buffer) < _LENGTH.size:
            return None
        (body_length,) = _LENGTH.unpack_from(buffer)
        if not _HEAD.size <= body_length <= self._max_body_bytes:
            raise WireError(f"a frame can't have a body of {body_length:,} bytes")
        if len(buffer) < _LENGTH.size + _HEAD.size:
            return None
        frame_type, _, part_count = _HEAD.unpack_from(buffer, _LENGTH.size)
        if frame_type not in self._types:
            raise WireError(f"unknown frame type {frame_type}")
        if part_count > MAX_PARTS or _HEAD.size + 4 * part_count > body_length:
            raise WireError(f"{part_count:,} parts do not fit into {body_length:,} bytes")
        return int(body_length)
