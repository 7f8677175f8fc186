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
    "CHECKPOINT",
    "DONE",
    "DONE_COUNTS",
    "EXEC",
    "FETCH",
    "INIT",
    "LIST_FILES",
    "LOAD",
    "LOAD_END",
    "LOAD_SHARED",
    "MAX_PARTS",
    "MAX_TO_HOST_BYTES",
    "MAX_TO_WORKER_BYTES",
    "READY",
    "READ_FILE",
    "RESUME",
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
LOAD_SHARED: Final = 8  # The parts are a name and the layout in JSON; with a descriptor.
CHECKPOINT: Final = 9  # With a descriptor.
RESUME: Final = 10
LIST_FILES: Final = 11  # The part is a folder; answered with names and sizes in JSON.
READ_FILE: Final = 12  # The parts are a folder, a name in it, and an offset.

# Worker to host.
READY: Final = 33
DONE: Final = 34
CALL: Final = 35
VALUE: Final = 36

TO_WORKER = frozenset(
    {
        *(INIT, LOAD, LOAD_END, LOAD_SHARED, EXEC, FETCH, LIST_FILES, READ_FILE),
        *(ANSWER, ANSWER_ERROR, CHECKPOINT, RESUME),
    }
)
TO_HOST = frozenset({READY, DONE, CALL, VALUE})

MAX_TO_HOST_BYTES = 64 << 20
MAX_TO_WORKER_BYTES = 1 << 30
MAX_PARTS = 100_000
"""Each part becomes an object, and a few bytes must not become millions of objects."""

DONE_COUNTS = struct.Struct("<QQII?")
"""The first part of DONE: how many characters were written to stdout and to stderr, how many
variables are new and how many changed, and whether the cell was interrupted.

The other parts: metadata (JSON, or empty if there is none), stdout, stderr, words about
variables separated by NUL (names and descriptions of new and changed ones, names of deleted ones),
and the texts that the metadata names.
"""

_LENGTH = struct.Struct("<I")
_HEAD = struct.Struct("<IBII")
_SHORTEST_BODY = _HEAD.size - _LENGTH.size
_LONGEST_U32 = 0xFFFFFFFF
_LONG_BYTES = 256 << 10
"""A longer frame is split into its parts when they are used."""
_FEW_LENGTHS = tuple(struct.Struct(f"<{count}I") for count in range(16))


class WireError(ValueError):
    """The bytes are not a frame, or the frame would be too large."""


class Frame:
    """One message: its type, the id of its request, and its raw parts."""

    __slots__ = ("id", "parts", "size_bytes", "type")

    def __init__(self, type: int, id: int, parts: list[bytes], size_bytes: int = 0) -> None:
        self.type = type
        self.id = id
        self.parts = parts
        self.size_bytes = size_bytes  # As received; only for received frames.

    def text(self, index: int) -> str:
        """Return part `index` as text; raise WireError if it is missing or not UTF-8."""
        return to_text(self.part(index))

    def texts(self, start: int) -> list[str]:
        """Return all parts from `start` on as texts; raise WireError if one is not UTF-8."""
        try:
            return [part.decode("utf-8", "surrogatepass") for part in self.parts[start:]]
        except UnicodeDecodeError as error:
            raise WireError(f"text is not UTF-8: {error.reason}") from None

    def json(self, index: int) -> Any:
        """Return part `index` as a JSON value; raise WireError if it is missing or not JSON."""
        try:
            return json.loads(self.text(index))
        except (ValueError, RecursionError) as error:
            raise WireError(f"part {index} is not JSON: {error}") from None

    def part(self, index: int) -> bytes:
        """Return part `index` as received; raise WireError if it is missing."""
        if index >= len(self.parts):
            raise WireError(f"a frame of type {self.type} has no part {index}")
        return self.parts[index]


class _LongFrame(Frame):
    """A long frame whose parts are copied when they are first used, which may be in a thread."""

    __slots__ = ("_body", "_lengths", "_offset")

    def __init__(
        self, type: int, id: int, body: bytearray, offset: int, lengths: tuple[int, ...]
    ) -> None:
        self.type = type
        self.id = id
        self.size_bytes = offset + sum(lengths) - _LENGTH.size
        self._body = body
        self._offset = offset
        self._lengths = lengths

    def __getattr__(self, name: str) -> Any:
        """Return `parts`, the only attribute that is not set at first."""
        if name != "parts":
            raise AttributeError(name)
        self.parts = _split(self._body, self._offset, self._lengths)
        self._body = bytearray()
        return self.parts


def _split(body: bytearray, offset: int, lengths: tuple[int, ...]) -> list[bytes]:
    parts = []
    with memoryview(body) as view:  # Avoids copying twice.
        for length in lengths:
            parts.append(bytes(view[offset : offset + length]))
            offset += length
    return parts


