"""The form of a CSV file: its delimiter, where its header is, and which row is wrong."""

import csv
import io
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from rlm._util.text import counted

__all__ = ["CsvForm", "csv_form", "csv_rows", "wrong_row", "wrong_width"]

MAX_TITLE_ROWS = 20
_SAMPLE_ROWS = 200
_SAMPLE_CHARS = 1 << 20
_DELIMITERS = (",", ";", "\t", "|")


class CsvForm(NamedTuple):
    """The form of a CSV file; the `skip` lines before the header are titles or empty."""

    delimiter: str
    skip: int


def csv_form(path: str, form: str) -> CsvForm:
    """Return the form of a file, judged by its first rows; `form` is `csv` or `tsv`.

    The delimiter is the one with which quotes make sense and most rows have the same number of
    columns. Titles have one column where the rows have several; any other row before the header
    is reported by `wrong_row`.
    """
    marks = ("\t",) if form == "tsv" else _DELIMITERS
    found = {mark: _sampled(path, mark) for mark in marks}
    delimiter = max(marks, key=lambda mark: found[mark].fitness)
    _, usual = found[delimiter].usual
    before = 0
    for width, line in found[delimiter].rows[: MAX_TITLE_ROWS + 1]:
        if width > 1 or usual <= 1:
            return CsvForm(delimiter, before)
        before = line
    return CsvForm(delimiter, 0)


def csv_rows(path: str, form: CsvForm) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows from the header on, each with the number of its last line."""
    csv.field_size_limit(sys.maxsize)
    with Path(path).open(encoding="utf-8-sig", newline="") as file:
        for _ in range(form.skip):
            file.readline()
        reader = csv.reader(file, delimiter=form.delimiter)
        for row in reader:
            if row:
                yield form.skip + reader.line_num, row


def wrong_width(line: int, row: list[str], width: int) -> str:
    """Return what is wrong with a row that has more or fewer columns than the header."""
    return f"line {line:,} has {counted(len(row), 'column')}, the header has {width}"


def wrong_row(path: str, form: CsvForm) -> str | None:
    """Return what is wrong with the first row that has more or fewer columns than the header."""
    width = 0
    try:
        for line, row in csv_rows(path, form):
            width = width or len(row)
            if len(row) != width:
                return wrong_width(line, row, width)
    except UnicodeDecodeError:
        return "it is not encoded in UTF-8: convert it, for example with iconv"
    except csv.Error as error:
        return str(error)
    return None


class _Sample(NamedTuple):
    """The first rows, read with some delimiter: the number of columns and the last line of each.

    It is well-formed if every closing quote ends a value.
    """

    rows: list[tuple[int, int]]
    is_well_formed: bool

    @property
    def usual(self) -> tuple[int, int]:
        """How many rows have the most common number of columns above one, and that number."""
        widths = Counter(width for width, _ in self.rows if width > 1)
        if not widths:
            return 0, 1
        usual, count = max(widths.items(), key=lambda each: (each[1], each[0]))
        return count, usual

    @property
    def fitness(self) -> tuple[bool, int, int]:
        return (self.is_well_formed and self.usual[1] > 1, *self.usual)


def _sampled(path: str, delimiter: str) -> _Sample:
    csv.field_size_limit(sys.maxsize)
    with Path(path).open(encoding="utf-8-sig", errors="replace", newline="") as file:
        text = file.read(_SAMPLE_CHARS)
    rows, problem = _rows_in(text, delimiter, strict=True)
    if problem is None or (len(text) == _SAMPLE_CHARS and problem.startswith("unexpected end")):
        return _Sample(rows, True)
    return _Sample(_rows_in(text, delimiter, strict=False)[0], False)


def _rows_in(
    text: str, delimiter: str, *, strict: bool
) -> tuple[list[tuple[int, int]], str | None]:
    """Return the rows of a sample, and what is wrong with it."""
    # Not `splitlines`, which treats a form feed or U+2028 in a value as a line end.
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=strict)
    rows: list[tuple[int, int]] = []
    try:
        rows.extend((len(row), reader.line_num) for row in islice(reader, _SAMPLE_ROWS))
    except csv.Error as error:
        return rows, str(error)
    return rows, None
