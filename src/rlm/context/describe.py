"""Describe the structure of a context without its content."""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from rlm._util.python_source import PythonParser
from rlm._util.text import counted
from rlm.worker.lines import count_lines

__all__ = [
    "MAX_NAMES",
    "SAMPLE_CHARS",
    "ListShape",
    "counted",
    "describe",
    "describe_text",
    "format_of",
    "header_of",
    "key_names",
    "table_of",
]

MAX_NAMES = 20
NAME = re.compile(r"[A-Za-z_][\w .\-/]{0,39}")
BYTE_ORDER_MARK = "\N{BYTE ORDER MARK}"
JSON_SPACE = " \t\n\r"
SEPARATORS = (",", "\t", ";", "|")
CUT_TOKEN_CHARS = 16
"""The longest number or literal such as `false` that the end of the sample may cut in two."""

FEWEST_MARKERS = 3
_MARKER = re.compile(
    r"^([\[<(={#*-]{0,4}[ \t]?[A-Za-z]{2,16}[ \t_#:-]?)([0-9]{1,9})"
    r"([ \t]?[\]>)=}*:-]{1,4})(?![0-9])",
    re.MULTILINE,
)
"""`[doc 0001]`, `=== Document 12 ===`, `Chapter 3:`, `<page 7>`."""

_HEADING = re.compile(r"#{1,6}[ \t]+\S")
_FENCE = re.compile(r" {0,3}(```|~~~)")
_HTML = re.compile(r"<!doctype\s+html\b|<html[\s>]", re.IGNORECASE)
_UNREADABLE = (ValueError, RecursionError)


def format_of(sample: str, *, whole: bool) -> str:
    """Return what to add to the description of a text, with field names; empty if in doubt.

    What it says is what `json.loads`, or `csv.DictReader` with this delimiter, makes of the text.
    """
    stripped = sample.lstrip(JSON_SPACE)
    looks = "looks like" if whole else "begins like"
    if stripped.startswith(("{", "[")):
        as_json = _json_lines(stripped, looks, whole) or _json(stripped, whole)
        return as_json or _markers(sample)
    if columns := _columns(sample, whole):
        return f"; {looks} CSV with columns {columns}"
    if _is_markdown(sample):
        return "; looks like Markdown"
    return "; looks like HTML" if _HTML.match(sample.lstrip()) else _markers(sample)


def table_of(sample: str, separators: Sequence[str], *, whole: bool) -> tuple[int, str] | None:
    """Return the number of rows of a table and the names of its columns.

    Return None unless one of the separators gives all rows the same number of cells. With the
    names stands the separator, unless it is the usual one, which is the first.
    """
    occurring = [each for each in separators if each in sample] or separators[:1]
    tables = [(each, table) for each in occurring if (table := _rows(sample, each, whole))]
    for separator, rows in tables:
        if len(rows) > 1 and (columns := header_of(rows[0])):
            return len(rows) - 1, columns + _delimiter(separator, separators[0])
    return (len(tables[0][1]), "") if tables else None


def header_of(cells: list[str]) -> str:
    r"""Return the names in the first row of a table, if it holds nothing but names.

    A byte order mark is part of the first name, as in the text: `\ufeffname`.
    """
    marked = bool(cells) and cells[0].startswith(BYTE_ORDER_MARK)
    names = [cells[0][1:], *cells[1:]] if marked else cells
    if len(names) < 2 or len(set(names)) < len(names):
        return ""
    if not all(_is_column(name) for name in names):
        return ""
    return ("\\ufeff" if marked else "") + _join_names(names)


def _is_column(name: str) -> bool:
    """Whether a cell is a name as it stands; in prose, a space follows each comma."""
    plain = NAME.fullmatch(name) is not None and name == name.strip()
    return plain and len(name.split()) <= 3


def _delimiter(separator: str, usual: str = SEPARATORS[0]) -> str:
    return "" if separator == usual else f" (delimiter={separator!r})"


def key_names(keys: Iterable[Any]) -> str:
    names = [str(key) for key in keys if isinstance(key, str) and NAME.fullmatch(key)]
    return f" with keys {_join_names(names)}" if names else ""


def _join_names(names: list[str]) -> str:
    more = f" and {len(names) - MAX_NAMES:,} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more


# -- JSON -----------------------------------------------------------------------------------------


def _json_lines(text: str, looks: str, whole: bool) -> str:
    """Describe objects, one per line, by the keys that they all have."""
    lines = text.split("\n")
    if not whole:
        lines.pop()  # it may be cut
    lines = [line for line in lines if line.strip(JSON_SPACE)]
    if len(lines) < 2 or not lines[0].startswith("{"):
        return ""
    if any(len(line.strip(JSON_SPACE).splitlines()) > 1 for line in lines):
        return ""  # for str.splitlines(), these are several lines
    keys: dict[Any, None] | None = None
    for line in lines:
        try:
            row = json.loads(line)
        except _UNREADABLE:
            return ""
        if not isinstance(row, dict):
            return ""
        keys = {key: None for key in (row if keys is None else keys) if key in row}
    return f"; {looks} JSON Lines{key_names(keys or ())}"


