"""AWS's binary event streams (`application/vnd.amazon.eventstream`), read frame by frame."""

import json
import struct
import zlib
from collections.abc import Iterator

__all__ = ["FrameReader", "is_framed"]

PRELUDE = struct.Struct(">III")
CRC = struct.Struct(">I")
LARGEST_FRAME_BYTES = 16 * 1024**2 - 1
STRING, BYTES = 7, 6
FIXED_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""The sizes of header values, by type; texts and bytes state their own size."""


def is_framed(start: bytes) -> bool:
    """Return whether a stream consists of frames, whose size begins with a byte no text has."""
    return start[:1] == b"\0"


class FrameReader:
    """Turns bytes, cut anywhere, into events. Each is JSON: `{"name of the event": payload}`."""

    def __init__(self) -> None:
        self._held = bytearray()

    def add(self, data: bytes) -> Iterator[str]:
        """Yield the events that are complete; raise ValueError if the bytes are no such stream."""
        self._held += data
        while len(self._held) >= PRELUDE.size:
            size, headers_size, checksum = PRELUDE.unpack_from(self._held)
            if zlib.crc32(self._held[:8]) != checksum:
                raise ValueError("a frame of the stream has a wrong checksum")
            fixed = PRELUDE.size + CRC.size
            if not fixed + headers_size <= size <= LARGEST_FRAME_BYTES:
                raise ValueError("a frame of the stream has an impossible size")
            if len(self._held) < size:
                return
            frame = bytes(self._held[:size])
            del self._held[:size]
            if zlib.crc32(frame[: -CRC.size]) != CRC.unpack(frame[-CRC.size :])[0]:
                raise ValueError("a frame of the stream has a wrong checksum")
            start = PRELUDE.size + headers_size
            yield _event(_headers(frame[PRELUDE.size : start]), frame[start : -CRC.size])


def _event(headers: dict[str, str], payload: bytes) -> str:
    names = (headers.get(name) for name in (":event-type", ":exception-type", ":error-code"))
    name = next((each for each in names if each), "unnamed")
    said = payload.decode("utf-8", "replace").strip()
    if headers.get(":message-type") == "error":
        said = json.dumps({"message": headers.get(":error-message", "")})
    return f"{{{json.dumps(name)}:{said or '{}'}}}"


def _headers(data: bytes) -> dict[str, str]:
    """Return the headers that are texts."""
    found: dict[str, str] = {}
    at = 0
    try:
        while at < len(data):
            name = data[at + 1 : at + 1 + data[at]].decode("utf-8", "replace")
            at += 1 + data[at]
            kind = data[at]
            at += 1
            if kind in (STRING, BYTES):
                size = int.from_bytes(data[at : at + 2], "big")
                value = data[at + 2 : at + 2 + size]
                at += 2 + size
                if kind == STRING:
                    found[name] = value.decode("utf-8", "replace")
            else:
                at += FIXED_SIZES[kind]
    except (IndexError, KeyError):
        raise ValueError("a frame of the stream has invalid headers") from None
    if at != len(data):
        raise ValueError("a frame of the stream has invalid headers")
    return found
