"""The journal of one run: replies, committed before they are used, and what the model saw.

It is a `ReplyStore` and a `Recorder`. Keys are the same on every execution of a run (see
`ReplyKey`), so threads and batches may finish in any order.
"""

import asyncio
import json
import logging
import os
import sqlite3
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec

from rlm.errors import ConfigError
from rlm.events import MAX_RESULT_CHARS, Event, RunEnded
from rlm.logger import encoded
from rlm.messages import KEPT, Reply, ReplyKey, Request, Usage
from rlm.records.journal import database
from rlm.records.journal.records import Tail, packed, sealed, unpacked, unsealed
from rlm.results import Shown

__all__ = ["Journal", "events_after", "events_of", "long_results", "text_in"]

MAX_WAITING = 1_024
MAX_WAITING_SECONDS = 0.1
"""Limits on the number and age of replies and events before they are written together."""

ROW_BYTES = 1 << 16
_NAME_BYTES = 8
EVENTS_AT_ONCE = 16
CHUNKS_AT_HAND = 16
_JSON = msgspec.json.Encoder()
_log = logging.getLogger("rlm")


class Journal:
    """The journal of a new run, or of a run that continues; one process at a time may open it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem: str | None = None
        """Why nothing is written any more, if so; the run continues without a journal."""
        self._lock = database.Lock(path.with_suffix(".lock"))
        if not self._lock.take():
            raise ConfigError(
                f"process {self._lock.holder()} is executing run {path.stem}; wait for it, or end "
                "it first"
            )
        with ExitStack() as stack:
            stack.callback(self._lock.release)
            self._database = database.connect(path)
            stack.callback(self._database.close)
            self._tail = Tail(path)
            stack.callback(self._tail.close)
            self._records = [self._tail.records()]
            self._events: list[Event] = []
            self._attempt = 0
            self._timer: asyncio.TimerHandle | None = None
            self.flush()
            self._open_tail()
            self._look()
            stack.pop_all()
        self.replayed = 0
        self.has_events = False
        """Whether anything has happened in this execution."""
        self.beside: asyncio.Task[None] | None = None
        """Work done during the run, such as writing its context."""
        self.is_described = asyncio.Event()
        """Set once all facts that replies need are known, including the hash of the context."""
        self.is_described.set()

    # -- facts about the run -----------------------------------------------------------------

    def describe(self, **facts: object) -> None:
        """Store facts about the run, such as its query and its settings, as JSON."""
        rows = [(name, sealed(name, _json(value))) for name, value in facts.items()]
        self._write("insert or replace into about values (?, ?)", rows)

    def forget(self, *names: str) -> None:
        """Remove facts by name."""
        for name in names:
            self._write("delete from about where name = ?", [(name,)])

    def facts(self) -> dict[str, object]:
        """Return what `describe` stored."""
        return database.facts_in(self._database, self.path)

    # -- replies -----------------------------------------------------------------------------

    async def get(self, key: ReplyKey, request: Request | None) -> Reply | None:
        """Return the reply that was already paid for, if there is one."""
        place = self._known.get(str(key)) if self._known else None
        if place is None:
            self._check_step(key)
            return None
        reply = self._reply(*place)
        if reply.finish_reason == "failed" and not self._is_over(key):
            return None
        self._steps_to_match.discard((key.path, key.step))
        self._unrecalled.pop(str(key), None)
        if key.kind == "child":  # Its answer is stored with what the child has used.
            self._recalled_children.add(key.path)
        self.replayed += 1
        return reply

    def take_unrecalled(self) -> list[tuple[ReplyKey, Usage]]:
        """Return what earlier executions paid for and this one has not recalled; each once.

        Such as their final calls, and steps beyond a limit that is lower now.
        """
        done = self._recalled_children
        left = [
            (key, usage)
            for key, usage in self._unrecalled.values()
            if not (done and done.intersection(key.run_paths))
        ]
        self._unrecalled.clear()
        return left

    async def put(self, key: ReplyKey, reply: Reply) -> None:
        """Commit a reply; it may be used when this returns."""
        await self.is_described.wait()
        self.copy(key, reply)

    def keep(self, key: ReplyKey, usage: Usage) -> None:
        """Store what a request without a reply may have cost; equal requests may fail again."""
        name = f"{key.digest}-{os.urandom(_NAME_BYTES).hex()}"
        kept = ReplyKey(key.path, name, key.number, KEPT, key.step)
        self.copy(kept, Reply(text="", usage=usage))

    def copy(self, key: ReplyKey, reply: Reply) -> None:
        """Write a reply of this run or of another one."""
        if self.problem is None:
            self._save(packed(key, reply))

    def _save(self, record: bytes) -> None:
        try:
            has_room = self._tail.add(record)
        except OSError as error:
            self._give_up(error)
            return
        self._records.append(record)
        if not has_room or len(self._records) >= MAX_WAITING:
            self.flush()  # What does not fit there is committed here.

    def _open_tail(self) -> None:
        """Open the tail, unless its old records could not be moved to the database."""
        if self.problem is None:
            try:
                self._tail.open()
            except OSError as error:
                self._give_up(error)

    def _reply(self, number: int, start: int, end: int) -> Reply:
        """Return a stored reply. Replies requested in order are stored next to each other."""
        chunk = self._chunks.get(number)
        try:
            if chunk is None:
                found = "select records from replies where number = ?"
                (chunk,) = self._database.execute(found, (number,)).fetchone()
                while len(self._chunks) >= CHUNKS_AT_HAND:
                    self._chunks.pop(next(iter(self._chunks)))
                self._chunks[number] = chunk
            return unpacked(chunk[start:end])[1]
        except (sqlite3.Error, ValueError, TypeError) as error:
            raise database.damaged(self.path, error) from error

    def _is_over(self, key: ReplyKey) -> bool:
        """Return whether the step of a key was finished, so that its failures are final.

        In an unfinished step, failed calls are tried again. Runs without a REPL finish no step.
        """
        path = key.path.rpartition("/")[0] if key.kind == "child" else key.path
        return key.step <= self._last_shown.get(path, -1)

    def _check_step(self, key: ReplyKey) -> None:
        """Raise if a step asked something else before: then this is not the same run."""
        if key.kind != "step":
            return
        if (key.path, key.step) in self._steps_to_match:
            raise ConfigError(
                f"this run can't continue: step {key.step} was requested with other settings "
                "(model, sampling, tools or output limit); use the settings it was started with, "
                "or start a new run"
            )
        if self._is_over(key):
            raise database.damaged(self.path, f"the reply of step {key.step} can't be read")

    # -- what the model was shown -------------------------------------------------------------

    async def recorded(self, path: str, step: int, what: str) -> Shown | None:
        """Return what the model saw the first time."""
        try:
            row = self._database.execute(
                "select text, outputs from told where path = ? and step = ? and what = ?",
                (path, step, what),
            ).fetchone()
            if row is None:
                return None
            is_last = step >= self._last_shown.get(path, 0)
            return Shown(text_in(path, step, what, row[0]), str(row[1]), is_last)
        except (sqlite3.Error, ValueError) as error:
            raise database.damaged(self.path, error) from error

    async def show(self, path: str, step: int, what: str, shown: Shown) -> str:
        """Store what the model sees, and return it."""
        self.copy_shown(path, step, what, shown)
        return shown.text

    def copy_shown(self, path: str, step: int, what: str, shown: Shown) -> None:
        text = sealed(_name(path, step, what), shown.text.encode("utf-8", "surrogatepass"))
        row = (path, step, what, text, shown.outputs)
        self._write("insert or replace into told values (?, ?, ?, ?, ?)", [row])

    def forget_shown(self) -> None:
        """Forget what the model saw, for a run that starts over."""
        self._write("delete from told", [()])

    # -- events ------------------------------------------------------------------------------

    needs_context_hash = True

    def record(self, event: Event) -> None:
        """Store an event; events lost with a killed process are recorded again on resuming."""
        self.has_events = True
        self._events.append(event)
        if type(event) is RunEnded:
            if event.parent_id is None:
                self.describe(end=event)
            self.flush()
        elif len(self._events) >= MAX_WAITING:
            self.flush()
        elif self._timer is None:
            self._flush_later()

    def _flush_later(self) -> None:
        """Flush even if nothing else happens: the run may be watched."""
        with suppress(RuntimeError):  # Outside an event loop there is nothing to schedule on.
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(MAX_WAITING_SECONDS, self.flush)

    def flush(self) -> None:
        """Write everything pending to the database."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        records, self._records = b"".join(self._records), []
        events, self._events = self._events, []
        if self.problem is not None or not (records or events):
            return
        try:
            with self._transaction():
                database.put(self._database, records)
                self._database.executemany(
                    "insert into events (attempt, lines) values (?, ?)",
                    ((self._attempt, lines) for lines in _lines(events)),
                )
            self._tail.clear()
        except database.FAILURES as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        if self.problem is None:
            self.problem = f"the journal {self.path} is no longer writable: {error}"
            _log.warning("%s; the run continues, but can't be resumed from here on", self.problem)

    # -- the end -----------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Wait for background work, then close in a thread, since disks take time."""
        try:
            if self.beside is not None:
                await asyncio.shield(self.beside)
        finally:
            self.flush()
            await asyncio.shield(asyncio.to_thread(self.close))

    def close(self) -> None:
        """Write what is left and release the lock; may be called twice."""
        self.flush()
        try:
            self._database.close()
            self._tail.close()
        finally:
            self._lock.release()

    @contextmanager
    def _transaction(self) -> Generator[None, None, None]:
        self._database.execute("begin")
        try:
            yield
        except BaseException:
            if self._database.in_transaction:  # A full disk may have ended it.
                self._database.execute("rollback")
            raise
        self._database.execute("commit")

    def _look(self) -> None:
        """Read what earlier executions stored."""
        self._known: dict[str, tuple[int, int, int]] = {}
        self._steps_to_match: set[tuple[str, int]] = set()
        self._unrecalled: dict[str, tuple[ReplyKey, Usage]] = {}
        self._recalled_children: set[str] = set()
        self._chunks: dict[int, bytes] = {}
        last = "select path, max(step) from told where what = 'observation' group by path"
        attempt = "select max(attempt) from events"
        execute = self._database.execute
        try:
            for number, start, end, key, reply in database.replies_in(self._database):
                self._known[str(key)] = number, start, end
                if reply.usage is not None and key.kind != "child":
                    self._unrecalled[str(key)] = key, reply.usage
                if key.kind == "step":
                    self._steps_to_match.add((key.path, key.step))
            self._last_shown = {path: int(step) for path, step in execute(last)}
            self._attempt = int(execute(attempt).fetchone()[0] or 0) + 1
        except (sqlite3.Error, ValueError, TypeError) as error:
            raise database.damaged(self.path, error) from error

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
        except database.FAILURES as error:
            self._give_up(error)


