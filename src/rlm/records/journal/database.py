"""The SQLite file of one run: its tables, its version, and the lock of its writer."""

import json
import os
import sqlite3
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from rlm._util import files
from rlm._util.disks import is_full, is_of_the_disk
from rlm.errors import ConfigError
from rlm.messages import Reply, ReplyKey
from rlm.records.journal.records import Tail, places_in, private, tail_of, unpacked, unsealed

__all__ = [
    "FAILURES",
    "SCHEMA",
    "Lock",
    "check_plain",
    "connect",
    "damaged",
    "facts_in",
    "is_database",
    "not_writable",
    "open_for_reading",
    "put",
    "reading",
    "replies_in",
]

SCHEMA = 1
FAILURES = (OSError, sqlite3.Error, UnicodeError)
"""What SQLite may raise; for a damaged file, this includes errors from decoding text."""

_OURS = 0x524C4D21
"""SQLite's application id, which marks our journals."""

_PAUSES = (0.0, 0.001, 0.01)
HEAD = b"SQLite format 3\0"
TABLES = ("about", "replies", "told", "events")
_TABLES = """
create table about (name text primary key, value blob not null) without rowid;
create table replies (number integer primary key, records blob not null);
create table told (
    path text, step integer, what text, text blob not null, outputs text not null,
    primary key (path, step, what)
) without rowid;
create table events (
    number integer primary key, attempt integer not null, lines blob not null
);
"""


class Lock:
    """Held by the one process that executes a run; the kernel releases it when that ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def take(self) -> bool:
        """Take the lock if it is free; return whether we hold it."""
        for pause in _PAUSES:  # Another process's `is_taken` may hold it for an instant.
            time.sleep(pause)
            try:
                if self._took():
                    return True
            except OSError as error:
                raise not_writable(self._path, error) from error
        return False

    def _took(self) -> bool:
        """Lock the file and record the holder, unless the file was removed in the meantime."""
        with ExitStack() as stack:
            file = stack.enter_context(open(self._path, "ab", opener=private))
            try:
                files.lock(file.fileno())
                if not os.path.samestat(os.fstat(file.fileno()), self._path.lstat()):
                    return False
            except (BlockingIOError, FileNotFoundError):
                return False
            file.truncate(0)
            file.write(f"{os.getpid()}\n".encode())
            file.flush()
            self._file = file
            stack.pop_all()
        return True

    def is_taken(self) -> bool:
        """Return whether the lock is held, without taking it."""
        try:
            with self._path.open("rb") as file:
                return files.is_locked(file.fileno())
        except OSError:
            return False

    def holder(self) -> str:
        """Return the process that holds it, as recorded by that process."""
        try:
            return self._path.read_text("ascii", "replace").strip()[:20] or "unknown"
        except OSError:
            return "unknown"

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def connect(path: Path, *, make: bool = True) -> sqlite3.Connection:
    """Open a journal for writing; with `make`, create it if missing. Only its owner can read it."""
    try:
        os.close(private(path, os.O_RDWR | (os.O_CREAT if make else 0)))
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=rw",  # So SQLite does not create it.
            uri=True,
            isolation_level=None,
            check_same_thread=False,
        )
        with _closed_unless_usable(connection):
            connection.execute("pragma busy_timeout=2000")
            is_new = not _has_tables(connection)
            if not is_new:
                _check(connection, path)  # First, so that another program's file stays unchanged.
                _check_whole(connection, path)
            connection.execute("pragma journal_mode=wal")
            connection.execute("pragma synchronous=normal")  # Survives SIGKILL, not a power loss.
            if is_new:
                _make_tables(connection)
    except FAILURES as error:
        raise not_writable(path, error) from error
    return connection


def not_writable(path: Path, error: Exception) -> ConfigError:
    if is_full(error):
        return ConfigError(
            f"there is no space left on the disk for {path}; free some, or run without a journal"
        )
    return ConfigError(
        f"the journal {path} is not writable: {error}; check the folder's permissions and "
        "free space, or run without a journal"
    )


def damaged(path: Path, error: object) -> ConfigError:
    if is_of_the_disk(error):
        return ConfigError(f"the journal {path} can't be read: {error}; check the disk")
    return ConfigError(
        f"the journal {path} is damaged: {error}; remove it with `rlm rm`, and start again"
    )


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open a journal that another process may be writing to."""
    try:
        connection = sqlite3.connect(
            f"{path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None
        )
        with _closed_unless_usable(connection):
            connection.execute("pragma busy_timeout=2000")
            _check(connection, path)
    except FAILURES as error:
        raise ConfigError(f"the journal {path} can't be read: {error}") from error
    return connection


