"""A full-text index of texts of runs: SQLite's FTS5, in a file that only its owner can read.

It can be rebuilt at any time, so a damaged file, or one of another version, is replaced. A row is
one text of an event. Its number begins with the number of its file, so the texts of a file are
together, and a search goes from file to file, newest first, without reading all matches.
"""

import hashlib
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from rlm._util.text import sendable
from rlm.errors import ConfigError
from rlm.records.searching import database
from rlm.records.searching.matches import ROW_BITS, Chosen, FoundRun, IndexedText, found_runs
from rlm.records.searching.words import fts_query, indexable

__all__ = [
    "FileTexts",
    "FoundRun",
    "IndexedText",
    "ReadFile",
    "SearchIndex",
    "SearchResult",
    "forget_everywhere",
    "index_path",
]

FOLDER = "search"
MAX_INDEXES = 50
MAX_ROW_CHARS = 20_000
"""Only this much of the beginning of a text is indexed."""

MAX_FILE_CHARS = 20_000_000
MAX_ID_CHARS = 500
MAX_FILE_ROWS = (1 << ROW_BITS) - 1
FILES_AT_ONCE = 50
SEARCH_SECONDS = 5.0
PROGRESS_STEPS = 20_000
"""After how many of its own instructions SQLite asks whether a search may continue."""

FULL = "the search index is full and does not contain newer runs"
DAMAGED = "the search index was damaged and is being rebuilt; search again in a moment"
ELSEWHERE = ("busy", "disk I/O", "locked", "readonly", "unable to open")
"""Parts of SQLite's messages if something other than the file is wrong."""

FAILURES = (OSError, sqlite3.Error, UnicodeError)


class FileTexts(NamedTuple):
    """What the index knows of a file: its stamp, where reading continues, and its identity.

    If the identity is the same, new texts are added; otherwise all of them are read again.
    """

    stamp: str
    end: int
    identity: str


class ReadFile(NamedTuple):
    """The texts of a file; with `adds`, they are added to those in the index."""

    path: str
    facts: FileTexts
    texts: Iterable[IndexedText]
    adds: bool = False


class SearchResult(NamedTuple):
    """Runs, newest first; `more`: there may be others. `seconds`: how long the search took."""

    runs: list[FoundRun]
    more: bool
    seconds: float


def index_path(root: Path, name: str) -> Path:
    """Return the path of the index with a name; the name is not part of the path."""
    return root / FOLDER / f"{hashlib.sha256(sendable(name).encode()).hexdigest()[:32]}.sqlite"


