"""`files("docs/**/*.md", "src/**/*.py")`: several files, chosen by patterns."""

import glob
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from rlm._util.lazy import pattern
from rlm.data.filesystem.matching import fits
from rlm.data.filesystem.skipping import Skipped
from rlm.errors import ConfigError

if TYPE_CHECKING:
    from rlm.data.filesystem.walking import Found

__all__ = ["FileSet", "files"]

_WILDCARDS = pattern(r"[*?]|\[[^]]*\]")


class FileSet(Struct, frozen=True):
    """Files below `root` that match patterns: `*` and `?` within a name, `**` across folders."""

    patterns: tuple[str, ...]
    root: Path

    def split(self, pattern: str) -> tuple[Path, tuple[str, ...]]:
        """Return the folder that the beginning of a pattern names, and the rest, with wildcards."""
        parts = Path(pattern).parts
        fixed = next((at for at, part in enumerate(parts) if glob.has_magic(part)), len(parts))
        return self.root.joinpath(*parts[:fixed]), parts[fixed:]

    def matches(self, folder: Path, wildcards: tuple[str, ...]) -> "Iterator[Found | Skipped]":
        """Yield what is found in a folder and not ignored.

        Files that usually hold secrets are found only by a pattern that says so, such as `.env*`
        or `*.pem`: without its wildcards, it is the name of a secret itself.
        """
        from rlm.data.filesystem.walking import SECRETS, walk  # Imported late: few need it.

        fixed = [_WILDCARDS.sub("", part) for part in wildcards]
        for each in walk(folder, self.root, secrets=SECRETS.forbid(list(filter(None, fixed)))):
            if fits(tuple(each.name.split("/")), wildcards):
                yield each


def files(*patterns: str | PathLike[str], root: str | PathLike[str] | None = None) -> FileSet:
    """Choose files by glob patterns, relative to `root` or else to the current folder.

    Wildcards do not match what .gitignore excludes; a name without wildcards always counts.
    """
    if not patterns:
        raise ConfigError("files() needs at least one pattern, such as files('docs/**/*.md')")
    if "" in patterns or root == "":
        raise ConfigError("files(): the name is empty; the current folder is '.'")
    return FileSet(tuple(str(Path(each)) for each in patterns), Path(root or ".").absolute())