def to_bytes(text: str) -> bytes:
    """Encode text so that `to_text` returns exactly the same string."""
    return text.encode("utf-8", "surrogatepass")


def to_text(part: bytes) -> str:
    """Decode what `to_bytes` encoded; raise WireError for anything else."""
    try:
        return part.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise WireError(f"text is not UTF-8: {error.reason}") from None


def to_json(value: Any) -> bytes:
    """Encode small metadata as pure ASCII, so that lone surrogates survive."""
    return json.dumps(value).encode("ascii")


def encode(
    type: int, id: int, parts: list[bytes], max_body_bytes: int = MAX_TO_WORKER_BYTES
) -> bytes:
    """Build a frame; raise WireError if its body would be longer than `max_body_bytes`."""
    count = len(parts)
    if count > MAX_PARTS:
        raise WireError(f"{count:,} parts exceed the limit of {MAX_PARTS:,} in one frame")
    lengths = [len(part) for part in parts]
    body_length = _SHORTEST_BODY + 4 * count + sum(lengths)
    if body_length > max_body_bytes or body_length > _LONGEST_U32:
        raise WireError(f"a frame of {body_length:,} bytes exceeds the limit of {max_body_bytes:,}")
    head = _HEAD.pack(body_length, type, id, count)
    return b"".join((head, _table(count).pack(*lengths), *parts))


def _table(count: int) -> struct.Struct:
    """Return the struct for `count` part lengths; those of most frames are cached."""
    return _FEW_LENGTHS[count] if count < len(_FEW_LENGTHS) else struct.Struct(f"<{count}I")


class Decoder:
    """Decodes frames from bytes that may arrive in pieces of any size.

    It never holds more than it was fed, and rejects a frame as soon as its first bytes are wrong.
    `limits` restricts, by type, the length of a body and the number of its parts.
    """

    def __init__(self, types: frozenset[int], max_body_bytes: int) -> None:
        self._types = types
        self._max_body_bytes = max_body_bytes
        self.limits: dict[int, tuple[int, int]] = {}
        # What was received but not popped begins at `_start`. A read nearly always returns whole
        # frames, which are sliced from its bytes; only the pieces of longer ones are collected.
        self._held: bytes | bytearray = b""
        self._start = 0

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes that arrived."""
        if self._start == len(self._held):
            self._held, self._start = bytes(data), 0
            return
        if isinstance(self._held, bytes):
            self._held, self._start = bytearray(self._held[self._start :]), 0
        self._held += data

    def pop(self) -> Frame | None:
        """Return the next complete frame, or None; raise WireError if it is malformed."""
        held, start = self._held, self._start
        room = len(held) - start
        if room < _HEAD.size:
            if room >= _LENGTH.size:
                (body_length,) = _LENGTH.unpack_from(held, start)
                self._check_length(body_length)
            return None
        body_length, frame_type, frame_id, count = _HEAD.unpack_from(held, start)
        self._check_head(body_length, frame_type, count)
        end = start + _LENGTH.size + body_length
        if end > len(held):
            return None
        lengths = _table(count).unpack_from(held, start + _HEAD.size)
        offset = start + _HEAD.size + 4 * count
        if offset + sum(lengths) != end:
            raise WireError("the parts do not fill the frame")
        if isinstance(held, bytearray):  # Collected pieces start at 0.
            if end > _LONG_BYTES:
                self._held = bytes(memoryview(held)[end:])
                return _LongFrame(frame_type, frame_id, held, offset, lengths)
            parts = _split(held, offset, lengths)
            del held[:end]
            return Frame(frame_type, frame_id, parts, body_length)
        parts = []
        for length in lengths:
            parts.append(held[offset : offset + length])
            offset += length
        self._start = end
        if end == len(held):
            self._held, self._start = b"", 0
        return Frame(frame_type, frame_id, parts, body_length)

    def _check_length(self, body_length: int) -> None:
        if not _SHORTEST_BODY <= body_length <= self._max_body_bytes:
            raise WireError(f"a frame can't have a body of {body_length:,} bytes")

    def _check_head(self, body_length: int, frame_type: int, count: int) -> None:
        self._check_length(body_length)
        if frame_type not in self._types:
            raise WireError(f"unknown frame type {frame_type}")
        if count > MAX_PARTS or _SHORTEST_BODY + 4 * count > body_length:
            raise WireError(f"{count:,} parts do not fit into {body_length:,} bytes")
        limit = self.limits.get(frame_type)
        if limit is not None and (body_length > limit[0] or count > limit[1]):
            raise WireError(
                f"a frame of type {frame_type} can have at most {limit[0]:,} bytes and "
                f"{limit[1]:,} parts, not {body_length:,} and {count:,}"
            )
