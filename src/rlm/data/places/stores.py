"""What every kind of place offers: its objects, and their bytes."""

from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol

__all__ = ["Changed", "Entry", "Store"]


class Entry(NamedTuple):
    """An object: how the store finds it, its name below the place, and its version, if known."""

    key: str
    name: str
    size: int | None
    version: str | None


class Changed(Exception):
    """An object is not what it was when it was listed."""


class Store(Protocol):
    """Reads a place, on the event loop of one fetch."""

    resumes: bool
    """Whether `blocks` can begin in the middle."""

    async def find(self) -> list[Entry]:
        """Return the objects of the place, at most one more than allowed."""
        ...

    async def find_again(self) -> list[Entry] | None:
        """Return the objects as they are now; None if reading itself detects changes."""
        ...

    def blocks(self, entry: Entry, start: int) -> AsyncIterator[bytes]:
        """Yield the bytes of an object from an offset."""
        ...

    async def close(self) -> None: ...
