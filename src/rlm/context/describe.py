"""What a model is told about a context it can't see: its structure, never its values.

Names are told (JSON keys, column names) because code needs them; they are cut and filtered so that
no sentence of the context can pass as one.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from rlm.context.formats import counted, format_of, key_names

__all__ = ["SAMPLE_CHARS", "ListShape", "counted", "describe", "told"]

SAMPLE_CHARS = 200_000
COUNTED_CHARS = 16_000_000
"""Of a longer text the number of lines is estimated."""

LINE_SAMPLES = 64
LINE_SAMPLE_CHARS = 1 << 16
MOST_ROWS = 1000


def describe(value: Any) -> str:
    """One or two lines on type, size and inner structure."""
    if isinstance(value, str):
        about = len(value) > COUNTED_CHARS
        lines = _about_lines(value) if about else _lines(value)
        return told(len(value), lines, value[:SAMPLE_CHARS], about=about)
    if isinstance(value, bytes):
        return f"bytes, {counted(len(value), 'byte')}."
    if isinstance(value, (list, tuple)):
        return ListShape(value).told()
    if isinstance(value, dict):
        return f"a dict of {counted(len(value), 'item')}{key_names(value)}."
    return f"a {type(value).__name__}."


def told(
    chars: int, lines: int, sample: str, structure: str | None = None, *, about: bool = False
) -> str:
    """A text of which only the beginning is at hand; `structure` if it is known already."""
    if not chars:
        return "an empty str: everything you need is in the query."
    in_lines = f"{'about ' if about else ''}{counted(lines, 'line')}"
    size = f"a str of {counted(chars, 'character')} in {in_lines}"
    if lines > 1:
        size += f", {chars / lines:,.0f} on average"
    if structure is None:
        structure = format_of(sample, whole=chars <= len(sample))
    return f"{size}{structure}."


def _lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))


def _about_lines(text: str) -> int:
    """From pieces all over the text: counting takes nearly a second for a gigabyte."""
    step = len(text) // LINE_SAMPLES
    found = sum(
        text.count("\n", at, at + LINE_SAMPLE_CHARS) for at in range(0, step * LINE_SAMPLES, step)
    )
    lines = found * len(text) // (LINE_SAMPLES * LINE_SAMPLE_CHARS)
    return max(1, round(lines, 3 - len(str(lines))))


class ListShape:
    """The structure of a list whose items are seen one after the other."""

    def __init__(self, items: Iterable[Any] = ()) -> None:
        self.count = 0
        self._kinds: Counter[str] = Counter()
        self._keys: dict[Any, None] = {}
        self._text_chars: list[int] = []
        for item in items:
            self.add(item)

    def add(self, item: Any) -> None:
        if isinstance(item, dict) and self.count < MOST_ROWS:
            self._keys.update(dict.fromkeys(item))
        self.count += 1
        self._kinds[type(item).__name__] += 1
        if isinstance(item, str):
            shortest, longest, chars = self._text_chars or (len(item), 0, 0)
            size = len(item)
            self._text_chars = [min(shortest, size), max(longest, size), chars + size]

    def told(self) -> str:
        if not self.count:
            return "an empty list."
        kinds = ", ".join(f"{number:,} {kind}" for kind, number in self._kinds.most_common(5))
        text = f"a list of {counted(self.count, 'item')} ({kinds})"
        if self._text_chars:
            shortest, longest, chars = self._text_chars
            text += f"; texts of {shortest:,} to {longest:,} characters, {chars:,} in all"
        if self._keys:
            text += f"; dicts{key_names(self._keys)}"
        return f"{text}."
