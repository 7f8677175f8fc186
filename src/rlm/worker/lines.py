"""Lines of a text: counted, and found by a pattern."""

from __future__ import annotations

import re

__all__ = ["count_lines", "line_spans", "matching_lines", "numbered"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Span = tuple[int, int, int]
    """The number of a line, and where it starts and ends."""

_SPECIAL = frozenset("\\.^$*+?{}[]|()\n")


def count_lines(text: str) -> int:
    """Return the number of lines; a line feed ends each, but may be missing from the last."""
    return text.count("\n") + (text[-1:] not in ("", "\n"))


def line_spans(text: str) -> Iterator[Span]:
    """Yield all lines, as `count_lines` counts them."""
    number, start = 1, 0
    while start < len(text):
        end = text.find("\n", start)
        if end < 0:
            end = len(text)
        yield number, start, end
        number, start = number + 1, end + 1


def matching_lines(text: str, pattern: str) -> Iterator[Span]:
    """Yield the lines that match; plain words are found much faster than other patterns."""
    if pattern and _SPECIAL.isdisjoint(pattern):
        yield from _lines_with(text, pattern)
        return
    try:
        compiled = re.compile(pattern)
    except re.error:
        compiled = re.compile(re.escape(pattern))
    for number, start, end in line_spans(text):
        if compiled.search(text[start:end]):
            yield number, start, end


def _lines_with(text: str, word: str) -> Iterator[Span]:
    number, start, at = 1, 0, text.find(word)
    while at >= 0:
        number += text.count("\n", start, at)
        start = text.rfind("\n", start, at) + 1 or start
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        yield number, start, end
        number, start = number + 1, end + 1
        at = text.find(word, start)


def numbered(text: str, name: str, line: Span, context_lines: int) -> str:
    """Return a line as `number: line`, with the lines around it, one below the other.

    With the name of the text, it is `name:number: line`.
    """
    number, start, end = line
    first = number
    while first > 1 and number - first < context_lines:
        start = text.rfind("\n", 0, start - 1) + 1
        first -= 1
    for _ in range(context_lines):
        following = text.find("\n", end + 1)
        end = len(text) if following < 0 else following
    if context_lines > 0 and end == len(text) and text.endswith("\n"):
        end -= 1
    place = f"{name}:" if name else ""
    lines = text[start:end].split("\n")
    return "\n".join(f"{place}{first + offset}: {each}" for offset, each in enumerate(lines))
