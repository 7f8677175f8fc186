"""The file of the reply cache: SQLite, of bounded size, for one owner and many processes."""

import contextlib
import hashlib
import os
import sqlite3
import sys
import time
from collections.abc import Generator
from pathlib import Path

import msgspec

from rlm._util.files import CLOEXEC
from rlm.messages import Reply

__all__ = ["CacheFile", "CacheTrouble"]

NAME = "replies-1.sqlite"
"""The number is the version of the format; a version of rlm with another format uses another."""

BUSY_SECONDS = 2.0
PAUSE_SECONDS = 0.01
ROW_BYTES = 100
"""The size of a row without its reply."""

TABLES = """
create table if not exists replies (
    number integer primary key, key blob not null unique, checksum blob not null,
    reply blob not null, size integer not null, used_at integer not null
);
create index if not exists by_use on replies (used_at);
create table if not exists sums (one integer primary key check (one = 1), bytes integer not null);
insert or ignore into sums values (1, 0);
create trigger if not exists added after insert on replies begin
    update sums set bytes = bytes + new.size;
end;
create trigger if not exists removed after delete on replies begin
    update sums set bytes = bytes - old.size;
end;
"""
_READ = msgspec.msgpack.Decoder(Reply)


class CacheTrouble(Exception):
    """The file can't be used, at least for now; the message says why."""


class CacheFile:
    """An open cache file. Used by one thread at a time."""

    def __init__(self, path: Path, connection: sqlite3.Connection, max_bytes: int) -> None:
        self._path = path
        self._connection = connection
        self._max_bytes = max_bytes

    @classmethod
    def open(cls, folder: Path, max_bytes: int) -> "CacheFile":
        """Open or create the file in a folder. A damaged one is renamed."""
        path = folder / NAME
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                connection = _connect(path)
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                _set_aside(path)
                connection = _connect(path)
        except (OSError, sqlite3.Error) as error:
            raise CacheTrouble(str(error)) from error
        return cls(path, connection, max_bytes)

    def get(self, key: bytes) -> Reply | None:
        with self._reporting_trouble():
            row = self._connection.execute(
                "select number, checksum, reply from replies where key = ?", (key,)
            ).fetchone()
            if row is None:
                return None
            number, checksum, data = row
            reply = _reply(key, checksum, data)
            if reply is None:
                self._connection.execute("delete from replies where number = ?", (number,))
                return None
            now = time.time_ns()
            self._connection.execute(
                "update replies set used_at = ? where number = ?", (now, number)
            )
            return reply

    def put(self, key: bytes, reply: Reply) -> None:
        """Store a reply; delete the least recently used ones if the file is too large."""
        try:
            data = msgspec.msgpack.encode(reply)
        except (TypeError, UnicodeEncodeError):  # provider parts that can't be encoded
            return
        size = len(data) + ROW_BYTES
        if size > self._max_bytes:
            return
        row = (key, _checksum(key, data), data, size, time.time_ns())
        with self._reporting_trouble(), self._transaction():
            self._connection.execute("delete from replies where key = ?", (key,))
            self._connection.execute(
                "insert into replies (key, checksum, reply, size, used_at) values (?, ?, ?, ?, ?)",
                row,
            )
            while self.size_bytes() > self._max_bytes:
                self._connection.execute(
                    "delete from replies where number = "
                    "(select number from replies order by used_at, number limit 1)"
                )

    def size_bytes(self) -> int:
        """Return the size of all replies together."""
        return int(self._connection.execute("select bytes from sums").fetchone()[0])

    def close(self) -> None:
        self._connection.close()

    @contextlib.contextmanager
    def _transaction(self) -> Generator[None, None, None]:
        self._connection.execute("begin immediate")
        try:
            yield
        except BaseException:
            if self._connection.in_transaction:  # a full disk has already ended it
                self._connection.execute("rollback")
            raise
        self._connection.execute("commit")

    @contextlib.contextmanager
    def _reporting_trouble(self) -> Generator[None, None, None]:
        try:
            yield
        except sqlite3.Error as error:
            self._connection.close()
            if _is_damage(error):
                _set_aside(self._path)
            raise CacheTrouble(str(error)) from error


def _connect(path: Path) -> sqlite3.Connection:
    _make_private(path)
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        _use_wal(connection)
        connection.execute("pragma synchronous=normal")  # survives SIGKILL, not a power cut
        connection.executescript(f"begin immediate; {TABLES} commit;")
    except BaseException:
        connection.close()
        raise
    return connection


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to write-ahead logging; retry if another process opens the file at that moment.

    SQLite itself does not wait there, whatever its timeout.
    """
    give_up = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("pragma journal_mode=wal")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > give_up:
                raise
        time.sleep(PAUSE_SECONDS)


def _make_private(path: Path) -> None:
    """Make the file readable by its owner only, and refuse the file of another user."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | CLOEXEC, 0o600)
    try:
        if sys.platform == "win32":  # A user's folders are private there, and files have no modes.
            return
        owner, own = os.fstat(descriptor).st_uid, os.geteuid()
        if own not in {0, owner}:
            raise PermissionError(f"{path} belongs to another user; choose another folder")
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def _is_damage(error: sqlite3.Error) -> bool:
    """Whether an error means a damaged file, not a busy file, a full disk and so on."""
    return type(error) is sqlite3.DatabaseError


def _set_aside(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.replace(f"{path}.damaged")
    for ending in ("-wal", "-shm"):
        with contextlib.suppress(OSError):
            Path(f"{path}{ending}").unlink()


def _checksum(key: bytes, data: bytes) -> bytes:
    return hashlib.blake2b(key + data, digest_size=16).digest()


def _reply(key: bytes, checksum: object, data: object) -> Reply | None:
    """Return the reply if its bytes and key are unchanged since they were written."""
    if not isinstance(data, bytes) or checksum != _checksum(key, data):
        return None
    try:
        return _READ.decode(data)
    except msgspec.MsgspecError:
        return None
