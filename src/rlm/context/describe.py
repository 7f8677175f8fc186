"""What a model is told about a context it can't see: its structure, never its values.

Names are told (JSON keys, column names) because code needs them; they are cut and filtered so that
no sentence of the context can pass as one.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

__all__ = ["MOST_NAMES", "SAMPLE_CHARS", "ListShape", "counted", "describe", "header_of", "told"]

SAMPLE_CHARS = 200_000
COUNTED_CHARS = 16_000_000
"""Of a longer text the number of lines is estimated."""

LINE_SAMPLES = 64
LINE_SAMPLE_CHARS = 1 << 16
MOST_NAMES = 20
MOST_ROWS = 1000
NAME = re.compile(r"[A-Za-z_][\w .\-/]{0,39}")
SEPARATORS = (",", "\t", ";", "|")


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
        return f"a dict of {counted(len(value), 'item')}{_names(value)}."
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
        structure = _format_of(sample, whole=chars <= len(sample))
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


def header_of(cells: list[str]) -> str:
    """The names in the first row of a table, if that holds nothing but names."""
    names = [name.strip().strip('"') for name in cells]
    if len(names) < 2 or len(set(names)) < len(names):
        return ""
    if not all(NAME.fullmatch(name) and len(name.split()) <= 3 for name in names):
        return ""
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


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
            text += f"; dicts{_names(self._keys)}"
        return f"{text}."


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _format_of(sample: str, *, whole: bool) -> str:
    """The format that the beginning of a text shows, with its field names."""
    stripped = sample.lstrip()
    if stripped.startswith(("{", "[")):
        return _json_format(sample if whole else None, stripped)
    lines = sample.split("\n")[:200]
    if len(lines) > 2:
        lines.pop()  # the last line of the sample may be cut
    if columns := _columns(lines):
        return f"; looks like CSV with columns {columns}"
    if sum(line.startswith("#") for line in lines) > 1 and "\n## " in sample:
        return "; looks like Markdown"
    if stripped[:500].lower().startswith(("<!doctype html", "<html")):
        return "; looks like HTML"
    return ""


def _columns(lines: list[str]) -> str:
    """Column names, if the first line holds only names and later lines have as many cells."""
    rows = [line for line in lines[1:] if line.strip()]
    for separator in SEPARATORS if len(lines) > 2 else ():
        cells = lines[0].split(separator)
        fitting = sum(line.count(separator) >= len(cells) - 1 for line in rows)
        if rows and fitting >= 0.9 * len(rows) and (names := header_of(cells)):
            return names
    return ""


def _json_format(text: str | None, stripped: str) -> str:
    row = _parsed(stripped.split("\n", 1)[0])
    if isinstance(row, dict) and "\n{" in stripped:
        return f"; looks like JSON Lines{_names(row)}"
    whole = _parsed(text) if text is not None else None
    if isinstance(whole, dict):
        return f"; looks like a JSON object{_names(whole)}"
    if isinstance(whole, list):
        return f"; looks like a JSON array of {counted(len(whole), 'item')}"
    return "; looks like JSON"


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _names(mapping: dict[Any, Any]) -> str:
    names = [str(key) for key in mapping if isinstance(key, str) and NAME.fullmatch(key)]
    if not names:
        return ""
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return f" with keys {', '.join(names[:MOST_NAMES])}{more}"
