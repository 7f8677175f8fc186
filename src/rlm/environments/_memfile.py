"""A file in shared memory that is written once and then sealed against everybody, its owner too."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager

from rlm.errors import SessionError
from rlm.worker.forms import WIDTHS

__all__ = ["MemoryFile", "can_share_memory"]

_BLOCK_BYTES = 1 << 17


def can_share_memory() -> bool:
    """Whether this system has files that live in memory and can be sealed."""
    return hasattr(os, "memfd_create") and sys.platform == "linux"


class MemoryFile:
    """Grows at its end; small pieces are collected before they are written."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._written = 0
        with _explained():
            flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
            self.fd = os.memfd_create("rlm-context", flags)

    @property
    def position(self) -> int:
        """Where the next byte will stand."""
        return self._written + len(self._waiting)

    def append(self, data: bytes | memoryview) -> None:
        """Write at the end."""
        if len(data) >= _BLOCK_BYTES:
            self._flush()
            self._write(data, self._written)
            self._written += len(data)
            return
        self._waiting += data
        if len(self._waiting) >= _BLOCK_BYTES:
            self._flush()

    def align(self, size: int) -> None:
        """Go on at a multiple of `size`."""
        if rest := -self.position % size:
            self.append(bytes(rest))

    def widen(self, start: int, form: int, new_form: int) -> None:
        """Give every character from `start` to the end of the file more bytes, in place.

        From the last block to the first, so that nothing is overwritten before it was read.
        """
        self._flush()
        old, new = WIDTHS[form], WIDTHS[new_form]
        chars = (self._written - start) // old
        block = _BLOCK_BYTES // new
        for first in range((chars - 1) // block * block, -1, -block):
            data = self._read(start + first * old, min(block, chars - first) * old)
            self._write(_widened(data, old, new), start + first * new)
        self._written = start + chars * new

    def seal(self) -> None:
        """Make it unchangeable, in size and content, for whoever has or gets it."""
        import fcntl

        self._flush()
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
        with _explained():
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)

    def close(self) -> None:
        os.close(self.fd)

    def _flush(self) -> None:
        self._write(self._waiting, self._written)
        self._written += len(self._waiting)
        self._waiting = bytearray()

    def _read(self, offset: int, size: int) -> bytes:
        data = os.pread(self.fd, size, offset)
        assert len(data) == size, "memory gives all that was asked for"
        return data

    def _write(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        rest = memoryview(data)
        while rest:
            with _explained():
                size = os.pwrite(self.fd, rest, offset)
            offset += size
            rest = rest[size:]


def _widened(data: bytes, width: int, new_width: int) -> bytes | bytearray:
    """Characters of one or two bytes, in two or four."""
    codec = "utf-16-le" if new_width == 2 else "utf-32-le"
    if width == 1:
        return data.decode("latin-1").encode(codec)
    text = data.decode("utf-16-le", "surrogatepass")
    if 2 * len(text) == len(data):
        return text.encode(codec, "surrogatepass")
    # Two neighbouring surrogates became one character, which they are not.
    wide = bytearray(2 * len(data))
    wide[0::4] = data[0::2]
    wide[1::4] = data[1::2]
    return wide


@contextmanager
def _explained() -> Generator[None, None, None]:
    try:
        yield
    except OSError as error:
        raise SessionError(
            f"there is no room in shared memory for the context ({error.strerror}); "
            "free some memory, raise the limit of this process or container, or hand in less"
        ) from error
