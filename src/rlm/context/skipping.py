"""What was left out of a folder, described for people and for models."""

from collections.abc import Iterable
from typing import NamedTuple

from rlm._util.distribution import install_command
from rlm.context.opening import display_path

__all__ = [
    "BINARY",
    "BROKEN_LINK",
    "EXPECTED",
    "FAILED",
    "FOLDER_LINK",
    "IGNORED",
    "NEEDS_EXTRA",
    "NO_TEXT",
    "OUTER_LINK",
    "OVERSIZED",
    "SPECIAL",
    "TOOL_FOLDER",
    "UNREADABLE",
    "Skipped",
    "clause",
    "left_out",
]

BINARY = "binary file"
BROKEN_LINK = "broken link"
FAILED = "document that could not be converted"
FOLDER_LINK = "link to a folder"
IGNORED = "ignored entry"
NEEDS_EXTRA = "document that needs an extra"
NO_TEXT = "document without text"
OUTER_LINK = "link out of the folder"
OVERSIZED = "picture over 8 MiB"
SPECIAL = "special file"
TOOL_FOLDER = "tool folder"
UNREADABLE = "unreadable entry"

_PLURALS = {
    FAILED: "documents that could not be converted",
    FOLDER_LINK: "links to folders",
    IGNORED: "ignored entries",
    NEEDS_EXTRA: "documents that need an extra",
    NO_TEXT: "documents without text",
    OUTER_LINK: "links out of the folder",
    OVERSIZED: "pictures over 8 MiB",
    UNREADABLE: "unreadable entries",
}
_HINTS = {
    FOLDER_LINK: "folders are read under their own names",
    IGNORED: "by .gitignore",
    NO_TEXT: "scanned pages need OCR first",
    OVERSIZED: "make them smaller",
    SPECIAL: "pipes, sockets, devices",
    UNREADABLE: "no permission, or an error of the disk",
}
_FIRST_NAMES = 3
EXPECTED = frozenset({FOLDER_LINK, IGNORED, TOOL_FOLDER})
"""Reasons that surprise nobody who hands in a folder."""


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
    lines = []
    for reason, names in _by_reason(skipped).items():
        listed = ", ".join(display_path(name) for name in names[:_FIRST_NAMES])
        if len(names) > _FIRST_NAMES:
            listed += f" and {len(names) - _FIRST_NAMES:,} more"
        hint = _hint(reason)
        advice = f" ({hint})" if hint else ""
        lines.append(f"{_format_count(len(names), reason)} left out: {listed}{advice}")
    return tuple(lines)


def _hint(reason: str) -> str | None:
    return install_command("documents") if reason == NEEDS_EXTRA else _HINTS.get(reason)


def _format_count(number: int, reason: str) -> str:
    return f"{number:,} {reason if number == 1 else _PLURALS.get(reason, f'{reason}s')}"


def _by_reason(skipped: Iterable[Skipped]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for each in skipped:
        groups.setdefault(each.reason, []).append(each.name)
    return groups
