"""Where the lines of a file begin, found out once and remembered sparsely.

A file of gigabytes has millions of lines; what is kept is the count at every so many bytes.
"""

import os
import threading
from bisect import bisect_right

from rlm.gateway.refusals import Refused

__all__ = ["LineIndex"]

BLOCK_BYTES = 1 << 20
MOST_SCANNED_BYTES = 4 << 30
"""Where lines begin further on is not found out: it would take minutes for one request."""


class LineIndex:
    """Line numbers and offsets of one file as it was when it was opened. Only `\\n` ends a line."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._counts = [0]  # line ends before each block that has been looked at
        self._looking = threading.Lock()

    def line_at(self, fd: int, offset: int) -> int:
        """The number of the line that holds the byte at `offset`, from 1."""
        block = offset // BLOCK_BYTES
        while len(self._counts) <= block:
            self._look_at_next(fd)
        start = block * BLOCK_BYTES
        return self._counts[block] + os.pread(fd, offset - start, start).count(b"\n") + 1

    def offset_of(self, fd: int, line: int) -> int | None:
        """Where a line begins; None if the file has fewer."""
        wanted = line - 1  # so many line ends come before it
        if wanted <= 0:
            return 0 if wanted == 0 and self.size_bytes else None
        while self._counts[-1] < wanted and self._is_more():
            self._look_at_next(fd)
        block = bisect_right(self._counts, wanted - 1) - 1
        start, left = block * BLOCK_BYTES, wanted - self._counts[block]
        data = self._block(fd, block)
        at = -1
        for _ in range(left):
            at = data.find(b"\n", at + 1)
            if at < 0:
                return None
        found = start + at + 1
        return found if found < self.size_bytes else None

    def count(self, fd: int) -> int:
        """How many lines there are; the last one may lack its end."""
        while self._is_more():
            self._look_at_next(fd)
        if not self.size_bytes:
            return 0
        ends_open = os.pread(fd, 1, self.size_bytes - 1) != b"\n"
        return self._counts[-1] + ends_open

    def _is_more(self) -> bool:
        return (len(self._counts) - 1) * BLOCK_BYTES < self.size_bytes

    def _look_at_next(self, fd: int) -> None:
        """One block further; threads that want the same file take turns."""
        with self._looking:
            block = len(self._counts) - 1
            if block * BLOCK_BYTES >= MOST_SCANNED_BYTES:
                raise Refused("this file is too large: lines this far on can't be found")
            self._counts.append(self._counts[-1] + self._block(fd, block).count(b"\n"))

    def _block(self, fd: int, block: int) -> bytes:
        start = block * BLOCK_BYTES
        return os.pread(fd, min(BLOCK_BYTES, max(0, self.size_bytes - start)), start)
