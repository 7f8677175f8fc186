"""A PostgreSQL database, read-only: every query runs on its server, within limits.

The query becomes a subquery of ours, which turns each row into JSON and cuts it on the server. Only
a SELECT is therefore possible, and a value of a gigabyte is never sent. The transaction is
read-only, has a timeout, and is sent as one statement. URLs and passwords stay in this module.
"""

import hashlib
import importlib
import json
import threading
from typing import Any
from urllib.parse import unquote, urlsplit

from rlm._util.distribution import install_command
from rlm._util.limited import calling_on_stop, check_wanted, in_thread
from rlm.data.describing import SAMPLE_CHARS, described_tables, sample_text
from rlm.data.given import Database
from rlm.data.requests import quoted, read_off_loop
from rlm.data.results import error_answer, error_in
from rlm.data.source import DataRefused, QueryLimits
from rlm.data.sql_words import check_words
from rlm.errors import ConfigError

__all__ = ["PostgresSource"]

CONNECT_SECONDS = 10
MAX_TABLES = 500
PREVIEW_TABLES = 5
PREVIEW_ROWS = 2
_HIDDEN = "***"

_TABLES = """
select n.nspname, c.relname, c.relkind::text, greatest(c.reltuples, -1)::bigint
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = any(%s) and c.relkind = any('{r,p,v,m,f}')
  and has_table_privilege(c.oid, 'select')
order by array_position(%s, n.nspname::text), c.relname limit %s
"""
_COLUMNS = """
select n.nspname, c.relname, a.attname, format_type(a.atttypid, a.atttypmod)
from pg_catalog.pg_attribute a join pg_catalog.pg_class c on c.oid = a.attrelid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = any(%s) and a.attnum > 0 and not a.attisdropped order by a.attnum
"""


