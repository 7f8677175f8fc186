"""SQLite over a database file, or over CSV files without DuckDB. It runs only in a limited process.

SQLite's authorizer allows reading and nothing else: no PRAGMA, no ATTACH, no extension, no
virtual table that opens a file. A database is opened read-only.
"""

import csv
import re
import sqlite3
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rlm.data.csv_form import CsvForm, csv_form, csv_rows, wrong_width
from rlm.data.results import Answer, QueryError, error_answer, rows_answer

__all__ = ["LiteTables", "open_tables"]

MAX_COLUMNS = 2_000
MAX_VALUE_BYTES = 64 << 20
MAX_SQL_DEPTH = 200
INSERTED_AT_ONCE = 1_000
HIDDEN = 1
"""The mark in `table_xinfo` of a column that `select *` leaves out."""
SHARES_WAL = 2
"""The mark in the header of a file that is written through a WAL file beside it."""

_NUMBER = re.compile(r"-?(0|[1-9]\d{0,14})(\.\d{1,15})?")
"""A text that a number can replace: no leading zeros, no exponent, not too many digits."""

_ALLOWED = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}
_FORBIDDEN_FUNCTIONS = frozenset(
    {"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"}
)


def open_tables(tables: list[dict[str, str]], max_bytes: int) -> "LiteTables":
    """Open tables: dicts with `name`, `path` and `form`."""
    return LiteTables(tables, max_bytes)


class LiteTables:
    """A database that can only be read, with all its limits set."""

    def __init__(self, tables: list[dict[str, str]], max_bytes: int) -> None:
        self._problem = ""
        self._name = tables[0]["path"].rpartition("/")[2]
        try:
            if tables[0]["form"] == "sqlite":
                self._connection = _opened(tables[0]["path"])
            else:
                self._connection = sqlite3.connect(":memory:")
                for table in tables:
                    _copy_csv(self._connection, **table)
            self._references = self._found()
            self._lock(max_bytes)
        except (sqlite3.Error, OSError, csv.Error, UnicodeDecodeError, QueryError) as error:
            self._problem = f"{self._name}: {error}"

    def _found(self) -> dict[str, str]:
        found = self._connection.execute(
            "select name from sqlite_master where type in ('table', 'view') "
            "and name not like 'sqlite\\_%' escape '\\' order by name"
        )
        return {name: _quoted(name) for (name,) in found}

    def _lock(self, max_bytes: int) -> None:
        connection = self._connection
        connection.execute("pragma query_only = on")
        connection.execute("pragma trusted_schema = off")
        connection.execute("pragma temp_store = memory")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(MAX_VALUE_BYTES, max_bytes))
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, MAX_SQL_DEPTH)
        connection.setlimit(sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 0)
        connection.set_authorizer(_authorized)

    # -- what the host calls -------------------------------------------------------------------

    def schema(self) -> dict[str, Any]:
        """Return the version, and the columns and types of each table; or the problem."""
        if self._problem:
            return {"error": " ".join(self._problem.split())}
        tables, left_out = [], {}
        for name, reference in self._references.items():
            try:
                self._connection.execute(f"select * from {reference} limit 0")
                columns, types = self._columns(reference)
            except sqlite3.Error as error:  # A view of missing tables, or a virtual table.
                left_out[name] = str(error)
                continue
            described = {"name": name, "reference": reference}
            tables.append({**described, "columns": columns, "types": types})
        engine = f"SQLite {sqlite3.sqlite_version}"
        return {"engine": engine, "tables": tables, "left_out": left_out}

    def _columns(self, reference: str) -> tuple[list[str], list[str]]:
        """Return the names and types of columns, including generated columns."""
        self._connection.set_authorizer(None)
        try:
            found = self._connection.execute(f"pragma table_xinfo({reference})").fetchall()
        finally:
            self._connection.set_authorizer(_authorized)
        found = [row for row in found if row[6] != HIDDEN]
        return [row[1] for row in found], [row[2] or "ANY" for row in found]

    def count(self, name: str) -> dict[str, Any]:
        """Return the number of rows of a table."""
        try:
            found = self._connection.execute(f"select count(*) from {self._references[name]}")
            return {"rows": found.fetchone()[0]}
        except sqlite3.Error as error:
            return {"error": f"{self._name}: {error}"}

    def statistics(self, name: str, columns: list[str], most_rows: int) -> dict[str, list[Any]]:
        """Return nothing: in SQLite, values have types, so statistics of a column mean little."""
        return {}

    def query(self, sql: str, parameters: list[Any], max_rows: int, max_bytes: int) -> Answer:
        """Answer one SELECT; anything else, and any error, is an answer that says so."""
        try:
            cursor = self._connection.execute(sql, parameters)
            if cursor.description is None:
                raise QueryError("only SELECT is allowed here: the data is read-only")
            columns = [each[0] for each in cursor.description]
            types = [""] * len(columns)
            return rows_answer(columns, types, cursor.fetchmany, max_rows, max_bytes)
        except (sqlite3.Error, sqlite3.Warning, QueryError, OverflowError, ValueError) as error:
            if "not authorized" in str(error) or "prohibited" in str(error):
                error = QueryError(f"{error}: only SELECT is allowed here; the data is read-only")
            return error_answer(error)


