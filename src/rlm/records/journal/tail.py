"""What was committed a moment ago: a file beside the database, emptied into it now and then.

What stands in a file survives SIGKILL as a transaction does, at a tenth of the price. Where the
file system gives room that it can't take back, the file is mapped, and a record costs no more than
copying it; elsewhere each one is written. A record is whole or not there at all: its head comes
last, and behind it is always a zero.
"""

import functools
import mmap
import os
from contextlib import suppress
from pathlib import Path

from rlm.records.journal.private import private
from rlm.records.journal.records import HEAD_BYTES, end_of

__all__ = ["Tail", "tail_of"]

ROOM_BYTES = 1 << 18
_END = bytes(4)
_KEEPS_WHAT_IT_GAVE = {"ext2", "ext3", "ext4", "tmpfs", "xfs"}
"""File systems that have no excuse, once `fallocate` has given room, for not having it. On another
one, a full disk could end the process that touches the mapping."""


def tail_of(path: Path) -> Path:
    return path.with_suffix(".tail")


class Tail:
    """Records on their way into a journal. Whoever has the lock of the journal has this too."""

    def __init__(self, path: Path) -> None:
        self._path = tail_of(path)
        self._fd = private(self._path, os.O_RDWR | os.O_CREAT)
        self._end = 0
        self._map: mmap.mmap | None = None

    def records(self) -> bytes:
        """What another process has left, whole records only; ask before adding any."""
        found = self._path.read_bytes()
        return found[: end_of(found)]

    def open(self) -> None:
        """Be empty, and ready for records."""
        os.ftruncate(self._fd, 0)
        if _file_system(os.fstat(self._fd).st_dev) in _KEEPS_WHAT_IT_GAVE:
            with suppress(OSError):  # There is no room; then there may be for a little.
                os.posix_fallocate(self._fd, 0, ROOM_BYTES)
                self._map = mmap.mmap(self._fd, ROOM_BYTES)

    def add(self, record: bytes) -> bool:
        """Commit a record; False, with nothing done, if there is no room in here.

        OSError if the disk is full.
        """
        start = self._end
        end = start + len(record)
        if end + len(_END) > ROOM_BYTES:
            return False
        if self._map is None:
            if os.pwrite(self._fd, record, start) != len(record):
                os.ftruncate(self._fd, start)
                return False
        else:
            self._map[start + HEAD_BYTES : end + len(_END)] = record[HEAD_BYTES:] + _END
            self._map[start : start + HEAD_BYTES] = record[:HEAD_BYTES]
        self._end = end
        return True

    def clear(self) -> None:
        """What was in here is elsewhere now."""
        self._end = 0
        if self._map is None:
            os.ftruncate(self._fd, 0)
        else:
            self._map[: len(_END)] = _END

    def close(self) -> None:
        """Leave nothing behind, if nothing is in it; may be called twice."""
        if self._fd < 0:
            return
        if not self._end and not self.records():
            self._path.unlink(missing_ok=True)
        if self._map is not None:
            self._map.close()
            self._map = None
        os.close(self._fd)
        self._fd = -1


@functools.lru_cache(maxsize=16)
def _file_system(device: int) -> str:
    """What kind of file system a device has; empty if that can't be known."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text("utf-8", "replace").splitlines():
            about, _, source = line.partition(" - ")
            if about.split(maxsplit=3)[2] == wanted:
                return source.split(maxsplit=1)[0]
    return ""