class PostgresSource:
    """The tables of the listed schemas. Implements `rlm.data.source.DataSource`."""

    def __init__(self, given: Database, limits: QueryLimits | None = None) -> None:
        self._given = given
        self._limits = limits or QueryLimits()
        self._lock = threading.Lock()
        self._connection: Any = None
        try:
            self._psycopg = importlib.import_module("psycopg")
        except ImportError as error:
            raise ConfigError(f"to query PostgreSQL, {install_command('postgres')}") from error
        try:
            with self._lock:
                self._describe()
        except self._psycopg.Error as error:
            raise ConfigError(f"the database can't be read: {self._words(error)}") from None
        self._sample = self._first_rows()
        shape = [[each[n] for n in ("name", "columns", "types")] for each in self._tables]
        digest = hashlib.sha256(json.dumps([self._place, shape]).encode())
        self.id = digest.hexdigest()
        self.description = (
            described_tables(self._tables, self.engine, self._limits)
            + " Parameters are `$1`, `$2`. The database is live: its rows may change."
        )
        self.manifest: dict[str, Any] = {
            "source": "tables",
            "id": self.id,
            "engine": self.engine,
            "tables": [
                {**{n: each[n] for n in ("name", "reference", "columns", "types")}, "rows": None}
                for each in self._tables
            ],
        }

    def __del__(self) -> None:
        if self._connection is not None:
            self._connection.close()

    @property
    def spec(self) -> dict[str, Any] | None:
        """The name of the environment variable, or the URL if it holds no password."""
        if self._given.variable is None and self._secrets(self._given.url):
            return None
        return {"source": "database", "url": self._given.url, "schemas": list(self._given.schemas)}

    def preview(self, chars: int) -> str:
        """Return the first rows of some tables, as they were when the database was opened."""
        return self._sample[:chars]

    async def answer(self, method: str, arguments: dict[str, Any]) -> str:
        """Answer `sql` and `rows` of a cell."""
        sql, parameters = await read_off_loop(method, arguments, self._tables, self._limits)
        check_words(sql, self._given.schemas, self._all_schemas)
        answer = await in_thread(self._query, sql, parameters)
        if (problem := error_in(answer)) is not None:
            raise DataRefused(problem)
        return answer

    def close(self) -> None:
        """Close the connection; the next query opens another."""
        with self._lock:
            self._disconnect()

    # -- the connection ------------------------------------------------------------------------

    def _connected(self) -> Any:
        """Return the connection, whose transactions are all read-only and limited in time."""
        if self._connection is not None and not self._connection.closed:
            return self._connection
        url, limits = self._given.resolved(), self._limits
        milliseconds = round(limits.seconds * 1000)
        self._connection = self._psycopg.connect(
            url,
            autocommit=True,
            prepare_threshold=None,
            connect_timeout=CONNECT_SECONDS,
            tcp_user_timeout=milliseconds + 10_000,
            application_name="rlm",
        )
        self._connection.read_only = True  # Applies to every transaction.
        for name, value in (
            ("default_transaction_read_only", "on"),
            ("statement_timeout", str(milliseconds)),
            ("lock_timeout", str(min(milliseconds, 5_000))),
            ("idle_in_transaction_session_timeout", str(2 * milliseconds)),
            ("standard_conforming_strings", "on"),
            ("search_path", ", ".join(map(quoted, self._given.schemas))),
            ("max_parallel_workers_per_gather", "0"),
        ):
            self._connection.execute("select set_config(%s, %s, false)", (name, value))
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _describe(self) -> None:
        schemas = list(self._given.schemas)
        connection = self._connected()
        version = connection.execute("show server_version").fetchone()[0].split()[0]
        self.engine = f"PostgreSQL {version}"
        found = connection.execute("select nspname from pg_catalog.pg_namespace").fetchall()
        self._all_schemas = frozenset(name for (name,) in found)
        if missing := [name for name in schemas if name not in self._all_schemas]:
            raise ConfigError(f"the database has no schema {missing[0]!r}")
        columns: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for schema, table, name, kind in connection.execute(_COLUMNS, (schemas,)):
            columns.setdefault((schema, table), []).append((name, kind))
        listed = connection.execute(_TABLES, (schemas, schemas, MAX_TABLES)).fetchall()
        self._tables = _tables(listed, columns)
        if not self._tables:
            raise ConfigError(
                f"no readable tables in {', '.join(schemas)}; pass schemas=[…], or grant "
                "SELECT to the role"
            )

    def _first_rows(self) -> str:
        parts = []
        for table in self._tables[:PREVIEW_TABLES]:
            answer = self._query(f"select * from {table['reference']} limit {PREVIEW_ROWS}", [])
            if error_in(answer) is None:
                found = json.loads(answer)
                rows = found["rows"]
                parts.append(sample_text(table["name"], found["columns"], rows, SAMPLE_CHARS))
        return "\n".join(parts)[:SAMPLE_CHARS]

    # -- queries -------------------------------------------------------------------------------

    def _query(self, sql: str, parameters: list[Any]) -> str:
        """Answer one SELECT in its own transaction; any error is an answer. Blocking."""
        with self._lock:
            check_wanted()
            try:
                connection = self._connected()
                with calling_on_stop(connection.cancel), connection.transaction():
                    return self._selected(connection, sql, parameters)
            except self._psycopg.errors.QueryCanceled:
                return error_answer(
                    f"the query took more than {self._limits.seconds:g} s: ask for less, or count "
                    "and group in SQL"
                )
            except self._psycopg.Error as error:
                words = self._words(error)
                if self._connection is None or self._connection.closed:
                    self._disconnect()
                    words = f"the connection was lost: {words}"
                return error_answer(words)

    def _selected(self, connection: Any, sql: str, parameters: list[Any]) -> str:
        """Return the rows of a query; each comes as JSON, cut by the server."""
        limits = self._limits
        subquery = f"({sql.rstrip().removesuffix(';')}\n) as q"
        with self._psycopg.RawCursor(connection) as cursor:
            # Prepared, so that the server accepts only one statement.
            cursor.execute(f"select q.* from {subquery} limit 0", parameters, prepare=True)
            columns = [each.name for each in cursor.description]
            types = [each.type_display for each in cursor.description]
            names = ", ".join(f"c{number}" for number in range(len(columns)))  # unique names
            asked = (
                f"select left(row_to_json(q)::text, {limits.bytes + 1}) from {subquery} ({names}) "
                f"limit {limits.rows + 1}"
            )
            rows: list[str] = []
            size, is_cut = 0, False
            for (row,) in cursor.stream(asked, parameters):
                size += len(row.encode())
                is_cut = len(rows) >= limits.rows or size > limits.bytes
                if is_cut:
                    break
                rows.append(json.dumps(list(json.loads(row).values()), ensure_ascii=False))
        if is_cut and not rows:
            return error_answer(
                f"one row has more than {limits.bytes:,} bytes: select fewer columns, or part of a "
                "long text, such as left(text, 1000)"
            )
        told = json.dumps({"columns": columns, "types": types, "is_cut": is_cut})
        return f'{told[:-1]}, "rows": [{",".join(rows)}]}}'

    # -- words ---------------------------------------------------------------------------------

    @property
    def _place(self) -> list[str]:
        """Where the database is, without user and password."""
        parts = urlsplit(self._given.resolved())
        return [parts.hostname or "", parts.path, *self._given.schemas]

    def _words(self, error: Exception) -> str:
        """Return an error in one line, without secret parts of the URL."""
        diagnosis = getattr(error, "diag", None)
        text = getattr(diagnosis, "message_primary", None) or str(error)
        if hint := getattr(diagnosis, "message_hint", None):
            text = f"{text} ({hint})"
        for secret in self._secrets(self._given.resolved()):
            text = text.replace(secret, _HIDDEN)
        return " ".join(text.split())

    @staticmethod
    def _secrets(url: str) -> list[str]:
        """Return the password of a URL, both encoded and decoded, and all options."""
        parts = urlsplit(url)
        found = [parts.password or "", unquote(parts.password or ""), parts.query]
        return sorted({each for each in found if each}, key=len, reverse=True)


def _tables(
    listed: list[tuple[str, str, str, int]], columns: dict[tuple[str, str], list[tuple[str, str]]]
) -> list[dict[str, Any]]:
    """Return the tables; names outside the first schema include their schema."""
    tables: list[dict[str, Any]] = []
    first = listed[0][0] if listed else ""
    for schema, name, kind, about in listed:
        own = columns.get((schema, name), [])
        reference = f"{quoted(schema)}.{quoted(name)}"
        tables.append(
            {
                "name": name if schema == first else f"{schema}.{name}",
                "reference": reference,
                "columns": [column for column, _ in own],
                "types": [type_name for _, type_name in own],
                "rows": None if about < 0 else about,
                "is_estimate": True,
                "statistics": {},
                "order": " order by ctid" if kind in ("r", "m") else "",
            }
        )
    return tables
