"""DuckDB over exactly the given files. It runs only in a limited process.

The database is in memory, and all access to the outside is switched off before the first query:
other files, extensions, settings. Where it can, the kernel refuses other files too.
"""

import contextlib
import importlib
import re
import sys
from pathlib import Path
from typing import Any

from rlm.data.csv_form import CsvForm, csv_form, wrong_row
from rlm.data.results import Answer, QueryError, error_answer, rows_answer

__all__ = ["DuckTables", "open_tables", "preload"]

MAX_STATED_COLUMNS = 60
"""Statistics of more columns take too long, and no description would show them."""

_SETTINGS = {
    "allow_community_extensions": "false",
    "allow_unsigned_extensions": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "async_threads": "1",
    "python_enable_replacements": "false",
    "temp_directory": "",
}
_SNIFFED_WHOLE_BYTES = 64 << 20
_SNIFFED_ROWS = 200_000
_EMPTY = "(empty)"
_OWN_COLUMNS = "hive_partitioning=false"
"""Otherwise a folder named `month=04` replaces the column `month` of the files below it."""
_FOLDER_COLUMNS = "hive_partitioning=true, hive_types_autocast=false"
_NAMED_FOLDER = re.compile(r"(?<=/)([^/=]+)=[^/]*(?=/)")
_STATISTICS = "select column_name, min, max, approx_unique, null_percentage from (summarize {rows})"
_DATABASE = "given"


def preload() -> None:
    """Load the library before processes are forked; open nothing, so that no thread starts."""
    importlib.import_module("duckdb")
    with contextlib.suppress(ImportError):
        importlib.import_module("pytz").timezone("UTC")  # DuckDB needs it for times with a zone.


def open_tables(
    tables: list[dict[str, Any]], memory_bytes: int, threads: int, confined: list[str]
) -> "DuckTables":
    """Open tables: dicts with `name`, `path` (one, or a list) and `form`.

    `confined` are the files they need.
    """
    return DuckTables(tables, memory_bytes, threads, confined)