class SearchIndex:
    """One index. One thread writes at a time; searches may run at the same time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem: str | None = None
        self._writing = threading.Lock()
        self._searching = threading.Lock()
        self._reader: tuple[sqlite3.Connection, int] | None = None
        self._root_of: tuple[tuple[int, int], dict[int, str | None]] | None = None

    def close(self) -> None:
        with self._searching:
            self._drop_reader()

    # -- writing -----------------------------------------------------------------------------

    def known(self) -> dict[str, FileTexts]:
        """Return what is indexed, by path."""
        with self._writer() as connection:
            rows = connection.execute("select path, stamp, end, identity from files").fetchall()
        return {path: FileTexts(*facts) for path, *facts in rows}

    def put(
        self, path: str, facts: FileTexts, texts: Iterable[IndexedText], *, adds: bool = False
    ) -> None:
        """Replace the texts of a file, or add to them."""
        self.put_all([ReadFile(path, facts, texts, adds)])

    def put_all(self, files: Iterable[ReadFile]) -> None:
        """Put many files, several in one transaction, which is much faster."""
        with self._writer() as connection:
            try:
                for number, file in enumerate(files):
                    if number % FILES_AT_ONCE == 0:
                        _commit(connection)
                        connection.execute("begin immediate")
                    _put(connection, file)
                _commit(connection)
            finally:
                if connection.in_transaction:
                    connection.execute("rollback")

    def remove(self, paths: Iterable[str]) -> None:
        """Remove the texts of files that are gone."""
        with self._writer() as connection:
            for path in paths:
                connection.execute("begin immediate")
                _remove(connection, path)
                connection.execute("commit")

    @contextmanager
    def _writer(self) -> Generator[sqlite3.Connection, None, None]:
        """Open the index for writing; replace a file that can't be used."""
        with self._writing:
            try:
                _make_room(self.path)
                connection = database.opened_or_new(self.path)
            except FAILURES as error:
                self.problem = f"search is unavailable: {error}"
                raise ConfigError(self.problem) from error
            try:
                with closing(connection):
                    yield connection
                self.problem = None
            except sqlite3.DatabaseError as error:
                if "full" in str(error):
                    self.problem = FULL
                elif _is_damage(error):
                    database.delete(self.path)  # Damaged: the next use rebuilds it.
                    self.problem = DAMAGED
                else:
                    self.problem = f"the search index can't be written: {error}"
                raise ConfigError(self.problem) from error
            except FAILURES as error:
                self.problem = f"the search index can't be written: {error}"
                raise ConfigError(self.problem) from error

    # -- searching ---------------------------------------------------------------------------

    def search(
        self,
        query: str,
        *,
        most: int = 50,
        fits: Callable[[str], bool] = lambda root: True,
        only: Collection[str] | None = None,
        stop: threading.Event | None = None,
    ) -> SearchResult:
        """Return the newest root runs that `fits` and have all words of the query in one text.

        If there are few, the last word of the query may also be the beginning of a word.
        `only` limits the search to these runs. The search ends early after `SEARCH_SECONDS`, or
        when `stop` is set.
        """
        wanted = fts_query(query)
        if wanted is None:
            raise ConfigError("search for at least one word that consists of letters or digits")
        chosen = Chosen(fits if only is None else only.__contains__, only)
        found = self._found(wanted, query, most, chosen, stop)
        longer = fts_query(query, prefix=True)
        if len(found.runs) < most and not found.more and longer not in {wanted, None}:
            # Only if there is room: thousands of words may begin with a short one.
            found = self._found(str(longer), query, most, chosen, stop)
        return found

    def _found(
        self,
        wanted: str,
        query: str,
        most: int,
        chosen: Chosen,
        stop: threading.Event | None,
    ) -> SearchResult:
        began = time.monotonic()
        found: list[FoundRun] = []
        more = False
        with self._searching:
            connection = self._open_reader()
            if connection is None:
                return SearchResult([], False, 0.0)

            def is_over() -> int:
                late = time.monotonic() - began > SEARCH_SECONDS
                return int(late or (stop is not None and stop.is_set()))

            connection.set_progress_handler(is_over, PROGRESS_STEPS)
            try:
                for run in found_runs(connection, wanted, query, chosen, self._roots(connection)):
                    if len(found) >= most or is_over():
                        more = True
                        break
                    found.append(run)
            except sqlite3.OperationalError as error:
                if "interrupted" not in str(error):
                    raise self._unreadable(error) from error
                more = True
            except FAILURES as error:
                raise self._unreadable(error) from error
        return SearchResult(found, more, time.monotonic() - began)

    def _roots(self, connection: sqlite3.Connection) -> dict[int, str | None]:
        """Return the only root of each file, by file number; cached until the index changes."""
        (version,) = connection.execute("pragma data_version").fetchone()
        if self._root_of is None or self._root_of[0] != (id(connection), version):
            rows = connection.execute("select number, root from files").fetchall()
            self._root_of = (id(connection), version), dict(rows)
        return self._root_of[1]

    def _unreadable(self, error: Exception) -> ConfigError:
        """Return the error for an index that can't be read; delete it if it is damaged."""
        self._drop_reader()
        if not _is_damage(error):
            return ConfigError(f"the search index can't be read: {error}")
        database.delete(self.path)
        self.problem = DAMAGED
        return ConfigError(self.problem)

    def _open_reader(self) -> sqlite3.Connection | None:
        """Return a connection to the current file; None before the first write."""
        if self._reader is not None and self._reader[1] != database.inode_of(self.path):
            self._drop_reader()
        if self._reader is None:
            try:
                self._reader = database.opened_to_read(self.path)
            except FAILURES as error:
                raise ConfigError(f"the search index can't be read: {error}") from error
        return None if self._reader is None else self._reader[0]

    def _drop_reader(self) -> None:
        self._root_of = None
        if self._reader is not None:
            with suppress(sqlite3.Error):
                self._reader[0].close()
            self._reader = None


