"""Tables in files and frames, queried with SQL in a limited process."""

import asyncio
import hashlib
import importlib.util
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlm._util.distribution import install_command
from rlm._util.limited import JobLimits, Jobs, JobStopped, LimitedObject
from rlm.data.describing import SAMPLE_CHARS, described_tables, sample_text
from rlm.data.files import TableFile, check_unchanged, table_in_parts
from rlm.data.frames import TemporaryTable, is_frame
from rlm.data.given import GivenTables
from rlm.data.places.addresses import Fetched, Place
from rlm.data.requests import read_off_loop
from rlm.data.results import error_in
from rlm.data.source import DataRefused, QueryLimits
from rlm.errors import ConfigError

__all__ = ["TableSource", "open_tables"]

MAX_TABLES = 200
STATED_ROWS = 200_000
"""The statistics of a longer table cover only its first rows."""
STATISTICS_SECONDS = 10.0
MAX_STATED_TABLES = 20
PREVIEW_ROWS = 2
OUTPUT_BYTES = 64 << 20

_ADDRESS_SPACE = 2
"""A factor for the memory of the database: its process also has threads, a heap and maps."""
_DUCKDB_BYTES = 512 << 20
"""Further address space for DuckDB, whose allocator reserves far more than it uses."""

_duck = Jobs("rlm.data.duck", JobLimits(output_bytes=OUTPUT_BYTES), ready=0)
_lite = Jobs("rlm.data.lite", JobLimits(output_bytes=OUTPUT_BYTES), ready=0)


def open_tables(given: GivenTables, limits: QueryLimits | None = None) -> "TableSource":
    """Open tables and describe them; ConfigError if one can't be read. Blocking."""
    if len(given.by_name) > MAX_TABLES:
        raise ConfigError(f"at most {MAX_TABLES} tables at once, not {len(given.by_name)}")
    temporary = {
        name: TemporaryTable(value) for name, value in given.by_name.items() if is_frame(value)
    }
    files = {
        name: table_in_parts([temporary[name].path] if name in temporary else _paths(value))
        for name, value in given.by_name.items()
    }
    return TableSource(files, temporary, limits or QueryLimits())


def _paths(value: Any) -> Sequence[Path]:
    """Return the files of one table, fetched if they are elsewhere."""
    if isinstance(value, Path):
        return [value]
    if isinstance(value, Place):
        from rlm.data.places import fetch

        value = fetch(value)
    paths: tuple[Path, ...] = value.paths if isinstance(value, Fetched) else value
    return paths


