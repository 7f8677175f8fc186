"""How the guest talks to the child process: a file that the child writes, and a call for output.

    u64 number | u64 size | u64 interrupts | u64 number again | parcel

A parcel is a piece of the host's stream. The child writes the next one when the guest has confirmed
the last, so the file stays small. The two numbers differ while the child is writing.
"""

import os
import struct
import sys
from typing import Any

__all__ = ["HEAD", "TAKEN", "SharedFile"]

HEAD = struct.Struct("<QQQQ")
TAKEN = struct.Struct("<Q")
_HELLO = 0
"""The number that the guest confirms before the first parcel, once it has opened the file."""

_FRAMES, _TAKEN = 0, 1
_PIECE_BYTES = 1 << 20


class SharedFile:
    """The file, and the number of the last parcel that was read."""

    def __init__(self, path: str) -> None:
        eryx: Any = sys.modules["_eryx"]
        self._hand_out = eryx._eryx_report_output
        self._fd = os.open(path, os.O_RDONLY)
        self._taken = _HELLO
        self._interrupts = 0
        self._hand_out(_TAKEN, TAKEN.pack(_HELLO))

    def interrupts(self) -> int:
        """Return how many times the host has interrupted so far."""
        number, _, interrupts, again = HEAD.unpack(os.pread(self._fd, HEAD.size, 0))
        if number == again:
            self._interrupts = interrupts
        return self._interrupts

    def look(self) -> bytes:
        """Return the next parcel, if there is one."""
        number, size, _, again = HEAD.unpack(os.pread(self._fd, HEAD.size, 0))
        if number != again or number == self._taken:
            return b""
        data = os.pread(self._fd, size, HEAD.size)
        while len(data) < size:
            data += os.pread(self._fd, size - len(data), HEAD.size + len(data))
        self._taken = number
        self._hand_out(_TAKEN, TAKEN.pack(number))
        return data

    def send(self, data: bytes) -> None:
        """Send bytes to the host, in order, without waiting for it to read them."""
        for start in range(0, len(data), _PIECE_BYTES):
            self._hand_out(_FRAMES, data[start : start + _PIECE_BYTES])
