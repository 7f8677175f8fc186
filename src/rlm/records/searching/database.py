"""The SQLite file of a search index. A damaged file, or one of another version, is replaced."""

import os
import sqlite3
from contextlib import ExitStack, suppress
from pathlib import Path

from rlm.records.journal.records import private

__all__ = ["MAX_BYTES", "delete", "inode_of", "opened_or_new", "opened_to_read"]

VERSION = 1
MAX_BYTES = 4 << 30
PAGE_BYTES = 4_096
BUSY_MS = 5_000
_OURS = 0x524C4D53
_BESIDE = ("", "-wal", "-shm", "-journal")
_TABLES = f"""
begin immediate;
create table files (
    number integer primary key, path text not null unique, stamp text not null,
    end integer not null, identity text not null, rows integer not null, chars integer not null,
    root text
);
create table texts (
    number integer primary key, run_id text not null, root text not null, step integer not null,
    event integer not null, kind text not null, cell integer, text text not null
);
create virtual table words using fts5(
    text, content='', tokenize="unicode61 remove_diacritics 2", prefix='3'
);
pragma application_id={_OURS};
pragma user_version={VERSION};
commit;
"""


def opened_or_new(path: Path) -> sqlite3.Connection:
    """Open an index for writing; replace it if it is damaged or of another version."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        return _opened(path)
    except (sqlite3.DatabaseError, _Foreign):
        delete(path)
        return _opened(path)


class _Foreign(Exception):
    """The file is not an index of this version."""


def _opened(path: Path) -> sqlite3.Connection:
    os.close(private(path, os.O_RDWR | os.O_CREAT))
    with ExitStack() as stack:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=rw",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
        )
        stack.callback(connection.close)
        connection.execute(f"pragma busy_timeout={BUSY_MS}")
        if connection.execute("select 1 from sqlite_master limit 1").fetchone() is None:
            connection.execute("pragma journal_mode=wal")
            connection.executescript(_TABLES)
        _check(connection)
        connection.execute("pragma synchronous=off")  # It can be rebuilt.
        connection.execute("pragma secure_delete=on")  # Removed text must not remain in the file.
        connection.execute(f"pragma max_page_count={MAX_BYTES // PAGE_BYTES}")
        stack.pop_all()
        return connection


def _check(connection: sqlite3.Connection) -> None:
    (ours,) = connection.execute("pragma application_id").fetchone()
    (version,) = connection.execute("pragma user_version").fetchone()
    if (ours, version) != (_OURS, VERSION):
        raise _Foreign
    connection.execute("select count(*) from files").fetchone()


def opened_to_read(path: Path) -> tuple[sqlite3.Connection, int] | None:
    """Open an index for searching, with its inode; None if there is none of this version."""
    if (inode := inode_of(path)) is None:
        return None
    with ExitStack() as stack:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
        )
        stack.callback(connection.close)
        try:
            connection.execute(f"pragma busy_timeout={BUSY_MS}")
            connection.execute("pragma query_only=on")
            connection.execute("pragma cache_size=-32000")
            _check(connection)
        except (sqlite3.Error, _Foreign):
            return None  # The next write rebuilds it.
        stack.pop_all()
        return connection, inode


def inode_of(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def delete(path: Path) -> None:
    """Delete an index and SQLite's files beside it."""
    for end in _BESIDE:
        with suppress(OSError):
            Path(f"{path}{end}").unlink(missing_ok=True)
