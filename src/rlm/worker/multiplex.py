"""Carries the stream and the monitor of a session over one byte pipe; both sides use this file.

    u8 channel | u32 length | bytes

An empty piece ends its channel. Neither channel may block the other: the bytes that were sent but
not yet consumed are limited, and ROOM reports how many were consumed.
"""

from __future__ import annotations

import base64
import binascii
import struct

__all__ = [
    "CONTROL",
    "MAX_PIECE_BYTES",
    "MONITOR",
    "OPEN",
    "ROOM",
    "STREAM",
    "WINDOW_BYTES",
    "LineReader",
    "MultiplexError",
    "Multiplexer",
    "to_line",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

CONTROL: Final = 0  # To and from the zygote: settings and report.
STREAM: Final = 1
MONITOR: Final = 2
OPEN: Final = 3  # To the sandbox: open a session; the byte is the order for the zygote.
ROOM: Final = 4  # The other side has consumed N bytes of a channel.

MAX_PIECE_BYTES = 1 << 16
WINDOW_BYTES = 1 << 20
_MAX_LINE_BYTES = 2 * MAX_PIECE_BYTES
_HEAD = struct.Struct("<BI")
_ROOM = struct.Struct("<BI")
_CHANNELS = (CONTROL, STREAM, MONITOR, OPEN, ROOM)
_LIMITED = (STREAM, MONITOR)


class MultiplexError(ValueError):
    """The other side of a pipe broke the protocol."""


class Multiplexer:
    """The state of one side of a pipe; its owner reads and writes."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._room = dict.fromkeys(_LIMITED, WINDOW_BYTES)
        self._given = dict.fromkeys(_LIMITED, 0)  # Received, but not yet reported as consumed.
        self._taken = dict.fromkeys(_LIMITED, 0)
        self._ended: set[int] = set()

    def room(self, channel: int) -> int:
        """Return how many bytes may now be sent on a channel in one piece."""
        return min(self._room[channel], MAX_PIECE_BYTES)

    def packed(self, channel: int, data: bytes) -> bytes:
        """Return a piece to send; it must fit into `room`."""
        if channel in _LIMITED:
            self._room[channel] -= len(data)
        return _HEAD.pack(channel, len(data)) + data

    def took(self, channel: int, size: int) -> bytes:
        """Note that bytes of a channel were consumed; return a report to send, if one is due."""
        self._taken[channel] += size
        if self._taken[channel] < WINDOW_BYTES // 2:
            return b""
        taken, self._taken[channel] = self._taken[channel], 0
        self._given[channel] -= taken
        return _HEAD.pack(ROOM, _ROOM.size) + _ROOM.pack(channel, taken)

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return the complete pieces, by channel; raise MultiplexError if one is invalid."""
        self._held += data
        pieces = []
        while len(self._held) >= _HEAD.size:
            channel, size = _HEAD.unpack_from(self._held)
            if channel not in _CHANNELS or size > MAX_PIECE_BYTES:
                raise MultiplexError(f"a piece of {size:,} bytes came on channel {channel}")
            end = _HEAD.size + size
            if len(self._held) < end:
                break
            piece = bytes(self._held[_HEAD.size : end])
            del self._held[:end]
            if channel == ROOM:
                self._note_room(piece)
            else:
                self._note_given(channel, size)
                pieces.append((channel, piece))
        return pieces

    def _note_room(self, piece: bytes) -> None:
        if len(piece) != _ROOM.size:
            raise MultiplexError("room was granted in a piece of the wrong size")
        channel, size = _ROOM.unpack(piece)
        if channel not in _LIMITED or self._room[channel] + size > WINDOW_BYTES:
            raise MultiplexError("more room was granted than there can be")
        self._room[channel] += size

    def _note_given(self, channel: int, size: int) -> None:
        if channel in _LIMITED:
            if channel in self._ended:
                raise MultiplexError("a piece came after the end of its channel")
            if not size:
                self._ended.add(channel)
            self._given[channel] += size
            if self._given[channel] > WINDOW_BYTES:
                raise MultiplexError("more was sent than there was room for")


def to_line(data: bytes, mark: str) -> str:
    """Return bytes as a marked line of base64, for pipes that carry only text."""
    return f"{mark}{base64.b64encode(data).decode('ascii')}\n"


class LineReader:
    """Decodes such lines, which may arrive in pieces; lines without the mark are ignored.

    A terminal echoes its input, so each direction has its own mark.
    """

    def __init__(self, mark: str) -> None:
        self._mark = mark.encode("ascii")
        self._held = b""

    def feed(self, text: bytes) -> bytes:
        """Return the bytes of all complete lines; raise MultiplexError if one is invalid."""
        *lines, self._held = (self._held + text).replace(b"\r", b"\n").split(b"\n")
        if len(self._held) > _MAX_LINE_BYTES:
            if self._held.startswith(self._mark):
                raise MultiplexError("a line is too long")
            self._held = self._held[:1]  # Enough to ignore the line when it ends.
        ours = [line[len(self._mark) :] for line in lines if line.startswith(self._mark)]
        if any(len(line) > _MAX_LINE_BYTES for line in ours):
            raise MultiplexError("a line is too long")
        try:
            return b"".join(base64.b64decode(line, validate=True) for line in ours)
        except binascii.Error as error:
            raise MultiplexError(f"a line can't be read: {error}") from None
