"""The file of one run: its tables, its version, and the lock of who writes to it."""

import fcntl
import os
import sqlite3
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from rlm.errors import ConfigError

__all__ = ["SCHEMA", "Lock", "connect", "open_for_reading"]

SCHEMA = 1
_OURS = 0x524C4D21
"""SQLite keeps a number for whoever owns a file: this one says that it is a journal of ours."""

_TABLES = """
create table about (name text primary key, value text not null) without rowid;
create table replies (key text primary key, reply blob not null) without rowid;
create table turns (
    path text, step integer, outputs text not null, observation blob not null,
    primary key (path, step)
) without rowid;
create table events (
    number integer primary key, attempt integer not null, lines blob not null
);
"""


class Lock:
    """Held by the one process that runs a run; the kernel lets go of it when that process ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def take(self) -> bool:
        """Whether it is ours now. It is if it was free."""
        file = open(self._path, "ab", opener=_private)  # noqa: SIM115 - it stays open
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        self._file = file
        file.truncate(0)
        file.write(f"{os.getpid()}\n".encode())
        file.flush()
        return True

    def holder(self) -> str:
        """The process that holds it, as it says itself."""
        try:
            return self._path.read_text("ascii", "replace").strip()[:20] or "unknown"
        except OSError:
            return "unknown"

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def connect(path: Path) -> sqlite3.Connection:
    """Open a journal to write to; it is made if it is not there. Only its owner can read it."""
    try:
        os.close(_private(path, os.O_CREAT | os.O_RDWR))
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        with _closed_unless_usable(connection):
            connection.execute("pragma journal_mode=wal")
            connection.execute("pragma synchronous=normal")  # Survives SIGKILL, not a power cut.
            _check(connection, path, make=True)
    except (OSError, sqlite3.Error) as error:
        raise ConfigError(
            f"the journal {path} can't be written to: {error}; check the folder's permissions and "
            "free space, or run without a journal"
        ) from error
    return connection


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open a journal that somebody else may be writing to."""
    try:
        connection = sqlite3.connect(
            f"{path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None
        )
        with _closed_unless_usable(connection):
            _check(connection, path, make=False)
    except (OSError, sqlite3.Error) as error:
        raise ConfigError(f"the journal {path} can't be read: {error}") from error
    return connection


@contextmanager
def _closed_unless_usable(connection: sqlite3.Connection) -> Generator[None, None, None]:
    with ExitStack() as stack:
        stack.callback(connection.close)
        yield
        stack.pop_all()


def _check(connection: sqlite3.Connection, path: Path, *, make: bool) -> None:
    """Make the tables of an empty file; refuse what is not ours or not of this version."""
    connection.execute("pragma busy_timeout=2000")
    owner, version = _pragma(connection, "application_id"), _pragma(connection, "user_version")
    if make and owner == version == 0 and not _has_tables(connection):
        connection.executescript(
            f"begin; {_TABLES} pragma application_id={_OURS}; pragma user_version={SCHEMA}; commit;"
        )
        return
    if owner != _OURS:
        raise ConfigError(f"{path} is not a journal of rlm; give another path")
    if version != SCHEMA:
        raise ConfigError(
            f"the journal {path} has format {version}, this version of rlm reads format {SCHEMA}; "
            "use the version of rlm that wrote it, or remove it with `rlm rm`"
        )


def _has_tables(connection: sqlite3.Connection) -> bool:
    return connection.execute("select 1 from sqlite_master limit 1").fetchone() is not None


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    row: Any = connection.execute(f"pragma {name}").fetchone()
    return int(row[0])


def _private(path: str | Path, flags: int) -> int:
    return os.open(path, flags, 0o600)
