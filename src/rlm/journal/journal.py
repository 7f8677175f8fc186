"""One run's journal: replies are committed before they are used, turns before the next request.

It is a `ReplyStore` and a `Recorder`. Keys are the same on every execution of a run (see
`Calls`), so threads and batches may finish in any order.
"""

import asyncio
import json
import logging
import sqlite3
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from rlm.errors import ConfigError
from rlm.events import Event, RunEnded
from rlm.journal import database
from rlm.logger import encoded
from rlm.messages import Reply, Request

__all__ = ["Journal", "Turn"]

BURST_SECONDS = 0.0002
"""Replies that come faster than this are committed together."""

MOST_EVENT_BYTES = 1 << 16
MOST_EVENT_SECONDS = 0.1
_READ = msgspec.msgpack.Decoder(Reply)
_log = logging.getLogger("rlm")


class Turn(Struct, frozen=True):
    """What a model was told after a step. `outputs` is a digest of what the cells printed."""

    outputs: str
    observation: str


class Journal:
    """Open it for a run that begins, or for one that goes on; one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem: str | None = None
        """Why nothing is written any more, if so: the run goes on without."""
        self._lock = database.Lock(path.with_suffix(".lock"))
        if not self._lock.take():
            raise ConfigError(
                f"run {path.stem} is being run by process {self._lock.holder()}; wait for it, or "
                "end it first"
            )
        try:
            self._database = database.connect(path)
        except BaseException:
            self._lock.release()
            raise
        self._known = {key for (key,) in self._database.execute("select key from replies")}
        self.replayed = 0
        self._attempt = self._next_attempt()
        self._waiting: list[tuple[tuple[str, bytes], asyncio.Future[None]]] = []
        self._last_put = 0.0
        self._lines: list[bytes] = []
        self._line_bytes = 0
        self._flushed = time.monotonic()

    # -- facts about the run -----------------------------------------------------------------

    def describe(self, **facts: object) -> None:
        """Remember facts about the run, such as its query and its settings, as JSON."""
        rows = [(name, msgspec.json.encode(value).decode()) for name, value in facts.items()]
        self._write("insert or replace into about values (?, ?)", rows)

    def facts(self) -> dict[str, object]:
        """What `describe` was told."""
        rows = self._database.execute("select name, value from about")
        return {name: msgspec.json.decode(value) for name, value in rows}

    # -- replies -----------------------------------------------------------------------------

    async def get(self, key: str, request: Request) -> Reply | None:
        """The reply that was paid for already, if there is one."""
        if key not in self._known:
            return None
        row = self._database.execute("select reply from replies where key = ?", (key,)).fetchone()
        if row is None:
            return None
        self.replayed += 1
        return _unpacked(row[0])

    async def put(self, key: str, request: Request, reply: Reply) -> None:
        """Commit a reply; it may be used when this returns."""
        if self.problem is not None:
            return
        row = (key, _packed(reply))
        now = time.monotonic()
        is_lonely = not self._waiting and now - self._last_put > BURST_SECONDS
        self._last_put = now
        if is_lonely:
            self._write("insert or replace into replies values (?, ?)", [row])
            return
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._commit_waiting)
        committed = loop.create_future()
        self._waiting.append((row, committed))
        await committed

    def _commit_waiting(self) -> None:
        """All that came in one turn of the event loop, in one transaction."""
        waiting, self._waiting = self._waiting, []
        rows = [row for row, _ in waiting]
        self._write("insert or replace into replies values (?, ?)", rows)
        for _, committed in waiting:
            if not committed.done():  # Who waited for it may have been cancelled.
                committed.set_result(None)

    # -- turns -------------------------------------------------------------------------------

    async def turn(self, path: str, step: int, now: Turn) -> Turn:
        """The turn as it was the first time; a new one is remembered as it is."""
        row = self._database.execute(
            "select outputs, observation from turns where path = ? and step = ?", (path, step)
        ).fetchone()
        if row is not None:
            return Turn(row[0], row[1].decode("utf-8", "surrogatepass"))
        rows = [(path, step, now.outputs, now.observation.encode("utf-8", "surrogatepass"))]
        self._write("insert into turns values (?, ?, ?, ?)", rows)
        return now

    # -- events ------------------------------------------------------------------------------

    def record(self, event: Event) -> None:
        """Keep an event; what a killed process had not written yet is made again on resuming."""
        line = encoded(event)
        self._lines.append(line)
        self._line_bytes += len(line)
        late = time.monotonic() - self._flushed > MOST_EVENT_SECONDS
        if late or self._line_bytes > MOST_EVENT_BYTES or isinstance(event, RunEnded):
            self.flush()

    def flush(self) -> None:
        """Write the events there are."""
        self._flushed = time.monotonic()
        if self._lines:
            row = (self._attempt, b"\n".join(self._lines) + b"\n")
            self._lines, self._line_bytes = [], 0
            self._write("insert into events (attempt, lines) values (?, ?)", [row])

    # -- the end -----------------------------------------------------------------------------

    def close(self) -> None:
        """Write what is left, and let go; may be called twice."""
        if self._waiting:
            self._commit_waiting()
        self.flush()
        try:
            self._database.close()
        finally:
            self._lock.release()

    @contextmanager
    def _transaction(self) -> Generator[None, None, None]:
        self._database.execute("begin")
        try:
            yield
        except BaseException:
            if self._database.in_transaction:  # A full disk has ended it already.
                self._database.execute("rollback")
            raise
        self._database.execute("commit")

    def _next_attempt(self) -> int:
        (last,) = self._database.execute("select max(attempt) from events").fetchone()
        return 1 if last is None else int(last) + 1

    def _write(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        """Write in one transaction. A full disk must not cost the run what it has paid for."""
        if self.problem is not None:
            return
        try:
            if len(rows) == 1:
                self._database.execute(statement, rows[0])
            else:
                with self._transaction():
                    self._database.executemany(statement, rows)
        except sqlite3.Error as error:
            self.problem = f"the journal {self.path} can't be written to any more: {error}"
            _log.warning("%s; the run goes on, but can't be resumed from here on", self.problem)


def _packed(reply: Reply) -> bytes:
    """A reply as bytes; as JSON if it holds lone surrogates, which MessagePack has no place for."""
    try:
        return msgspec.msgpack.encode(reply)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(reply)).encode("ascii")


def _unpacked(data: bytes) -> Reply:
    if data[:1] == b"{":  # In MessagePack this would be a number.
        return msgspec.convert(json.loads(data), Reply)
    return _READ.decode(data)
