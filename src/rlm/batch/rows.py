"""The rows of a batch: one JSON object per line, read one at a time by position."""

import codecs
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from rlm._util.slow_numbers import decode, loads
from rlm._util.text import counted
from rlm.context import ContextValue
from rlm.data import Place, is_address, place
from rlm.errors import ConfigError

__all__ = ["BadRowsError", "Row", "RowError", "RowPosition", "Source"]

MAX_ROW_BYTES = 256 * 1024**2
TRUNCATED = "Input data was truncated"
"""What the decoder says of a line that ends too early."""

HOW_TO_WRITE = (
    "a row is a JSON object on one line, with query and, if needed, context, context_file, id, meta"
)


class RowError(ConfigError):
    """A row that can't be asked as it is: trying again would not help."""


class BadRowsError(ConfigError):
    """Rows of a file that can't be asked. `problems` has the first of them, with their lines."""

    def __init__(self, path: Path, total: int, count: int, problems: Sequence[str]) -> None:
        self.count, self.problems = count, tuple(problems)
        self.heading = (
            f"{count:,} of {counted(total, 'row')} in {path} can't be used, so none was asked"
        )
        more = [f"and {count - len(problems):,} more"] if count > len(problems) else []
        super().__init__("\n".join([f"{self.heading}:", *problems, *more]))


class Row(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a line. `meta` may be anything; it is returned with the answer."""

    query: str
    id: str | int | None = None
    context: Any = UNSET
    context_file: str | list[str] | UnsetType = UNSET
    meta: Any = None

    def context_in(self, folder: Path) -> ContextValue:
        """Return the context, or its files: paths relative to `folder`, and places elsewhere."""
        if self.context_file is UNSET:
            return None if self.context is UNSET else self.context
        if isinstance(self.context_file, str):
            return _file(self.context_file, folder)
        return [_file(name, folder) for name in self.context_file]

    @property
    def file_names(self) -> list[str]:
        """The files of the context, as the row names them."""
        if self.context_file is UNSET:
            return []
        return [self.context_file] if isinstance(self.context_file, str) else self.context_file

    def with_own_names(self, text: str, folder: Path) -> str:
        """Return a message in which the files have the names that the row gives them."""
        for name in self.file_names:
            text = text.replace(str(_file(name, folder)), name)
        return text


class RowPosition(Struct, frozen=True):
    """Where a row is: its number from 0, its line from 1, its bytes, and their digest."""

    number: int
    line: int
    offset: int
    size: int
    digest: str


class Source:
    """A file of rows. Only the positions in use are in memory."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise ConfigError(
                f"{path} is not a file; a batch needs one, to read its rows again when it continues"
            )
        self.path = path
        with path.open("rb") as file:
            if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
                raise ConfigError(f"{path} is encoded in UTF-16; save it as UTF-8")

    def positions(self) -> Iterator[RowPosition]:
        """Yield the position of every line that is not empty, in order."""
        number = offset = line = 0
        with self.path.open("rb") as file:
            if file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8:
                offset = len(codecs.BOM_UTF8)
            file.seek(offset)
            while text := file.readline(MAX_ROW_BYTES):
                line += 1
                size, digest = len(text), hashlib.sha256(text.strip()).hexdigest()[:16]
                is_blank = not text.strip()
                while not text.endswith(b"\n") and (text := file.readline(MAX_ROW_BYTES)):
                    size += len(text)  # too large to be asked; skip to its end
                if not is_blank:
                    yield RowPosition(number, line, offset, size, digest)
                    number += 1
                offset += size

    def row(self, position: RowPosition) -> Row:
        """Return the row at a position; raise RowError, with the reason, if it is invalid."""
        if position.size > MAX_ROW_BYTES:
            raise RowError(
                f"line {position.line} is larger than {MAX_ROW_BYTES:,} bytes: put its context "
                "into a file, and name that as context_file"
            )
        with self.path.open("rb") as file:
            file.seek(position.offset)
            text = file.read(position.size)
        try:
            row = _decoded(text)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            what = "the row is not complete JSON" if str(error) == TRUNCATED else error
            raise RowError(f"line {position.line}: {what}; {HOW_TO_WRITE}") from error
        if not row.query.strip():
            raise RowError(f"line {position.line}: the query is empty")
        if row.context is not UNSET and row.context_file is not UNSET:
            raise RowError(f"line {position.line}: give context or context_file, not both")
        if "" in row.file_names:
            raise RowError(f"line {position.line}: context_file: the name is empty")
        return row

    def problem(self, position: RowPosition) -> str | None:
        """Return why a row can't be asked, as far as is known in advance; None if it can."""
        try:
            row = self.row(position)
        except RowError as error:
            return str(error)
        folder = self.path.absolute().parent
        for name in row.file_names:
            try:
                if isinstance(file := _file(name, folder), Path):
                    file.stat()  # a place elsewhere is only fetched when its row is asked
            except ConfigError as error:
                return f"line {position.line}: {error}"
            except (OSError, ValueError) as error:
                why = error.strerror if isinstance(error, OSError) else error
                return f"line {position.line}: context_file {name}: {why}"
        return None


def _file(name: str, folder: Path) -> Path | Place:
    return place(name) if is_address(name) else folder / name


def _decoded(text: bytes) -> Row:
    """Decode a line; a context may contain half a surrogate pair, as found data does."""
    try:
        return decode(text, Row)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        if b"\\ud" not in text.lower():
            raise
    row = msgspec.convert(loads(text, standard=True), type=Row)
    try:
        msgspec.json.encode(msgspec.structs.replace(row, context=UNSET))
    except UnicodeEncodeError:
        raise ValueError("only a context may contain an unpaired surrogate") from None
    return row