class DuckTables:
    """A locked database with a view of each file, or with the tables of one DuckDB file."""

    def __init__(
        self, tables: list[dict[str, Any]], memory_bytes: int, threads: int, confined: list[str]
    ) -> None:
        duckdb = self._duckdb = importlib.import_module("duckdb")
        paths = [path for each in tables for path in _paths(each["path"])]
        self._names = {path: path.rpartition("/")[2] for path in paths}
        self._references: dict[str, str] = {}
        self._csv: dict[str, CsvForm] = {}
        self._problem = ""
        settings = {**_SETTINGS, "memory_limit": f"{memory_bytes >> 20}MiB", "threads": threads}
        self._connection = duckdb.connect(":memory:", config=settings)
        try:
            for table in tables:
                self._add(**table)
            self._lock(confined)
        except duckdb.Error as error:
            self._problem = self._why_unreadable(error)

    def _add(self, name: str, path: str | list[str], form: str) -> None:
        if form == "parquet":
            self._add_view(name, self._parquet_reader(_paths(path)))
            return
        assert isinstance(path, str)
        if form == "duckdb":
            self._connection.execute(f"attach {_text(path)} as {_DATABASE} (read_only)")
            self._connection.execute(f"use {_DATABASE}")
            self._find_tables()
            return
        self._add_view(name, self._csv_reader(path, form))

    def _add_view(self, name: str, reader: str) -> None:
        reference = _quoted(name)
        self._connection.execute(f"create view {reference} as select * from {reader}")
        self._references[name] = reference

    def _parquet_reader(self, paths: list[str]) -> str:
        """Return SQL to read all parts; `month=04` folders are columns if no file has them."""
        found = [set(_NAMED_FOLDER.findall(path)) for path in paths]
        options = _OWN_COLUMNS
        if len(paths) > 1 and found[0] and all(each == found[0] for each in found):
            own = self._connection.execute(f"select name from parquet_schema({_text(paths[0])})")
            if found[0].isdisjoint(name for (name,) in own.fetchall()):
                options = _FOLDER_COLUMNS
        return f"read_parquet([{', '.join(map(_text, paths))}], {options})"

    def _csv_reader(self, path: str, form: str) -> str:
        """Find the form of a CSV file once; DuckDB would do so again for every query."""
        whole = Path(path).stat().st_size <= _SNIFFED_WHOLE_BYTES
        rows = -1 if whole else _SNIFFED_ROWS
        # By itself, DuckDB reads a file with one wrong row as a file of one column, or skips all
        # rows before the wrong one.
        found = self._csv[path] = csv_form(path, form)
        given = f"delim={_text(found.delimiter)}, skip={found.skip}"
        sniffed = self._connection.execute(
            "select Quote, Escape, HasHeader, Columns, DateFormat, TimestampFormat from "
            f"sniff_csv({_text(path)}, sample_size={rows}, {given})"
        ).fetchone()
        quote, escape, header, columns, dates, times = sniffed
        options = [
            _text(path),
            "auto_detect=false",
            given,
            # A sample without quotes says nothing about the rest.
            f"quote={_text(_given(quote))}",
            f"escape={_text(_given(escape))}",
            f"header={'true' if header else 'false'}",
            *([f"dateformat={_text(dates)}"] if dates else []),
            *([f"timestampformat={_text(times)}"] if times else []),
            "columns={"
            + ", ".join(f"{_text(c['name'])}: {_text(c['type'])}" for c in columns)
            + "}",
            _OWN_COLUMNS,
        ]
        return f"read_csv({', '.join(options)})"

    def _lock(self, confined: list[str]) -> None:
        paths = ", ".join(map(_text, confined))
        for statement in (
            "set TimeZone = 'UTC'",
            f"set allowed_paths = [{paths}]",
            "set enable_external_access = false",
            "set lock_configuration = true",
        ):
            self._connection.execute(statement)
        if sys.platform == "linux":
            from rlm.worker.sandbox import landlock

            with contextlib.suppress(OSError):  # Some kernels have no Landlock.
                landlock.restrict(readable=[*confined, "/proc/self", "/sys", "/dev/urandom"])

    def _find_tables(self) -> None:
        found = self._connection.execute(
            "select table_schema, table_name from information_schema.tables "
            f"where table_catalog = '{_DATABASE}' order by all"
        ).fetchall()
        for schema, name in found:
            if schema == "main":
                self._references[name] = _quoted(name)
            else:
                self._references[f"{schema}.{name}"] = f"{_quoted(schema)}.{_quoted(name)}"

    # -- what the host calls -------------------------------------------------------------------

    def schema(self) -> dict[str, Any]:
        """Return the version, and the columns and types of each table; or the problem.

        A view whose tables are gone is left out, and listed with the reason.
        """
        if self._problem:
            return {"error": self._problem}
        tables, left_out = [], {}
        for name, reference in self._references.items():
            try:
                found = self._connection.execute(f"describe select * from {reference}").fetchall()
            except self._duckdb.Error as error:
                left_out[name] = self._words(error)
                continue
            columns, types = [row[0] for row in found], [row[1] for row in found]
            described = {"name": name, "reference": reference}
            tables.append({**described, "columns": columns, "types": types})
        engine = f"DuckDB {self._duckdb.__version__}"
        return {"engine": engine, "tables": tables, "left_out": left_out}

    def count(self, name: str) -> dict[str, Any]:
        """Return the number of rows; reads a whole CSV file, so that its errors show."""
        reference = self._references[name]
        try:
            (found,) = self._connection.execute(f"select count(*) from {reference}").fetchall()
        except self._duckdb.Error as error:
            return {"error": self._why_unreadable(error)}
        return {"rows": found[0]}

    def statistics(self, name: str, columns: list[str], most_rows: int) -> dict[str, list[Any]]:
        """Return minimum, maximum, distinct values and the share of nulls, by column."""
        listed = ", ".join(map(_quoted, columns[:MAX_STATED_COLUMNS]))
        rows = f"select {listed} from {self._references[name]} limit {int(most_rows)}"
        try:
            found = self._connection.execute(_STATISTICS.format(rows=rows)).fetchall()
        except self._duckdb.Error:
            return {}
        return {
            row[0]: [row[1], row[2], row[3], float(row[4])]
            for row in found
            if all(isinstance(each, (str, type(None))) for each in row[1:3])
        }

    def query(self, sql: str, parameters: list[Any], max_rows: int, max_bytes: int) -> Answer:
        """Answer one SELECT; anything else, and any error, is an answer that says so."""
        try:
            self._connection.execute("begin transaction read only")  # EXPLAIN ANALYZE may write.
            self._check(sql)
            result = self._connection.execute(sql, parameters or None)
            columns = [each[0] for each in result.description]
            types = [str(each[1]) for each in result.description]
            return rows_answer(columns, types, result.fetchmany, max_rows, max_bytes)
        except QueryError as error:
            return error_answer(error)
        except self._duckdb.Error as error:
            return error_answer(self._words(error))
        finally:
            self._connection.interrupt()  # Otherwise DuckDB would compute the rest of a cut result.
            self._connection.rollback()

    def _check(self, sql: str) -> None:
        """Refuse anything but one SELECT; to DuckDB, SHOW, DESCRIBE and VALUES are SELECTs too."""
        statements = self._connection.extract_statements(sql)
        if len(statements) != 1:
            raise QueryError(f"one statement at a time, not {len(statements)}")
        kind = statements[0].type
        if kind not in {self._duckdb.StatementType.SELECT, self._duckdb.StatementType.EXPLAIN}:
            name = str(kind).rpartition(".")[2]
            raise QueryError(f"only SELECT is allowed here, not {name}: the data is read-only")

    def _why_unreadable(self, error: Exception) -> str:
        """Return why a table can't be opened: the wrong row of a CSV file, or DuckDB's error."""
        for path, form in self._csv.items():
            if (wrong := wrong_row(path, form)) is not None:
                return f"{self._names[path]}: {wrong}"
        return self._words(error)

    def _words(self, error: Exception) -> str:
        """Return an error in one line, without the query, and with names instead of paths."""
        text = str(error).partition("\n\nLINE ")[0]
        for path, name in self._names.items():
            text = text.replace(path, name)
        return " ".join(text.split())


def _given(mark: str) -> str:
    return '"' if mark in ("", _EMPTY) else mark


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _paths(path: str | list[str]) -> list[str]:
    return [path] if isinstance(path, str) else path


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
