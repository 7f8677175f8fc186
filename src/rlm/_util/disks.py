"""Tell a disk that is full, or can't be used now, from a damaged file."""

import errno
import os
import sqlite3

__all__ = ["is_full", "is_of_the_disk"]

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_OF_THE_DISK = frozenset(
    (
        *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY),
        *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM),
        *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM),
    )
)


def is_full(error: object) -> bool:
    """Return whether an error of the system, of SQLite or of a library says: no space left."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _NO_ROOM
    text = str(error)
    return _code(error) == sqlite3.SQLITE_FULL or any(os.strerror(n) in text for n in _NO_ROOM)


def is_of_the_disk(error: object) -> bool:
    """Return whether a file may be whole, although it can't be used now: deleting it is no help."""
    return isinstance(error, OSError) or is_full(error) or _code(error) in _OF_THE_DISK


def _code(error: object) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
