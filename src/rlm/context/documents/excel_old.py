"""Text of workbooks in the format of Excel 97, `.xls`."""

import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from rlm.context.documents import excel
from rlm.context.documents.refusing import Refused

__all__ = ["text_of"]


def text_of(file: BinaryIO) -> str:
    """Return the text of a workbook; programs also write the newer format under this name."""
    data = file.read()
    if data.startswith(b"PK"):
        file.seek(0)
        return excel.text_of(file)
    xlrd = importlib.import_module("xlrd")
    with Path(os.devnull).open("w") as nowhere:
        try:
            book = xlrd.open_workbook(file_contents=data, logfile=nowhere, ragged_rows=True)
        except xlrd.XLRDError as error:
            if "encrypted" in str(error):
                raise Refused("it is protected by a password; save it without one") from error
            raise
        return excel.joined(
            excel.sheet_text(sheet.name, _rows(xlrd, book, sheet), hidden=bool(sheet.visibility))
            for sheet in book.sheets()
        )


def _rows(xlrd: Any, book: Any, sheet: Any) -> Iterator[excel.Row]:
    for number in range(sheet.nrows):
        texts = ((column, _text(xlrd, book, cell)) for column, cell in enumerate(sheet.row(number)))
        yield {column: text for column, text in texts if text.strip()}


def _text(xlrd: Any, book: Any, cell: Any) -> str:
    if cell.ctype == xlrd.XL_CELL_DATE:
        try:
            found = xlrd.xldate.xldate_as_datetime(cell.value, book.datemode)
        except (ValueError, OverflowError):
            return excel.in_words(cell.value)
        return excel.in_words(found.time() if 0 <= cell.value < 1 else found)
    if cell.ctype == xlrd.XL_CELL_ERROR:
        return str(xlrd.error_text_from_code.get(cell.value, "#ERROR"))
    if cell.ctype == xlrd.XL_CELL_BOOLEAN:
        return excel.in_words(bool(cell.value))
    return excel.in_words(cell.value if cell.value != "" else None)