class TableSource:
    """Tables for `ctx.sql`. Implements `rlm.data.source.DataSource`."""

    def __init__(
        self,
        files: dict[str, TableFile],
        temporary: dict[str, TemporaryTable],
        limits: QueryLimits,
    ) -> None:
        self._files = files
        self._temporary = temporary
        self._limits = limits
        self._process = self._started()
        found = self._asked("schema")
        self._tables: list[dict[str, Any]] = found["tables"]
        if not self._tables:
            why = "; ".join(map(str, found["left_out"].values()))[:300]
            raise ConfigError(f"{self._named} has no tables{why and f' that can be read: {why}'}")
        for number, table in enumerate(self._tables):
            self._measure(table, with_statistics=number < MAX_STATED_TABLES)
        self._sample = self._first_rows()
        self.id = self._digest()
        note = f"; for more, {install_command('tables')}" if self._is_makeshift else ""
        self.engine = found["engine"]
        self.description = described_tables(
            self._tables, f"{self.engine}{note}", limits, found["left_out"]
        )
        self.manifest: dict[str, Any] = {
            "source": "tables",
            "id": self.id,
            "engine": self.engine,
            "tables": [
                {name: table[name] for name in ("name", "reference", "columns", "types", "rows")}
                for table in self._tables
            ],
        }

    @property
    def spec(self) -> dict[str, Any] | None:
        """The files, by absolute paths; None if there are frames, which exist only in a program."""
        if self._temporary:
            return None
        files = {name: f.paths if f.more else f.path for name, f in self._files.items()}
        return {"source": "tables", "files": files}

    def preview(self, chars: int) -> str:
        """Return the first rows of as many tables as fit; they were read before."""
        return self._sample[:chars]

    async def answer(self, method: str, arguments: dict[str, Any]) -> str:
        """Answer `sql` and `rows` of a cell."""
        sql, parameters = await read_off_loop(method, arguments, self._tables, self._limits)
        try:
            await asyncio.to_thread(self._check_files)
            answer: str = await self._process.acall(
                *("query", sql, parameters, self._limits.rows, self._limits.bytes),
                seconds=self._limits.seconds,
            )
            await asyncio.to_thread(self._check_files)  # It may have changed during the query.
        except ConfigError as error:
            raise DataRefused(str(error)) from None
        except JobStopped as stopped:
            raise DataRefused(self._why(stopped)) from None
        if (problem := error_in(answer)) is not None:
            raise DataRefused(problem)
        return answer

    def close(self) -> None:
        """End the process; the next query starts another."""
        self._process.close()

    # -- the process ---------------------------------------------------------------------------

    def _started(self) -> LimitedObject:
        formats = {file.format for file in self._files.values()}
        if formats & {"sqlite", "duckdb"} and len(self._files) > 1:
            raise ConfigError("a database file already contains tables: pass it alone")
        listed = [
            {"name": name, "path": file.paths if file.more else file.path, "form": file.format}
            for name, file in self._files.items()
        ]
        space = _ADDRESS_SPACE * self._limits.memory_bytes
        limits = JobLimits(self._limits.seconds, space, OUTPUT_BYTES)
        has_duckdb = importlib.util.find_spec("duckdb") is not None
        self._is_makeshift = False
        if formats == {"sqlite"}:
            return LimitedObject(_lite, "open_tables", listed, self._limits.bytes, limits=limits)
        if has_duckdb:
            memory, threads = self._limits.memory_bytes, self._limits.threads
            confined = [path for file in self._files.values() for path in file.paths]
            limits = replace(limits, memory_bytes=space + _DUCKDB_BYTES)
            return LimitedObject(
                *(_duck, "open_tables", listed, memory, threads, confined), limits=limits
            )
        needs = next((f for f in self._files.values() if f.format in ("parquet", "duckdb")), None)
        if needs is not None:
            raise ConfigError(f"to query {needs.name!r}, {install_command('tables')}")
        self._is_makeshift = True
        return LimitedObject(_lite, "open_tables", listed, self._limits.bytes, limits=limits)

    def _asked(self, method: str, *arguments: Any) -> dict[str, Any]:
        """Ask the process while tables are opened; its problems become ConfigErrors."""
        try:
            found: dict[str, Any] = self._process.call(method, *arguments)
        except JobStopped as stopped:
            raise ConfigError(f"{self._named} can't be opened: {self._why(stopped)}") from None
        if "error" in found:
            raise ConfigError(f"{self._named} can't be read: {found['error'][:300]}")
        return found

    def _measure(self, table: dict[str, Any], *, with_statistics: bool) -> None:
        """Add the number of rows and statistics of columns, if they are found in time."""
        table["rows"], table["statistics"] = None, {}
        try:
            found = self._process.call("count", table["name"])
            if "error" in found:
                raise ConfigError(f"{self._named} can't be read: {found['error'][:300]}")
            table["rows"] = found["rows"]
            if with_statistics:
                given = table["name"], table["columns"], STATED_ROWS
                table["statistics"] = self._process.call(
                    "statistics", *given, seconds=STATISTICS_SECONDS
                )
        except JobStopped:
            return  # The table is too large; queries may need less of it.

    def _first_rows(self) -> str:
        parts: list[str] = []
        limits = self._limits
        for table in self._tables[:MAX_STATED_TABLES]:
            sql = f"select * from {table['reference']} limit {PREVIEW_ROWS}"
            try:
                found = json.loads(self._process.call("query", sql, [], limits.rows, limits.bytes))
            except JobStopped:
                continue
            if "error" not in found:
                rows = found["rows"]
                parts.append(sample_text(table["name"], found["columns"], rows, SAMPLE_CHARS))
        return "\n".join(parts)[:SAMPLE_CHARS]

    def _why(self, stopped: JobStopped) -> str:
        limits = self._limits
        if stopped.reason == "time":
            return (
                f"the query took more than {limits.seconds:g} s: ask for less, or count and "
                "group in SQL"
            )
        if stopped.reason in ("memory", "output"):
            return (
                f"the query needs more than {limits.memory_bytes >> 20:,} MiB of memory: ask for "
                "less data at once"
            )
        words = " ".join(str(stopped).partition(": ")[2].split())
        return f"the query failed: {words[:300]}; ask for less data at once"

    def _check_files(self) -> None:
        for file in self._files.values():
            check_unchanged(file)

    @property
    def _named(self) -> str:
        names = [
            "the frame" if name in self._temporary else repr(file.name)
            for name, file in self._files.items()
        ]
        return ", ".join(names[:3]) + (" and others" if len(names) > 3 else "")

    def _digest(self) -> str:
        digest = hashlib.sha256()
        for name, file in self._files.items():
            digest.update(json.dumps([name, file.format, file.digest()]).encode())
        return digest.hexdigest()
