"""What the server stores and reports about background runs."""

import sqlite3
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from rlm._util.slow_numbers import decode
from rlm._util.text import sendable
from rlm._util.transactions import transaction
from rlm.results import RunResult
from rlm.server.answering import facts_of
from rlm.server.errors import ApiError
from rlm.server.replies import ErrorBody, RunObject, RunState, usage_of
from rlm.server.requests import RunRequest
from rlm.web.responses import json_bytes

__all__ = ["RunRow", "RunStore", "completed", "failed", "run_object"]

MAX_ROWS = 50_000
_TABLES = (
    """create table if not exists runs (run_id text primary key, token text not null, created real,
    model text, query text, has_request integer, ended real, reply blob)""",
    "create table if not exists requests (run_id text primary key, request blob not null)",
    "create index if not exists by_token on runs (token, created)",
)
_COLUMNS = "run_id, token, created, model, query, has_request, ended, reply"
SHOWN_QUERY_CHARS = 2_000


class RunRow(Struct, frozen=True):
    """One run; `reply` is set when it has ended.

    `query` is as much of it as is shown. `has_request`: the store has the request that started it,
    which is read only to resume the run.
    """

    run_id: str
    token: str
    created: float
    model: str
    query: str
    has_request: bool
    ended: float | None = None
    reply: bytes | None = None


class RunStore:
    """All rows of one server folder."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("pragma journal_mode = wal")
        with transaction(self._database):
            old = self._is_of_an_earlier_version()
            if old:
                self._database.execute("alter table runs rename to old_runs")
                self._database.execute("drop index if exists by_token")
            for table in _TABLES:
                self._database.execute(table)
            if old:
                self._copy_old_runs()
            self._database.execute(
                "delete from runs where ended is not null and run_id not in "
                "(select run_id from runs order by created desc limit ?)",
                (MAX_ROWS,),
            )
            self._database.execute(
                "delete from requests where run_id not in (select run_id from runs)"
            )

    def close(self) -> None:
        self._database.close()

    def add(self, run_id: str, token: str, model: str, request: RunRequest | None) -> RunRow:
        """Store a run, with the request that started it if the server has to finish it.

        The journal has the whole query, and long instructions as a part of the context.
        """
        query = "" if request is None else sendable(request.query[:SHOWN_QUERY_CHARS])
        row = RunRow(run_id, token, time.time(), model, query, request is not None)
        values = (run_id, token, row.created, model, query, row.has_request, None, None)
        try:
            with transaction(self._database):
                self._database.execute("insert into runs values (?, ?, ?, ?, ?, ?, ?, ?)", values)
                if request is not None:
                    self._keep(run_id, replace(request, query=query))
        except sqlite3.IntegrityError:
            raise run_exists(run_id) from None
        return row

    def end(self, run_id: str, reply: bytes) -> None:
        self._database.execute(
            "update runs set ended = ?, reply = ? where run_id = ?", (time.time(), reply, run_id)
        )

    def reopen(self, run_id: str, request: RunRequest) -> None:
        """Mark a run as not ended: it continues."""
        with transaction(self._database):
            self._database.execute(
                "update runs set ended = null, reply = null where run_id = ?", (run_id,)
            )
            self._keep(run_id, request)

    def request_of(self, run_id: str) -> RunRequest:
        """Return the request that started a run, without its context and most of its texts."""
        find = "select request from requests where run_id = ?"
        return decode(self._database.execute(find, (run_id,)).fetchone()[0], RunRequest)

    def remove(self, run_id: str) -> None:
        with transaction(self._database):
            self._database.execute("delete from runs where run_id = ?", (run_id,))
            self._database.execute("delete from requests where run_id = ?", (run_id,))

    def get(self, run_id: str) -> RunRow | None:
        find = f"select {_COLUMNS} from runs where run_id = ?"  # noqa: S608 - our own words
        row = self._database.execute(find, (run_id,)).fetchone()
        return None if row is None else _row(row)

    def of_token(self, token: str, most: int, before: RunRow | None) -> list[RunRow]:
        """Return runs, newest first, after the last one seen."""
        find = (
            f"select {_COLUMNS} from runs where token = ? and (created, run_id) < (?, ?) "  # noqa: S608
            "order by created desc, run_id desc limit ?"
        )
        at = (float("inf"), "") if before is None else (before.created, before.run_id)
        rows = self._database.execute(find, (token, *at, most)).fetchall()
        return [_row(row) for row in rows]

    def unended(self) -> list[RunRow]:
        find = f"select {_COLUMNS} from runs where ended is null order by created"  # noqa: S608
        return [_row(row) for row in self._database.execute(find).fetchall()]

    def _keep(self, run_id: str, request: RunRequest) -> None:
        values = (run_id, json_bytes(request))
        self._database.execute("insert or replace into requests values (?, ?)", values)

    def _is_of_an_earlier_version(self) -> bool:
        columns = self._database.execute("pragma table_info(runs)").fetchall()
        return "request" in {column[1] for column in columns}

    def _copy_old_runs(self) -> None:
        """Copy the table of an earlier version, which had the requests among the runs."""
        self._database.execute(
            "insert into runs select run_id, token, created, model, '', length(request) > 0, "
            "ended, reply from old_runs"
        )
        self._database.execute(
            "insert into requests select run_id, request from old_runs where length(request) > 0"
        )
        self._database.execute("drop table old_runs")
        for (run_id,) in self._database.execute("select run_id from requests").fetchall():
            with suppress(ValueError):  # A request that this version refuses can't be shown.
                query = sendable(self.request_of(run_id).query[:SHOWN_QUERY_CHARS])
                values = (query, run_id)
                self._database.execute("update runs set query = ? where run_id = ?", values)


def _row(columns: tuple[Any, ...]) -> RunRow:
    run_id, token, created, model, query, has_request, ended, reply = columns
    return RunRow(run_id, token, created, model, query or "", bool(has_request), ended, reply)


def run_exists(run_id: str) -> ApiError:
    return ApiError(
        409,
        f"the run {run_id} already exists: GET /v1/runs/{run_id}, or choose another run_id",
        param="run_id",
        code="run_exists",
    )


ENDINGS: Mapping[str, RunState] = {
    "answer": "completed",
    "passages": "completed",
    "steps": "incomplete",
    "limit": "incomplete",
    "cancelled": "cancelled",
    "error": "failed",
}


def run_object(row: RunRow, state: RunState, **more: Any) -> RunObject:
    return RunObject(
        id=row.run_id,
        created_at=int(row.created),
        model=row.model,
        status=state,
        query=row.query,
        **more,
    )


def completed(row: RunRow, result: RunResult) -> RunObject:
    """Describe a run that ended on its own or at a limit."""
    state, answer = ENDINGS[result.stop_reason], result.answer
    if state == "completed" and not result.has_answer:
        state = "failed"  # There is no answer of the wanted type.
    return run_object(
        row,
        state,
        answer=sendable(answer) if isinstance(answer, str) else answer,
        usage=usage_of(result.usage.total),
        rlm=facts_of("rlm", result),
        ended_at=int(time.time()),
    )


def failed(row: RunRow, state: RunState, error: ApiError | None) -> RunObject:
    """Describe a run that raised, or was cancelled before it had a result."""
    body = None
    if error is not None:
        body = ErrorBody(error.message, error.kind, error.param, error.code)
    return run_object(row, state, error=body, ended_at=int(time.time()))
