"""On a node: the files of contexts. One actor writes a file, the others open the same one.

A file has no name in any folder: it lives in memory for as long as a process holds it, so that
nothing is left when actors are killed.
"""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Iterable
from typing import Any

from msgspec import Struct

from rlm.environments._memfile import MemoryFile

__all__ = ["NodeFiles", "Place"]

_COPIED_BYTES = 4 << 20


class Place(Struct, frozen=True):
    """Where another process on the same node finds a file, and how it knows that it is the one."""

    process: int
    fd: int
    device: int
    inode: int
    size_bytes: int


class NodeFiles:
    """The files that this actor holds, by the name of their context."""

    def __init__(self) -> None:
        self._fds: dict[str, int] = {}

    def found(self, name: str, place: Place | None) -> int | None:
        """The file, if it is here or where another actor is said to hold it."""
        if name not in self._fds and place is not None:
            fd = _opened(place)
            if fd is not None:
                self._fds[name] = fd
        return self._fds.get(name)

    async def write(self, name: str, pieces: Iterable[Awaitable[Any]]) -> Place:
        """Make the file from buffers of the object store; they are mapped, not copied."""
        file = MemoryFile()
        try:
            for piece in pieces:
                buffer = await piece
                await asyncio.to_thread(_append, file, buffer)
                del buffer
            file.seal()
        except BaseException:
            file.close()
            raise
        self.forget([name])
        self._fds[name] = file.fd
        known = os.fstat(file.fd)
        return Place(os.getpid(), file.fd, known.st_dev, known.st_ino, known.st_size)

    def forget(self, names: Iterable[str]) -> None:
        """Let go of files that nobody will ask for any more."""
        for name in names:
            if (fd := self._fds.pop(name, None)) is not None:
                os.close(fd)


def _append(file: MemoryFile, buffer: Any) -> None:
    view = memoryview(buffer).cast("B")
    for at in range(0, len(view), _COPIED_BYTES):
        file.append(view[at : at + _COPIED_BYTES])


def _opened(place: Place) -> int | None:
    """A descriptor of our own of another process's file; process numbers may be used again."""
    with contextlib.suppress(OSError):
        fd = os.open(f"/proc/{place.process}/fd/{place.fd}", os.O_RDONLY | os.O_CLOEXEC)
        known = os.fstat(fd)
        if (known.st_dev, known.st_ino, known.st_size) == (
            place.device,
            place.inode,
            place.size_bytes,
        ):
            return fd
        os.close(fd)
    return None
