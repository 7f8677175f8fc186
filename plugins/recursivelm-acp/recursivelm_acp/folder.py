"""The editor's folder as a context: read once, and what changed since before each prompt."""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from acp import RequestError
from msgspec import Struct

from rlm import files
from rlm.context import ContextValue
from rlm.data.filesystem.skipping import Skipped
from rlm.data.filesystem.walking import Found, walk_in_thread

__all__ = ["Changes", "Folder", "State"]

MOST_CHANGES = 20
"""If more files have changed, the whole folder is read again."""

State = dict[str, tuple[int, int]]
"""The files of the folder by name: the time of their last change in nanoseconds, and their size."""


class Changes(Struct, frozen=True):
    """The names of files that are new or different, and of those that are gone."""

    changed: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()

    @classmethod
    def between(cls, before: Mapping[str, object], now: Mapping[str, object]) -> "Changes":
        changed = tuple(name for name, facts in now.items() if before.get(name) != facts)
        return cls(changed, tuple(name for name in before if name not in now))


class Folder:
    """A folder that is only read. Names follow the rules of `rlm ask -f FOLDER`."""

    def __init__(self, cwd: str) -> None:
        try:
            path = Path(cwd)
            if not path.is_absolute() or not path.is_dir():
                raise ValueError
            self.path = path.resolve(strict=True)
        except (OSError, ValueError, RuntimeError):
            raise RequestError(
                -32602, f"cwd must be the absolute path of a folder, not {cwd[:200]!r}"
            ) from None

    async def look(self) -> State:
        """Return all files that are not ignored; it may take a while."""
        return await asyncio.to_thread(_state_of, await walk_in_thread(self.path))

    def copy(self, names: Iterable[str], into: Path) -> Path:
        """Copy files as they are now below a private folder, and return the copy of this one.

        What is gone meanwhile, or may not be read, is left out.
        """
        made = Path(tempfile.mkdtemp(dir=into)) / (self.path.name or "folder")
        made.mkdir()
        for name in names:
            place = made / name
            with contextlib.suppress(FileNotFoundError, PermissionError, shutil.SpecialFileError):
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.path / name, place)
        return made

    def context(self, changed: Sequence[str] | None = None) -> ContextValue:
        """Return the whole folder, or only what changed."""
        if changed is None:
            return self.path
        # A name with a wildcard is one that may turn out to be no text, as in a whole folder.
        return files(*map(_as_pattern, changed), root=self.path)

    def linked(self, uri: str) -> str | None:
        """Return the name of a file that a link leads to; None if it leads to a folder, or nowhere.

        A link to a file elsewhere is refused, through whatever links of the file system.
        """
        try:
            parts = urlsplit(uri)
        except ValueError:
            raise RequestError(-32602, f"{uri[:200]!r} is not an address") from None
        if parts.scheme != "file":
            return None
        outside = RequestError(
            -32602,
            f"{uri[:200]} is not a file of the session's folder, {self.path}, so it is not read: "
            "open that folder in the editor, or paste the text",
        )
        if parts.netloc not in ("", "localhost"):
            raise outside
        try:
            path = Path(url2pathname(parts.path)).resolve(strict=True)
        except (OSError, ValueError, RuntimeError):
            raise outside from None
        if path.is_relative_to(self.path) and path.is_dir():
            return None
        if not path.is_relative_to(self.path) or not path.is_file():
            raise outside
        return path.relative_to(self.path).as_posix()


def _state_of(entries: Sequence[Found | Skipped]) -> State:
    found: State = {}
    for each in entries:
        if isinstance(each, Found):
            with contextlib.suppress(OSError):
                facts = each.path.stat()
                found[each.name] = facts.st_mtime_ns, facts.st_size
    return found


def _as_pattern(name: str) -> str:
    """Return a pattern that matches exactly this name, with a wildcard in its last part."""
    folder, slash, last = name.rpartition("/")
    escaped = "".join(f"[{char}]" if char in "*?[" else char for char in folder + slash)
    plain = "".join(f"[{char}]" if char in "*?[" else char for char in last[1:])
    first = last[0]
    return escaped + (f"[{first}]" if first not in "!^" else "?") + plain
