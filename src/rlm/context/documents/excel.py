"""Text of Excel workbooks: each sheet as a table of the values that its cells show or compute."""

import importlib
import itertools
import re
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time, timedelta
from typing import Any, BinaryIO

from rlm.context.documents.archive import Archive
from rlm.context.documents.tables import sparse_table

__all__ = ["Row", "in_words", "joined", "sheet_text", "text_of"]

_FORMULA = re.compile(rb"<(?:\w+:)?f[\s>/]")
Row = dict[int, str]


def text_of(file: BinaryIO) -> str:
    """Return the text of a workbook."""
    archive = Archive(file)
    openpyxl = importlib.import_module("openpyxl")
    values = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
    formulas = None
    if _has_formulas(archive):
        formulas = openpyxl.load_workbook(file, read_only=True, keep_links=False)
    texts = []
    for sheet in values.worksheets:
        source = formulas[sheet.title] if formulas is not None else None
        hidden = sheet.sheet_state != "visible"
        texts.append(sheet_text(sheet.title, _rows(sheet, source), hidden=hidden))
    return joined(texts)


def joined(sheets: Iterable[str]) -> str:
    """Return the sheets of a workbook; nothing if all are empty."""
    found = list(sheets)
    return "\n\n".join(found) if any("\n" in each for each in found) else ""


def sheet_text(title: str, rows: Iterable[Row], *, hidden: bool) -> str:
    """Return one sheet under its name; rows and columns that are empty are left out."""
    head = f"## {' '.join(title.split())}{' (hidden)' if hidden else ''}"
    return f"{head}\n{sparse_table(rows)}".strip()


def in_words(value: Any) -> str:
    """Return a value as people write it: no time if it is midnight, no fraction if it is zero."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()
    if isinstance(value, datetime):
        return value.isoformat(" ", "microseconds" if value.microsecond else "seconds")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return str(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return "" if value is None else str(value)


def _rows(sheet: Any, source: Any) -> Iterator[Row]:
    """Yield the cells of each row by column; a formula that was never computed stays a formula."""
    sheet.reset_dimensions()  # What a file says about its size may be wrong.
    found = sheet.iter_rows(values_only=True)
    if source is None:
        for row in found:
            yield _row(row)
        return
    source.reset_dimensions()
    for row, formulas in itertools.zip_longest(
        found, source.iter_rows(values_only=True), fillvalue=()
    ):
        yield _row(row, formulas)


def _row(row: tuple[Any, ...], formulas: tuple[Any, ...] = ()) -> Row:
    cells = {}
    for column, value in enumerate(row):
        if value is None and column < len(formulas):
            value = _formula(formulas[column])
        if value is not None and (text := in_words(value)).strip():
            cells[column] = text
    return cells


def _formula(found: Any) -> str | None:
    """Return the text of a formula; those of arrays and data tables are objects."""
    text = getattr(found, "text", found)
    return text if isinstance(text, str) else None


def _has_formulas(archive: Archive) -> bool:
    """Return whether any part has an element `f`, to read the formulas only then."""
    return any(
        _FORMULA.search(archive.read(name))
        for name in archive.names
        if "worksheets/" in name.lower()
    )
