"""Which entries of a folder git would ignore: by .gitignore files in it, above it and below it."""

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["IgnoreRules", "rules_above"]

FILE_NAME = ".gitignore"
_MOST_BYTES = 1 << 20
_MOST_LEVELS = 64
_EVERYTHING = {"*", "**", "**/*", "**/**", "/**", "/**/*"}
_CLASSES = {
    "[:alnum:]": "a-zA-Z0-9",
    "[:alpha:]": "a-zA-Z",
    "[:digit:]": "0-9",
    "[:lower:]": "a-z",
    "[:space:]": " \t",
    "[:upper:]": "A-Z",
}

_Line = tuple[re.Pattern[str], bool]
"""What a line matches, and whether that is ignored (or else kept, for a line with `!`)."""


@dataclass(frozen=True)
class _Source:
    """One .gitignore: its lines, and how a name looks from there that is seen from the top."""

    lines: tuple[_Line, ...]
    drop: int = 0
    prepend: str = ""

    def verdict(self, name: str) -> bool | None:
        """True: ignored; False: kept by a `!` line; None: no line is about this very entry.

        pathspec's own answer also counts lines that match a folder above, which git does not.
        """
        seen = self.prepend + name[self.drop :]
        for pattern, ignored in reversed(self.lines):
            match = pattern.match(seen)
            if match is not None and match.end() == len(seen):
                return ignored
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
            verdict = source.verdict(f"{name}/" if is_folder else name)
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
        if any(source.verdict("") for source in rules.sources):
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


def _read(folder: Path) -> tuple[_Line, ...]:
    """The lines of a folder's .gitignore; one that can't be read, like none, has no lines."""
    try:
        file = folder / FILE_NAME
        if not file.is_file():
            return ()
        with file.open("rb") as handle:
            text = handle.read(_MOST_BYTES).decode("utf-8", "surrogateescape")
    except OSError:
        return ()
    return tuple(each for line in text.split("\n") if (each := _compiled(line)) is not None)


def _compiled(line: str) -> _Line | None:
    """What pathspec makes of a line; None if it says nothing, or nothing that can be understood."""
    from pathspec import GitIgnoreSpec

    try:
        (pattern,) = GitIgnoreSpec.from_lines([_as_git_means_it(line)]).patterns
    except (ValueError, re.error):
        return None
    if pattern.regex is None or pattern.include is None:
        return None
    return re.compile(pattern.regex.pattern), pattern.include


def _as_git_means_it(line: str) -> str:
    """Write out what pathspec takes short cuts for: `*` and `**`, and `a/**`, which is not `a`."""
    line = line.removesuffix("\r")
    for name, characters in _CLASSES.items():
        line = line.replace(name, characters)
    negated, body = line[: line.startswith("!")], line.removeprefix("!")
    only_folders = "/" if body.endswith("/") else ""
    bare = body.removesuffix("/")
    if bare in _EVERYTHING:
        return f"{negated}?*{only_folders}"
    return f"{negated}{bare}/*{only_folders}" if bare.endswith("/**") else line