def _json(text: str, whole: bool) -> str:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        return "" if whole or not _is_cut(error, text) else "; begins like JSON"
    except _UNREADABLE:
        return ""
    if not whole:
        return ""  # something follows a complete value
    if isinstance(value, dict):
        return f"; looks like a JSON object{key_names(value)}"
    return f"; looks like a JSON array of {counted(len(value), 'item')}"


def _is_cut(error: json.JSONDecodeError, text: str) -> bool:
    """Return whether a JSON text is valid apart from being cut off."""
    unterminated = error.msg.startswith("Unterminated string")
    return unterminated or error.pos >= len(text.rstrip()) - CUT_TOKEN_CHARS


# -- tables ---------------------------------------------------------------------------------------


def _columns(sample: str, whole: bool) -> str:
    """Return column names, if the first row holds only names and two more rows fit it."""
    header = sample.partition("\n")[0]
    for separator in SEPARATORS:
        rows = _rows(sample, separator, whole) if separator in header else []
        if len(rows) > 2 and (names := header_of(rows[0])):
            return names + _delimiter(separator)
    return ""


def _rows(sample: str, separator: str, whole: bool) -> list[list[str]]:
    """Return the rows as `csv` reads them, without empty rows; none if their lengths differ."""
    try:
        rows = list(csv.reader(io.StringIO(sample), delimiter=separator, strict=whole))
    except (csv.Error, ValueError):
        return []
    if not rows or not rows[0]:
        return []  # `csv.DictReader` takes an empty first row for the names
    rows = [row for row in rows if row]
    if not whole and len(rows) > 1:
        rows.pop()  # it may be cut
    return rows if all(len(row) == len(rows[0]) for row in rows) else []


# -- markers of documents -------------------------------------------------------------------------


def _markers(sample: str) -> str:
    """Name the lines that number documents, if at least three of one kind count upwards."""
    numbers: dict[tuple[str, str], list[int]] = {}
    first: dict[tuple[str, str], str] = {}
    for found in _MARKER.finditer(sample):
        before, number, after = found[1], found[2], found[3]
        kind = (before, after)
        first.setdefault(kind, f"{before}{number}{after}".strip())
        numbers.setdefault(kind, []).append(int(number))
    for kind, found_numbers in numbers.items():
        upwards = all(one < other for one, other in pairwise(found_numbers))
        if len(found_numbers) >= FEWEST_MARKERS and upwards:
            return f"; documents begin with markers such as `{first[kind]}`"
    return ""


# -- Markdown -------------------------------------------------------------------------------------


def _is_markdown(sample: str) -> bool:
    """Return whether there are headings of two levels outside code, where `#` is a comment."""
    levels, count, in_code = set[str](), 0, False
    for line in sample.split("\n"):
        in_code ^= _FENCE.match(line) is not None
        if not in_code and _HEADING.match(line):
            levels.add(line.split(None, 1)[0])
            count += 1
    if count < 2 or "##" not in levels or sample.startswith("#!"):
        return False
    tree = PythonParser().parse(sample)
    return tree is None or all(type(each).__name__ == "Expr" for each in tree.body)


SAMPLE_CHARS = 200_000
COUNTED_CHARS = 16_000_000
"""In a longer text, the number of lines is estimated."""

LINE_SAMPLES = 64
LINE_SAMPLE_CHARS = 1 << 16
MAX_ROWS = 1000


def describe(value: Any) -> str:
    """Return one or two lines about type, size and inner structure."""
    if isinstance(value, str):
        about = len(value) > COUNTED_CHARS
        lines = _about_lines(value) if about else count_lines(value)
        return describe_text(len(value), lines, value[:SAMPLE_CHARS], about=about)
    if isinstance(value, bytes):
        return f"bytes, {counted(len(value), 'byte')}."
    if isinstance(value, (list, tuple)):
        return ListShape(value).description()
    if isinstance(value, dict):
        return f"a dict of {counted(len(value), 'item')}{key_names(value)}."
    return f"a {type(value).__name__}."


def describe_text(
    chars: int, lines: int, sample: str, structure: str | None = None, *, about: bool = False
) -> str:
    """Describe a text from its beginning, or from its `structure` if already known."""
    if not chars:
        return "an empty str: everything you need is in the query."
    in_lines = f"{'about ' if about else ''}{counted(lines, 'line')}"
    size = f"a str of {counted(chars, 'character')} in {in_lines}"
    if lines > 1:
        size += f", {chars / lines:,.0f} on average"
    if structure is None:
        structure = format_of(sample, whole=chars <= len(sample))
    return f"{size}{structure}."


def _about_lines(text: str) -> int:
    """Estimate the number of lines from samples: counting a gigabyte takes a second."""
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
        if isinstance(item, dict) and self.count < MAX_ROWS:
            self._keys.update(dict.fromkeys(item))
        self.count += 1
        self._kinds[type(item).__name__] += 1
        if isinstance(item, str):
            shortest, longest, chars = self._text_chars or (len(item), 0, 0)
            size = len(item)
            self._text_chars = [min(shortest, size), max(longest, size), chars + size]

    def description(self) -> str:
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