def _authorized(action: int, first: str | None, second: str | None, *_: Any) -> int:
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _FORBIDDEN_FUNCTIONS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _opened(path: str) -> sqlite3.Connection:
    """Open a database read-only.

    A database in WAL mode can't be read without writing to a third file, unless its WAL file is
    missing or empty: then nothing is pending, and the database is read as immutable.
    """
    with Path(path).open("rb") as file:
        header = file.read(20)
    how = "mode=ro"
    pending = Path(f"{path}-wal")
    if header[18:20] == bytes((SHARES_WAL, SHARES_WAL)):
        if pending.exists() and pending.stat().st_size:
            raise QueryError(
                "another program is writing to it: close that program, or run "
                "`pragma wal_checkpoint(truncate)` there"
            )
        how += "&immutable=1"
    connection = sqlite3.connect(f"file:{quote(path)}?{how}", uri=True)
    connection.text_factory = lambda value: value.decode("utf-8", "replace")
    return connection


# -- CSV files ------------------------------------------------------------------------------------


def _copy_csv(connection: sqlite3.Connection, name: str, path: str, form: str) -> None:
    """Copy a CSV file into the database; a column with only numbers becomes numeric."""
    found = csv_form(path, form)
    header = next((row for _, row in csv_rows(path, found)), None)
    if not header:
        raise QueryError("the header is missing")
    if len(header) > MAX_COLUMNS:
        raise QueryError(f"it has {len(header):,} columns; SQLite allows at most {MAX_COLUMNS:,}")
    columns, kinds = _distinct(header), ["numeric"] * len(header)
    for row in _checked(path, found, len(columns)):
        for place, value in enumerate(row):
            if kinds[place] == "numeric" and value is not None and not _NUMBER.fullmatch(value):
                kinds[place] = "text"
    listed = ", ".join(f"{_quoted(c)} {kind}" for c, kind in zip(columns, kinds, strict=True))
    connection.execute(f"create table {_quoted(name)} ({listed})")
    marks = ", ".join("?" * len(columns))
    insert = f"insert into {_quoted(name)} values ({marks})"
    for batch in _batches(_checked(path, found, len(columns))):
        connection.executemany(insert, batch)
    connection.commit()


def _checked(path: str, form: CsvForm, width: int) -> Iterator[list[str | None]]:
    """Yield the rows after the header."""
    for line, row in islice(csv_rows(path, form), 1, None):
        if len(row) != width:
            raise QueryError(wrong_width(line, row, width))
        yield [value if value != "" else None for value in row]


def _batches(rows: Iterator[list[str | None]]) -> Iterator[list[list[str | None]]]:
    batch: list[list[str | None]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == INSERTED_AT_ONCE:
            yield batch
            batch = []
    yield batch


def _distinct(header: list[str]) -> list[str]:
    """Return the names of columns; empty and repeated names get a number."""
    names: list[str] = []
    known: Callable[[str], bool] = lambda name: name.casefold() in {n.casefold() for n in names}  # noqa: E731
    for number, given in enumerate(header, 1):
        name = given.strip() or f"column_{number}"
        names.append(f"{name}_{number}" if known(name) else name)
    return names


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
