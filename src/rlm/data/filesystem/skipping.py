"""What was left out of a folder, described for people and for models."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from rlm._util.distribution import install_command
from rlm.data.filesystem.opening import display_path

__all__ = [
    "BINARY",
    "BROKEN_LINK",
    "CHANGED",
    "CORPUS",
    "EMPTY",
    "EXPECTED",
    "FAILED",
    "FILE_LINK",
    "FOLDER_LINK",
    "IGNORED",
    "LONG_LINE",
    "NEEDS_EXTRA",
    "NOT_MOUNTED",
    "NOT_PLAIN",
    "NOT_UTF8",
    "NO_RECORD",
    "NO_TEXT",
    "OUTER_LINK",
    "OVERSIZED",
    "SENSITIVE",
    "SPECIAL",
    "TABLE",
    "TOOL_FOLDER",
    "UNNAMED",
    "UNREADABLE",
    "Skipped",
    "SkippedCounts",
    "advice",
    "clause",
    "left_out",
]

BINARY = "binary file"
BROKEN_LINK = "broken link"
CHANGED = "file that changed while it was read"
CORPUS = "corpus"
EMPTY = "empty file"
FAILED = "document that could not be converted"
FILE_LINK = "link to a file"
FOLDER_LINK = "link to a folder"
IGNORED = "ignored entry"
LONG_LINE = "line over 64 MiB"
NEEDS_EXTRA = "document that needs an extra"
NOT_MOUNTED = "source on an unmounted disk"
NOT_PLAIN = "PDF, Office or e-book file"
NOT_UTF8 = "file in UTF-16 or UTF-32"
NO_RECORD = "line that is not a JSON object with a text"
NO_TEXT = "document without text"
OUTER_LINK = "link that leads out of the folder"
OVERSIZED = "picture over 8 MiB"
SENSITIVE = "probable secret"
SPECIAL = "special file"
TABLE = "table"
TOOL_FOLDER = "tool folder"
UNNAMED = "place whose address is not kept"
UNREADABLE = "unreadable entry"

_PLURALS = {
    CHANGED: "files that changed while they were read",
    CORPUS: "corpora",
    FAILED: "documents that could not be converted",
    FILE_LINK: "links to files",
    FOLDER_LINK: "links to folders",
    IGNORED: "ignored entries",
    LONG_LINE: "lines over 64 MiB",
    NOT_MOUNTED: "sources on unmounted disks",
    NOT_PLAIN: "PDF, Office or e-book files",
    NOT_UTF8: "files in UTF-16 or UTF-32",
    NO_RECORD: "lines that are not JSON objects with a text",
    NEEDS_EXTRA: "documents that need an extra",
    NO_TEXT: "documents without text",
    OUTER_LINK: "links that lead out of the folder",
    OVERSIZED: "pictures over 8 MiB",
    UNNAMED: "places whose addresses are not kept",
    UNREADABLE: "unreadable entries",
}
_HINTS = {
    CHANGED: "index again to cover their current content",
    CORPUS: "name its sources instead",
    FILE_LINK: "files are read under their own names",
    FOLDER_LINK: "folders are read under their own names",
    IGNORED: "by .gitignore",
    NOT_MOUNTED: "the documents stay",
    NOT_PLAIN: "convert them to text first",
    NOT_UTF8: "convert them to UTF-8 first",
    NO_RECORD: "name the field that contains the text",
    NO_TEXT: "scanned pages need OCR first",
    OVERSIZED: "make them smaller",
    SENSITIVE: "named like keys or passwords; pass them by name to include them",
    SPECIAL: "pipes, sockets, devices",
    TABLE: "pass them as tables, with --table or rlm.tables",
    UNNAMED: "it may hold a secret: name it again to fetch what changed",
    UNREADABLE: "no permission, or a disk error",
}
_FIRST_NAMES = 3
EXPECTED = frozenset({FOLDER_LINK, IGNORED, TOOL_FOLDER})
"""Reasons that are normal in folders."""


class Skipped(NamedTuple):
    """Something in a folder that is not part of the context; `reason` says why."""

    name: str
    reason: str


def clause(skipped: Iterable[Skipped]) -> str:
    """Return a short sentence for a description, such as ` 3 binary files left out.`; no names."""
    clauses = [_format_count(len(names), reason) for reason, names in _by_reason(skipped).items()]
    return f" {', '.join(clauses)} left out." if clauses else ""


def left_out(skipped: Iterable[Skipped]) -> tuple[str, ...]:
    """Return one line per reason, with the first names and what can be done."""
    counts = SkippedCounts()
    for each in skipped:
        counts.add(each)
    return counts.lines()


class SkippedCounts:
    """How much was left out for each reason, and the first names: for millions of files."""

    def __init__(self) -> None:
        self._numbers: Counter[str] = Counter()
        self._names: dict[str, list[str]] = {}

    def add(self, skipped: Skipped) -> None:
        self._numbers[skipped.reason] += 1
        names = self._names.setdefault(skipped.reason, [])
        if len(names) < _FIRST_NAMES:
            names.append(skipped.name)

    def __getitem__(self, reason: str) -> int:
        return self._numbers[reason]

    def lines(self) -> tuple[str, ...]:
        """Return one line per reason, with the first names and what can be done."""
        lines = []
        for reason, names in self._names.items():
            number = self._numbers[reason]
            listed = ", ".join(map(display_path, names))
            if number > len(names):
                listed += f" and {number - len(names):,} more"
            lines.append(f"{_format_count(number, reason)} left out: {listed}{advice(reason)}")
        return tuple(lines)


def advice(reason: str) -> str:
    """Return what can be done about a reason, in brackets; "" if there is nothing."""
    hint = install_command("documents") if reason == NEEDS_EXTRA else _HINTS.get(reason)
    return f" ({hint})" if hint else ""


def _format_count(number: int, reason: str) -> str:
    return f"{number:,} {reason if number == 1 else _PLURALS.get(reason, f'{reason}s')}"


def _by_reason(skipped: Iterable[Skipped]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for each in skipped:
        groups.setdefault(each.reason, []).append(each.name)
    return groups