def is_database(path: Path) -> bool:
    """Return whether a file begins like an SQLite file."""
    with path.open("rb") as file:
        return file.read(len(HEAD)) == HEAD


def put(connection: sqlite3.Connection, records: bytes) -> None:
    """Insert records of replies, within the caller's transaction."""
    if records:
        connection.execute("insert into replies (records) values (?)", (records,))


def replies_in(connection: sqlite3.Connection) -> Iterator[tuple[int, int, int, ReplyKey, Reply]]:
    """Yield every reply with the position of its record; of equal keys, the last one counts."""
    for number, records in connection.execute("select number, records from replies"):
        for start, end in places_in(records):
            with suppress(ValueError):
                yield number, start, end, *unpacked(records[start:end])


def _settle(path: Path) -> None:
    """Insert what a killed process had committed to its tail."""
    if not tail_of(path).stat().st_size:
        return
    lock = Lock(path.with_suffix(".lock"))
    if not lock.take():
        return
    with ExitStack() as stack:
        stack.callback(lock.release)
        connection = connect(path, make=False)  # Its run may have been removed.
        stack.callback(connection.close)
        tail = Tail(path)
        stack.callback(tail.close)
        connection.execute("begin")
        put(connection, tail.records())
        connection.execute("commit")
        tail.clear()


@contextmanager
def reading(path: Path) -> Generator[sqlite3.Connection, None, None]:
    """Open a journal for reading; raise ConfigError if SQLite cannot read it."""
    with suppress(*FAILURES, ConfigError):  # It may be in use, or read-only to us.
        _settle(path)
    connection = open_for_reading(path)
    try:
        yield connection
    except FAILURES as error:
        raise ConfigError(f"the journal {path} can't be read: {error}") from error
    finally:
        connection.close()


@contextmanager
def _closed_unless_usable(connection: sqlite3.Connection) -> Generator[None, None, None]:
    with ExitStack() as stack:
        stack.callback(connection.close)
        yield
        stack.pop_all()


def facts_in(connection: sqlite3.Connection, path: Path) -> dict[str, Any]:
    """Return the facts of a journal by name."""
    try:
        rows = connection.execute("select name, value from about").fetchall()
        return {name: json.loads(unsealed(name, value)) for name, value in rows}
    except (sqlite3.Error, ValueError, RecursionError) as error:
        raise damaged(path, error) from error


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that is not ours or not of this version."""
    if _pragma(connection, "application_id") != _OURS:
        raise ConfigError(f"{path} is not a journal of rlm; pass another path")
    version = _pragma(connection, "user_version")
    if version != SCHEMA:
        raise ConfigError(
            f"the journal {path} has format {version}, but this version of rlm reads format "
            f"{SCHEMA}; use the version of rlm that wrote it, or remove it with `rlm rm`"
        )
    check_plain(connection, path, TABLES)


def check_plain(connection: sqlite3.Connection, path: Path, tables: Sequence[str]) -> None:
    """Refuse a file that computes its rows: those of a view may be large and endless.

    Views, triggers and virtual tables have no page in the file; generated columns are hidden.
    """
    strange = connection.execute(
        "select 1 from sqlite_master where typeof(rootpage) != 'integer' or rootpage < 1"
    ).fetchone()
    for table in tables:
        strange = (
            strange
            or connection.execute(
                "select 1 from pragma_table_xinfo(?) where hidden", (table,)
            ).fetchone()
        )
    if strange is not None:
        raise ConfigError(
            f"rlm did not write {path}: it has computed columns or other active content"
        )


def _check_whole(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a damaged file now, not in the middle of a run."""
    (found,) = connection.execute("pragma quick_check(1)").fetchone()
    if found != "ok":
        raise damaged(path, found)


def _make_tables(connection: sqlite3.Connection) -> None:
    connection.executescript(
        f"begin; {_TABLES} pragma application_id={_OURS}; pragma user_version={SCHEMA}; commit;"
    )


def _has_tables(connection: sqlite3.Connection) -> bool:
    return connection.execute("select 1 from sqlite_master limit 1").fetchone() is not None


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    row: Any = connection.execute(f"pragma {name}").fetchone()
    return int(row[0])
