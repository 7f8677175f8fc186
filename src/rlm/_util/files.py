"""Open, read, write and lock files by descriptor, in the same way on every system.

Windows lacks some flags of `os.open`, and needs another one to leave line endings alone.
"""

import os
import stat
import sys

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

__all__ = [
    "BINARY",
    "CLOEXEC",
    "DIRECTORY",
    "NOFOLLOW",
    "NONBLOCK",
    "is_locked",
    "lock",
    "read_at",
    "write_at",
    "writers_problem",
]

BINARY: int = getattr(os, "O_BINARY", 0)
CLOEXEC: int = getattr(os, "O_CLOEXEC", 0)
DIRECTORY: int = getattr(os, "O_DIRECTORY", 0)
NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
NONBLOCK: int = getattr(os, "O_NONBLOCK", 0)

_LOCKED_BYTE = 1 << 40
"""Windows locks bytes, and nobody else can read those: this one is past the end of our files."""


def read_at(fd: int, size: int, offset: int) -> bytes:
    """Read bytes at an offset; on systems without `os.pread`, this moves the file position."""
    if sys.platform == "win32":
        os.lseek(fd, offset, os.SEEK_SET)
        return os.read(fd, size)
    return os.pread(fd, size, offset)


def write_at(fd: int, data: bytes, offset: int) -> int:
    """Write bytes at an offset and return how many were written; see `read_at`."""
    if sys.platform == "win32":
        os.lseek(fd, offset, os.SEEK_SET)
        return os.write(fd, data)
    return os.pwrite(fd, data, offset)


def lock(fd: int) -> None:
    """Lock a file until it is closed; raise BlockingIOError if another open file has locked it."""
    if sys.platform == "win32":
        os.lseek(fd, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError(*error.args) from error
    else:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_locked(fd: int) -> bool:
    """Return whether another open file has locked this file."""
    try:
        if sys.platform == "win32":
            lock(fd)
            os.lseek(fd, _LOCKED_BYTE, os.SEEK_SET)
            msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)
        else:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.flock(fd, fcntl.LOCK_UN)
    except BlockingIOError:
        return True
    return False


def writers_problem(facts: os.stat_result) -> str | None:
    """Return why a file may hold what another user wrote; None if only we and root could write it.

    Windows is not checked: there, other users have no access to a user's folders.
    """
    if sys.platform == "win32":
        return None
    if facts.st_uid not in {os.geteuid(), 0}:
        return "it belongs to another user"
    for_group, for_others = facts.st_mode & stat.S_IWGRP, facts.st_mode & stat.S_IWOTH
    if for_others or (for_group and not _is_private_group(facts.st_gid)):
        return "other users can write to it (chmod go-w helps)"
    return None


def _is_private_group(number: int) -> bool:
    """Return whether only the user is in a group; many systems create one for each user."""
    if sys.platform == "win32":
        return False
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(number)
    except KeyError:
        return False
    return user.pw_name == group.gr_name and set(group.gr_mem) <= {user.pw_name}
