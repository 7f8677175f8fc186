"""Where a passage begins and ends: paragraphs, and the lines of long ones."""

from __future__ import annotations

import bisect
import re

from .query_words import IGNORED

__all__ = ["HEADING", "PASSAGE_CHARS", "around", "between", "paragraphs", "with_neighbours"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    Hit = tuple[int, int, int]
    """Start and end of a match, and the number of the term."""

PASSAGE_CHARS = 800
BEFORE_CHARS = 200
"""How much of a long paragraph is shown before a match."""

WRAPPED_CHARS = 40
"""A line shorter than this is not taken as the first part of a wrapped one."""

NEAR_LINES = 3
HEADING = re.compile(r"^#{1,6}[ \t]+(\S.*)$", re.MULTILINE)
_BREAK = re.compile(r"\n[ \t\r]*\n\s*")


def paragraphs(text: str) -> tuple[list[int], list[int]]:
    """Return where paragraphs begin and end; headings and `as follows:` belong to the next one."""
    starts, ends = [0], []
    for match in _BREAK.finditer(text):
        above = max(starts[-1], text.rfind("\n", starts[-1], match.start()) + 1)
        is_heading = text.startswith("#", above) and HEADING.match(text, above)
        if not (is_heading or text.endswith(":", above, match.start())):
            starts.append(match.end())
            ends.append(match.start())
    return starts, [*ends, len(text.rstrip())]


def around(text: str, at: int, first: int, last: int) -> tuple[int, int]:
    """Return the passage around a place in a paragraph: all of it, or one line if it is long.

    Lines that continue a sentence belong to the line above.
    """
    if last - first <= PASSAGE_CHARS:
        return first, last
    start, end = _line(text, at, first, last)
    while start > first and at - start < BEFORE_CHARS and _continues(text, start):
        start = _line(text, start - 1, first, last)[0]
    while end < last and end - start < PASSAGE_CHARS and _continues(text, end + 1):
        end = _line(text, end + 1, first, last)[1]
    if end - start > PASSAGE_CHARS:
        if start < at - BEFORE_CHARS:
            start = text.find(" ", at - BEFORE_CHARS, at) + 1 or at - BEFORE_CHARS
        end = min(end, start + PASSAGE_CHARS)
    return start, end


def with_neighbours(
    text: str, span: tuple[int, int], hits: list[Hit], first: int, last: int
) -> tuple[int, int]:
    """Return a passage with the adjacent lines that have only terms that it lacks."""
    start, end = span
    held = {term for _, _, term in between(hits, start, end)}
    near = []
    for at, _, term in between(hits, *_lines_near(text, span, first, last)):
        if term not in held:
            apart = text.count("\n", at, start) + text.count("\n", end, at)
            near.append((apart, at, term))
    for _, at, term in sorted(near):
        if term in held:
            continue
        low, high = _line(text, at, first, last)
        beside = {other for _, _, other in between(hits, low, high)}
        low, high = min(low, start), max(high, end)
        if beside.isdisjoint(held) and high - low <= PASSAGE_CHARS:
            start, end = low, high
            held.add(term)
    return start, end


def _lines_near(text: str, span: tuple[int, int], first: int, last: int) -> tuple[int, int]:
    """Return where the few lines before a passage begin, and where those after it end."""
    start, end = span
    lowest, highest = max(first, start - PASSAGE_CHARS), min(last, end + PASSAGE_CHARS)
    for _ in range(NEAR_LINES + 1):
        start = text.rfind("\n", lowest, start) if start > lowest else -1
        if start < 0:
            break
    for _ in range(NEAR_LINES + 1):
        end = text.find("\n", end, highest) + 1
        if not end:
            break
    return (start + 1 if start >= 0 else lowest), end or highest


def _line(text: str, at: int, first: int, last: int) -> tuple[int, int]:
    """Return the line around a place; if it is very long, the part that a passage may show."""
    lowest, highest = max(first, at - PASSAGE_CHARS), min(last, at + PASSAGE_CHARS)
    end = text.find("\n", at, highest)
    return text.rfind("\n", lowest, at) + 1 or lowest, highest if end < 0 else end


def _continues(text: str, start: int) -> bool:
    """Return whether the line that begins here continues the line above, or answers it."""
    above = text[max(0, start - WRAPPED_CHARS - 1) : start - 1].rstrip()
    if above.endswith(("?", ":")) or above.rpartition(" ")[2].lower() in IGNORED:
        return True
    is_wrapped = "\n" not in above and above[-1:] not in {".", "!", ""}
    return is_wrapped and text[start : start + WRAPPED_CHARS].lstrip()[:1].islower()


def between(hits: list[Hit], start: int, end: int) -> list[Hit]:
    return hits[bisect.bisect_left(hits, (start,)) : bisect.bisect_left(hits, (end,))]
