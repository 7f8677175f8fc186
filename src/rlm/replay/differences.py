"""What differs between two executions, in words and as a diff that people can read."""

import difflib

from msgspec import Struct

__all__ = ["Difference", "diff"]

LINE_CHARS = 400
SHOWN_LINES = 80
COMPARED_LINES = 5_000


class Difference(Struct, frozen=True):
    """Where two executions part, and how."""

    where: str
    diff: str


def diff(recorded: str, now: str) -> str:
    """A unified diff by lines, cut to what is worth reading; empty if the texts are the same."""
    if recorded == now:
        return ""
    lines = difflib.unified_diff(_lines(recorded), _lines(now), "recorded", "now", lineterm="", n=2)
    shown = [line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]}…" for line in lines]
    if len(shown) > SHOWN_LINES:
        shown = [*shown[:SHOWN_LINES], f"… {len(shown) - SHOWN_LINES:,} more lines"]
    return "\n".join(shown) or "the texts differ in their line ends, or far below"


def _lines(text: str) -> list[str]:
    return text.splitlines()[:COMPARED_LINES]