def _is_damage(error: Exception) -> bool:
    """Return whether the file is to blame, not its folder, the disk or another process."""
    if isinstance(error, sqlite3.OperationalError):
        return not any(word in str(error) for word in ELSEWHERE)
    return isinstance(error, sqlite3.DatabaseError | UnicodeError)


def forget_everywhere(root: Path, path: Path) -> None:
    """Remove the texts of a file from every index below a state folder: its run was removed."""
    try:
        indexes = list((root / FOLDER).glob("*.sqlite"))
    except OSError:
        return
    for each in indexes[: 2 * MAX_INDEXES]:
        with suppress(ConfigError):
            index = SearchIndex(each)
            if str(path) in index.known():
                index.remove([str(path)])


def _commit(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("commit")


# -- rows -----------------------------------------------------------------------------------------


def _put(connection: sqlite3.Connection, file: ReadFile) -> None:
    number, rows, chars = _file(connection, file.path) if file.adds else (None, 0, 0)
    if number is None:
        _remove(connection, file.path)
        number, rows, chars = _new_number(connection), 0, 0
    rows, chars = _insert(connection, number << ROW_BITS, rows, chars, file.texts)
    about = (rows, chars, _only_root(connection, number))
    connection.execute(
        "insert or replace into files values (?, ?, ?, ?, ?, ?, ?, ?)",
        (number, file.path, *file.facts, *about),
    )


def _file(connection: sqlite3.Connection, path: str) -> tuple[int | None, int, int]:
    row = connection.execute(
        "select number, rows, chars from files where path = ?", (path,)
    ).fetchone()
    return (None, 0, 0) if row is None else row


def _new_number(connection: sqlite3.Connection) -> int:
    (last,) = connection.execute("select coalesce(max(number), 0) from files").fetchone()
    return int(last) + 1


def _only_root(connection: sqlite3.Connection, number: int) -> str | None:
    """Return the root run of a file; None if it has several, or none."""
    rows = connection.execute(
        "select distinct root from texts where number >= ? and number < ? limit 2",
        (number << ROW_BITS, (number + 1) << ROW_BITS),
    ).fetchall()
    return str(rows[0][0]) if len(rows) == 1 else None


def _insert(
    connection: sqlite3.Connection,
    base: int,
    rows: int,
    chars: int,
    texts: Iterable[IndexedText],
) -> tuple[int, int]:
    for each in texts:
        text = sendable(each.text[:MAX_ROW_CHARS])
        if rows >= MAX_FILE_ROWS or chars + len(text) > MAX_FILE_CHARS:
            break
        if not text.strip():
            continue
        ids = (sendable(each.run_id)[:MAX_ID_CHARS], sendable(each.root)[:MAX_ID_CHARS])
        cell = None if each.cell is None else _small(each.cell)
        place = (_small(each.step), _small(each.event), each.kind, cell)
        values = (base + rows, *ids, *place, text)
        connection.execute("insert into texts values (?, ?, ?, ?, ?, ?, ?, ?)", values)
        connection.execute(
            "insert into words (rowid, text) values (?, ?)", (base + rows, indexable(text))
        )
        rows, chars = rows + 1, chars + len(text)
    return rows, chars


def _small(number: int) -> int:
    """Return a number that SQLite can hold; a log may contain any."""
    return min(max(number, 0), 1 << 40)


def _remove(connection: sqlite3.Connection, path: str) -> None:
    number, _, _ = _file(connection, path)
    if number is None:
        return
    first, last = number << ROW_BITS, (number + 1) << ROW_BITS
    within = (first, last)
    found = connection.execute(
        "select number, text from texts where number >= ? and number < ?", within
    )
    for row, text in found:
        connection.execute(
            "insert into words (words, rowid, text) values ('delete', ?, ?)", (row, indexable(text))
        )
    connection.execute("delete from texts where number >= ? and number < ?", within)
    connection.execute("delete from files where number = ?", (number,))


def _make_room(path: Path) -> None:
    """If there are too many indexes, remove the least recently used."""
    try:
        if path.exists():
            return
        others = sorted(path.parent.glob("*.sqlite"), key=lambda each: each.stat().st_mtime)
    except OSError:
        return
    for each in others[: max(0, len(others) - MAX_INDEXES + 1)]:
        database.delete(each)
