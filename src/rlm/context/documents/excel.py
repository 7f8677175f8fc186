"""Text of Excel workbooks, old and new: each sheet as a table of its cell values."""

import importlib
import io
import itertools
import re
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time, timedelta
from typing import Any, BinaryIO

from rlm.context.documents.archive import Archive
from rlm.context.documents.formats import Refused
from rlm.context.documents.tables import sparse_table

__all__ = ["text_of"]

_FORMULA = re.compile(rb"<(?:\w+:)?f[\s>/]")
_COMPUTED = re.compile(rb"(?:</(?:\w+:)?f>|/>)\s*<(?:\w+:)?v>[^<]")
_Row = dict[int, str]


def text_of(file: BinaryIO) -> str:
    """Return the text of a workbook; its content shows the format: names are often wrong."""
    is_package = file.read(2) == b"PK"
    file.seek(0)
    sheets = list(_package_sheets(file) if is_package else _old_sheets(file.read()))
    return "\n\n".join(sheets) if any("\n" in each for each in sheets) else ""


def _sheet_text(title: str, rows: Iterable[_Row], *, hidden: bool) -> str:
    """Return one sheet under its name, without empty rows and columns."""
    head = f"## {' '.join(title.split())}{' (hidden)' if hidden else ''}"
    return f"{head}\n{sparse_table(rows)}".strip()


def _in_words(value: Any) -> str:
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


# -- .xlsx ----------------------------------------------------------------------------------------


def _package_sheets(file: BinaryIO) -> Iterator[str]:
    archive = Archive(file)
    openpyxl = importlib.import_module("openpyxl")
    values = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
    formulas = None
    if _was_never_computed(archive):
        formulas = openpyxl.load_workbook(file, read_only=True, keep_links=False)
    for sheet in values.worksheets:
        source = formulas[sheet.title] if formulas is not None else None
        hidden = sheet.sheet_state != "visible"
        yield _sheet_text(sheet.title, _rows(sheet, source), hidden=hidden)


def _rows(sheet: Any, source: Any) -> Iterator[_Row]:
    """Yield the cells of each row by column; a formula that was never computed stays a formula."""
    sheet.reset_dimensions()  # The size stated in a file may be wrong.
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


def _row(row: tuple[Any, ...], formulas: tuple[Any, ...] = ()) -> _Row:
    cells = {}
    for column, value in enumerate(row):
        if value is None and column < len(formulas):
            value = _formula(formulas[column])
        if value is not None and (text := _in_words(value)).strip():
            cells[column] = text
    return cells


def _formula(found: Any) -> str | None:
    """Return the text of a formula; array and data table formulas are objects."""
    text = getattr(found, "text", found)
    return text if isinstance(text, str) else None


def _was_never_computed(archive: Archive) -> bool:
    """Return whether formulas have no stored results: a program wrote the file, not Excel."""
    sheets = [name for name in archive.names if "worksheets/" in name.lower()]
    return any(_FORMULA.search(archive.read(name)) for name in sheets) and not any(
        _COMPUTED.search(archive.read(name)) for name in sheets
    )


# -- .xls -----------------------------------------------------------------------------------------


def _old_sheets(data: bytes) -> Iterator[str]:
    xlrd = importlib.import_module("xlrd")
    try:
        book = xlrd.open_workbook(file_contents=data, logfile=io.StringIO(), ragged_rows=True)
    except xlrd.XLRDError as error:
        if any(words in str(error) for words in ("encrypted", "Can't find workbook")):
            raise Refused("it is password-protected; save it without a password") from error
        raise
    for sheet in book.sheets():
        rows = _old_rows(xlrd, book, sheet)
        yield _sheet_text(sheet.name, rows, hidden=bool(sheet.visibility))


def _old_rows(xlrd: Any, book: Any, sheet: Any) -> Iterator[_Row]:
    for number in range(sheet.nrows):
        texts = ((column, _text(xlrd, book, cell)) for column, cell in enumerate(sheet.row(number)))
        yield {column: text for column, text in texts if text.strip()}


def _text(xlrd: Any, book: Any, cell: Any) -> str:
    if cell.ctype == xlrd.XL_CELL_DATE:
        try:
            found = xlrd.xldate.xldate_as_datetime(cell.value, book.datemode)
        except (ValueError, OverflowError):
            return _in_words(cell.value)
        return _in_words(found.time() if 0 <= cell.value < 1 else found)
    if cell.ctype == xlrd.XL_CELL_ERROR:
        return str(xlrd.error_text_from_code.get(cell.value, "#ERROR"))
    if cell.ctype == xlrd.XL_CELL_BOOLEAN:
        return _in_words(bool(cell.value))
    return _in_words(cell.value if cell.value != "" else None)