def events_of(path: Path, *, last_only: bool = False) -> Iterator[bytes]:
    """Yield the events of a journal as JSON lines, execution by execution, in bounded memory."""
    first = "select max(attempt) from events" if last_only else "select 0"
    with database.reading(path) as connection:
        (attempt,) = connection.execute(first).fetchone()
        for (lines,) in connection.execute(
            "select lines from events where attempt >= ? order by number", (attempt,)
        ):
            if isinstance(lines, bytes):  # Nothing else was written there.
                yield from lines.splitlines(keepends=True)


def long_results(path: str | Path) -> dict[str, Reply]:
    """Return the tool results that are too long for events, by key; {} if this is no journal."""
    path = Path(path)
    if not path.is_file() or not database.is_database(path):
        return {}
    with database.reading(path) as connection:
        return {
            str(key): reply
            for *_, key, reply in database.replies_in(connection)
            if key.kind == "tool" and len(reply.text) > MAX_RESULT_CHARS
        }


def events_after(path: Path, row: int, line: int, most: int) -> list[tuple[int, int, bytes]]:
    """Return the next events after a position, each with its own position: row, and line there.

    Journals only grow, so a position stays valid, even if the run continues in another process.
    """
    found: list[tuple[int, int, bytes]] = []
    with database.reading(path) as connection:
        query = "select number, lines from events where number >= ? order by number"
        for number, lines in connection.execute(query, (row,)):
            for at, each in enumerate(lines.splitlines() if isinstance(lines, bytes) else ()):
                if (number, at) > (row, line):
                    found.append((number, at, each))
                    if len(found) >= most:
                        return found
    return found


def _lines(events: list[Event]) -> Iterator[bytes]:
    """Yield events as JSON lines, in pieces that fit a row."""
    waiting = b""
    for at in range(0, len(events), EVENTS_AT_ONCE):
        some = events[at : at + EVENTS_AT_ONCE]
        try:
            waiting += _JSON.encode_lines(some)
        except UnicodeEncodeError:
            waiting += b"".join(encoded(event) + b"\n" for event in some)
        if len(waiting) > ROW_BYTES:
            yield waiting
            waiting = b""
    if waiting:
        yield waiting


def _json(value: object) -> bytes:
    try:
        return msgspec.json.encode(value, enc_hook=repr)
    except UnicodeEncodeError:  # lone surrogates: JSON can escape them, msgspec does not
        return json.dumps(msgspec.to_builtins(value, enc_hook=repr)).encode("ascii")


def _name(path: object, step: object, what: object) -> str:
    return f"{path} {step} {what}"


def text_in(path: object, step: object, what: object, found: object) -> str:
    """Return a text that a model saw; raise ValueError if it cannot be read."""
    return unsealed(_name(path, step, what), found).decode("utf-8", "surrogatepass")
