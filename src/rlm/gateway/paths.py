"""From a client's path to an open file inside a root, without a race.

Every folder on the way is opened relative to the previous one and no link is followed, so a path
can't be changed while it is walked. A link to another place inside the root is followed by walking
that place in the same way.
"""

import errno
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from rlm._util.files import CLOEXEC, DIRECTORY, NOFOLLOW, NONBLOCK
from rlm._util.text import sendable
from rlm.data.filesystem.denial import SCANNED_BYTES, Denials, holds_private_key
from rlm.errors import ConfigError
from rlm.gateway.errors import Refused

__all__ = ["Root", "parts_of"]

MAX_PATH_CHARS = 4_096
MAX_PARTS = 100
_FOLDER = os.O_RDONLY | DIRECTORY | NOFOLLOW | CLOEXEC
_PATH = getattr(os, "O_PATH", 0)
_LINKED = {errno.ELOOP, errno.ENOTDIR, errno.EMLINK}
_ABSENT = {errno.ENOENT, errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ, errno.EACCES, errno.EPERM}

Opener = Callable[[str, int], int]
"""Opens the last part of a path, by its name in a folder."""


def parts_of(path: str) -> tuple[str, ...]:
    """Split a relative path at slashes; `.` is the root itself."""
    if not isinstance(path, str) or len(path) > MAX_PATH_CHARS:
        raise Refused(f"a path has at most {MAX_PATH_CHARS:,} characters")
    if (
        "\0" in path
        or sendable(path) != path
        or path.startswith(("/", "\\", "~"))
        or path[1:2] == ":"
    ):
        raise Refused("give a path relative to the root, as rlm_list does")
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts or any("\\" in part for part in parts) or len(parts) > MAX_PARTS:
        raise Refused("give a path below the root: no `..`, no `\\`")
    return parts


class Root:
    """A folder that the operator opened for clients; they know it by its name."""

    def __init__(self, folder: str | Path, name: str, denials: Denials) -> None:
        self.name = name
        self.denials = denials
        try:
            self.path = Path(folder).resolve(strict=True)
            self._fd = os.open(self.path, _FOLDER)
        except OSError as error:
            raise ConfigError(f"--root {folder} can't be opened: {error.strerror}") from error
        facts = os.fstat(self._fd)
        self.identity = (facts.st_dev, facts.st_ino)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def open_file(self, parts: Sequence[str]) -> int:
        """Return a descriptor of a regular file that may be read; the caller closes it."""
        fd = self._open(parts, self._file)
        try:
            if self.denials.looks_inside and holds_private_key(os.pread(fd, SCANNED_BYTES, 0)):
                raise Refused("this path is not available here")
        except OSError as error:
            os.close(fd)
            raise _refusal(error) from None
        except Refused:
            os.close(fd)
            raise
        return fd

    def open_folder(self, parts: Sequence[str]) -> int:
        """Return a descriptor of a folder that may be listed; the caller closes it."""
        return self._open(parts, self._folder)

    def _open(self, parts: Sequence[str], last: Opener) -> int:
        if self.denials.forbid(parts) or not all(map(_is_plain, parts)):
            raise Refused("this path is not available here")
        try:
            return self._walk(parts, last)
        except OSError as error:
            if error.errno not in _LINKED:
                raise _refusal(error) from None
        real = self._real_parts(parts)
        if real == tuple(parts) or self.denials.forbid(real):
            raise Refused("this path is not available here")
        try:
            return self._walk(real, last)
        except OSError as error:
            raise _refusal(error) from None

    def _walk(self, parts: Sequence[str], last: Opener) -> int:
        """Open folder after folder; raise OSError if one is a link or does not exist."""
        here = os.dup(self._fd)
        try:
            for part in parts[:-1]:
                following = os.open(part, _FOLDER, dir_fd=here)
                os.close(here)
                here = following
            return last(parts[-1] if parts else ".", here)
        finally:
            os.close(here)

    def _real_parts(self, parts: Sequence[str]) -> tuple[str, ...]:
        """Resolve the links of a path, if the result is inside this root."""
        try:
            real = self.path.joinpath(*parts).resolve(strict=True)
        except (OSError, RuntimeError, ValueError):
            raise Refused("there is no such file") from None
        if not real.is_relative_to(self.path):
            raise Refused("this path is not available here")
        return real.relative_to(self.path).parts

    @staticmethod
    def _folder(name: str, folder: int) -> int:
        return os.open(name, _FOLDER, dir_fd=folder)

    @staticmethod
    def _file(name: str, folder: int) -> int:
        """Check before opening: opening a pipe or a device has effects."""
        if not _PATH:  # not Linux
            return _regular(os.open(name, os.O_RDONLY | NOFOLLOW | NONBLOCK, dir_fd=folder))
        found = os.open(name, _PATH | NOFOLLOW | CLOEXEC, dir_fd=folder)
        try:
            mode = os.fstat(found).st_mode
            if stat.S_ISLNK(mode):
                raise OSError(errno.ELOOP, "a link")
            if not stat.S_ISREG(mode):
                raise Refused("this can't be read: it is a folder, a pipe or a device")
            return _regular(os.open(f"/proc/self/fd/{found}", os.O_RDONLY | CLOEXEC))
        finally:
            os.close(found)


def _is_plain(part: str) -> bool:
    """Return whether a part is the name of an entry, which can only lead down."""
    return part not in ("", ".", "..") and "/" not in part and "\0" not in part


def _regular(fd: int) -> int:
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise Refused("this can't be read: it is a folder, a pipe or a device")


def _refusal(error: OSError) -> Refused:
    """Return the same answer for what does not exist and what may not be seen."""
    if error.errno in _ABSENT or error.errno in _LINKED:
        return Refused("there is no such file")
    return Refused("it could not be opened")
