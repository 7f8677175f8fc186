"""Which entries of a folder git would ignore: by .gitignore files in it, above it and below it."""

import os
from dataclasses import dataclass
from pathlib import Path

from rlm.context.wildcards import Line, lines_of

__all__ = ["IgnoreRules", "rules_above"]

FILE_NAME = ".gitignore"
_MOST_BYTES = 1 << 20
_MOST_LEVELS = 64


@dataclass(frozen=True)
class _Source:
    """One .gitignore: its lines, and how a name looks from there that is seen from the top."""

    lines: tuple[Line, ...]
    drop: int = 0
    prepend: str = ""

    def verdict(self, name: str, *, is_folder: bool) -> bool | None:
        """True: ignored; False: kept by a `!` line; None: no line is about this very entry."""
        seen = os.fsencode((self.prepend + name[self.drop :]).removesuffix("/"))
        for line in reversed(self.lines):
            if line.matches(seen, is_folder=is_folder):
                return line.ignored
        return None


@dataclass(frozen=True)
class IgnoreRules:
    """The rules that hold in one folder: the deepest file that knows a name decides."""

    sources: tuple[_Source, ...] = ()

    def entering(self, folder: Path, prefix: str) -> "IgnoreRules":
        """The rules inside `folder`, whose entries have names that begin with `prefix`."""
        lines = _read(folder)
        if not lines:
            return self
        return IgnoreRules((*self.sources, _Source(lines, drop=len(prefix))))

    def ignore(self, name: str, *, is_folder: bool) -> bool:
        """Whether an entry, whose folder is not ignored itself, is."""
        for source in reversed(self.sources):
            verdict = source.verdict(name, is_folder=is_folder)
            if verdict is not None:
                return verdict
        return False


def rules_above(folder: Path, root: Path | None = None) -> IgnoreRules:
    """The rules of the folders above, up to `root` or to the top of the repository.

    They do not count for a folder that they ignore: who hands it in wants it read.
    """
    rules = IgnoreRules()
    for parent in reversed(_folders_above(folder, root)):
        inside = f"{folder.relative_to(parent).as_posix()}/"
        if lines := _read(parent):
            rules = IgnoreRules((*rules.sources, _Source(lines, prepend=inside)))
        if any(source.verdict("", is_folder=True) for source in rules.sources):
            return IgnoreRules()
    return rules


def _folders_above(folder: Path, root: Path | None) -> list[Path]:
    """The folders above whose rules count, nearest first; none outside of a repository."""
    above = list(folder.parents)[:_MOST_LEVELS]
    counting = 0
    for number, each in enumerate((folder, *above)):
        if each == root:
            counting = number
        if _is_repository(each):
            counting = number
            break
    return above[:counting]


def _is_repository(folder: Path) -> bool:
    try:
        return (folder / ".git").exists()
    except OSError:
        return False


def _read(folder: Path) -> tuple[Line, ...]:
    """The lines of a folder's .gitignore; one that can't be read, like none, has no lines."""
    try:
        file = folder / FILE_NAME
        if not file.is_file():
            return ()
        with file.open("rb") as handle:
            return lines_of(handle.read(_MOST_BYTES))
    except OSError:
        return ()
