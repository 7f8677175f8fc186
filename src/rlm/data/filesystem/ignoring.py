"""Apply the rules of .gitignore files."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["IgnoreRules", "Line", "compiled", "lines_of", "rules_above"]

MAX_LINES = 5_000
"""Further lines are skipped: every one is tried for every entry. Few repositories have 1,000."""
MAX_LINE_BYTES = 4_096
"""Longer lines are skipped; no path is that long either."""

_BOM = b"\xef\xbb\xbf"
_STAR = b"*"
_ANY_FOLDERS = rb"(?:[^/]*+/)"
_CLASSES = {
    b"alnum": rb"a-zA-Z0-9",
    b"alpha": rb"a-zA-Z",
    b"blank": rb" \t",
    b"cntrl": rb"\x00-\x1f\x7f",
    b"digit": rb"0-9",
    b"graph": rb"\x21-\x7e",
    b"lower": rb"a-z",
    b"print": rb"\x20-\x7e",
    b"punct": rb"\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e",
    b"space": rb" \t-\r",
    b"upper": rb"A-Z",
    b"xdigit": rb"0-9a-fA-F",
}


class _NeverMatches(Exception):
    """A malformed pattern, which git treats as one that matches nothing."""


@dataclass(frozen=True)
class Line:
    """What a line matches, and whether that is ignored, or kept by a `!`."""

    pattern: re.Pattern[bytes]
    ignored: bool
    only_folders: bool
    only_last_part: bool

    def matches(self, name: bytes, *, is_folder: bool) -> bool:
        """Return whether the line matches this entry, by its name relative to the line's folder."""
        if self.only_folders and not is_folder:
            return False
        seen = name.rpartition(b"/")[2] if self.only_last_part else name
        return self.pattern.fullmatch(seen) is not None


def lines_of(data: bytes) -> tuple[Line, ...]:
    """Return the lines of a file that can match something."""
    lines = data.removeprefix(_BOM).split(b"\n")[:MAX_LINES]
    return tuple(line for each in lines if (line := compiled(each)) is not None)


def compiled(line: bytes) -> Line | None:
    """Compile a line; None if it is empty, a comment, malformed, or longer than any path."""
    if line.startswith(b"#"):
        return None
    text = _without_spaces(line.removesuffix(b"\r").partition(b"\0")[0])
    if not text or len(text) > MAX_LINE_BYTES:
        return None
    negated = text.startswith(b"!")
    body = text.removeprefix(b"!")
    only_folders = body.endswith(b"/")
    body = body.removesuffix(b"/")
    only_last_part = b"/" not in body
    try:
        parts = _parts(body.removeprefix(b"/"))
        source = _part(parts[0][0]) if only_last_part else _path(parts)
    except _NeverMatches:
        return None
    return Line(re.compile(source, re.DOTALL), not negated, only_folders, only_last_part)


def _without_spaces(line: bytes) -> bytes:
    """Strip trailing spaces that no backslash precedes."""
    bare = line.rstrip(b" ")
    backslashes = len(bare) - len(bare.rstrip(b"\\"))
    escaped = backslashes % 2 == 1 and len(bare) < len(line)
    return line[: len(bare) + 1] if escaped else bare


# -- reading --------------------------------------------------------------------------------------

_Part = list[bytes]
"""What is between two slashes: expressions for one byte each, and stars."""


def _parts(pattern: bytes) -> list[tuple[_Part, bool]]:
    r"""Return the parts of a pattern, each with whether the slash after it is written `\/`."""
    parts: list[tuple[_Part, bool]] = []
    part: _Part = []
    at = 0
    while at < len(pattern):
        char = pattern[at : at + 1]
        escaped = char == b"\\"
        if escaped:
            at += 1
            char = pattern[at : at + 1]
            if not char:
                raise _NeverMatches
        if char == b"/":
            parts.append((part, escaped))
            part = []
        elif char == b"[" and not escaped:
            expression, at = _set(pattern, at + 1)
            part.append(expression)
        elif char == _STAR and not escaped:
            part.append(_STAR)
        elif char == b"?" and not escaped:
            part.append(rb"[^/]")
        else:
            part.append(re.escape(char))
        at += 1
    return [*parts, (part, False)]


def _set(pattern: bytes, at: int) -> tuple[bytes, int]:
    """Return the bytes between brackets as an expression, and where the bracket closes."""
    negated = pattern[at : at + 1] in (b"!", b"^")
    at += negated
    members: list[bytes] = []
    before: bytes | None = None
    first = True
    while first or pattern[at : at + 1] != b"]":
        first = False
        char = pattern[at : at + 1]
        if not char:
            raise _NeverMatches
        if char == b"-" and before and pattern[at + 1 : at + 2] not in (b"", b"]"):
            char, at = _member(pattern, at + 1)
            if before <= char:
                members.append(re.escape(before) + b"-" + re.escape(char))
            before = None
        elif char == b"[" and (name := _class_name(pattern, at)) is not None:
            members.append(_CLASSES[name])
            at += len(name) + 3
            before = None
        else:
            before, at = _member(pattern, at)
            members.append(re.escape(before))
        at += 1
    if negated:
        return b"[^/" + b"".join(members) + b"]", at
    if not members:
        raise _NeverMatches
    return b"(?!/)[" + b"".join(members) + b"]", at


def _member(pattern: bytes, at: int) -> tuple[bytes, int]:
    """Return one byte of a set, which may follow a backslash, and its position."""
    at += pattern[at : at + 1] == b"\\"
    char = pattern[at : at + 1]
    if not char:
        raise _NeverMatches
    return char, at


def _class_name(pattern: bytes, at: int) -> bytes | None:
    """Return the name in `[:name:]`; None if it is only a bracket in a set."""
    if pattern[at + 1 : at + 2] != b":":
        return None
    end = pattern.find(b"]", at + 2)
    if end < 0:
        raise _NeverMatches
    if end - at < 3 or pattern[end - 1 : end] != b":":
        return None
    name = pattern[at + 2 : end - 1]
    if name not in _CLASSES:
        raise _NeverMatches
    return name


# -- writing --------------------------------------------------------------------------------------


def _path(parts: list[tuple[_Part, bool]]) -> bytes:
    """Return the expression for a whole path. `**` between slashes matches any folders."""
    source = b""
    closing = b""
    last = len(parts) - 1
    for at, (part, escaped) in enumerate(parts):
        if len(part) > 1 and set(part) == {_STAR}:
            source += closing
            closing = b""
            if at == last:
                return source + b".*"
            # The parts up to the next `**` are tried folder by folder; the first match counts.
            source += b"(?>" + _ANY_FOLDERS + (b"+?" if escaped else b"*?")
            closing = b")"
        else:
            source += _part(part) if at == last else b"(?>" + _part(part) + b"/)"
    if not closing:
        return source
    # What follows the last `**` must match to the end, so its first match must not be final.
    opened = source.rindex(b"(?>" + _ANY_FOLDERS)
    return source[:opened] + b"(?:" + source[opened + 3 :] + b")"


def _part(part: _Part) -> bytes:
    """Return the expression for one part, in which stars match anything but a slash."""
    pieces: list[bytes] = [b""]
    for each in part:
        if each == _STAR:
            if pieces[-1] or len(pieces) == 1:
                pieces.append(b"")
        else:
            pieces[-1] += each
    first, *others = pieces
    if not others:
        return first
    *middle, end = others
    between = b"".join(b"(?>[^/]*?" + piece + b")" for piece in middle)
    return first + between + (b"[^/]*" + end if end else b"[^/]*+")


FILE_NAME = ".gitignore"
_MAX_BYTES = 1 << 20
_MAX_LEVELS = 64


@dataclass(frozen=True)
class _Source:
    """One .gitignore: its lines, and how names relative to the top look from there."""

    lines: tuple[Line, ...]
    drop: int = 0
    prepend: str = ""

    def verdict(self, name: str, *, is_folder: bool) -> bool | None:
        """Return True if ignored, False if kept by a `!` line, None if no line matches."""
        seen = os.fsencode((self.prepend + name[self.drop :]).removesuffix("/"))
        for line in reversed(self.lines):
            if line.matches(seen, is_folder=is_folder):
                return line.ignored
        return None


@dataclass(frozen=True)
class IgnoreRules:
    """The rules of one folder: the deepest file that matches a name decides."""

    sources: tuple[_Source, ...] = ()

    def entering(self, folder: Path, prefix: str) -> "IgnoreRules":
        """Return the rules inside `folder`, whose entries have names that begin with `prefix`."""
        lines = _read(folder)
        if not lines:
            return self
        return IgnoreRules((*self.sources, _Source(lines, drop=len(prefix))))

    def ignore(self, name: str, *, is_folder: bool) -> bool:
        """Return whether an entry is ignored; its folder must not be."""
        for source in reversed(self.sources):
            verdict = source.verdict(name, is_folder=is_folder)
            if verdict is not None:
                return verdict
        return False


def rules_above(folder: Path, root: Path | None = None) -> IgnoreRules:
    """Return the rules of the folders above, up to `root` or the top of the repository.

    They do not apply to a folder that they ignore: a caller who names it wants it read.
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
    """Return the folders above whose rules count, nearest first; none outside a repository."""
    above = list(folder.parents)[:_MAX_LEVELS]
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
    """Return the lines of a folder's .gitignore; none if it is missing or unreadable."""
    try:
        file = folder / FILE_NAME
        if not file.is_file():
            return ()
        with file.open("rb") as handle:
            return lines_of(handle.read(_MAX_BYTES))
    except OSError:
        return ()
