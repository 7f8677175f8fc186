"""The catalog of a corpus: which files it covers, and where in them each document is.

The catalog and the full-text index can't be changed in one step. Indexed pieces therefore have
increasing numbers, and the catalog records up to which number both agree; anything beyond is
deleted from the index before the next change. A source to delete is first marked as removed.
"""

import contextlib
import os
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rlm._util.disks import is_full
from rlm.data.corpus.folder import CorpusFolder, damaged, forbidden, full
from rlm.data.filesystem.opening import Stamp, display_path
from rlm.errors import ConfigError

__all__ = ["Catalog", "Document", "Source", "Totals"]

_SCHEMA = """
create table roots (id integer primary key, path blob not null unique, label text not null unique);
create table sources (
  id integer primary key autoincrement,
  root integer not null, name blob not null, kind text not null,
  size integer not null, mtime_ns integer not null,
  state integer not null, done_bytes integer not null, done_lines integer not null,
  documents integer not null
);
create unique index sources_by_name on sources (root, name) where state < 2;
create index sources_removed on sources (state) where state <> 1;
create table documents (
  id integer primary key, source integer not null,
  start integer not null, "end" integer not null, name text
);
create index documents_by_source on documents (source, start);
create index documents_by_name on documents (name) where name is not null;
create table line_marks (
  document integer not null, start integer not null, line integer not null,
  primary key (document, start)
) without rowid;
create table fields (name text primary key) without rowid;
create table kinds (name text primary key, documents integer not null) without rowid;
create table totals (
  last_piece integer, last_document integer, documents integer, bytes integer, changes integer
);
insert into totals values (0, 0, 0, 0, 0);
"""

_MOUNTS = "create table if not exists mounts (root integer primary key, path blob not null)"

INDEXING, DONE, REMOVED = 0, 1, 2
_BUSY_SECONDS = 60.0
MAX_FIELDS = 1_000
_DOCUMENT = (
    'select d.id, d.source, d.start, d."end", d.name, s.root, s.name, s.kind, s.size, s.mtime_ns '
    "from documents d join sources s on s.id = d.source and s.state < 2 "
)
_SOURCE = (
    "select id, root, name, kind, size, mtime_ns, state, done_bytes, done_lines, documents "
    "from sources "
)


class Source(NamedTuple):
    """A file that documents come from, and how far it is indexed."""

    id: int
    root: int
    name: str
    kind: str
    stamp: Stamp
    state: int
    done_bytes: int
    done_lines: int
    documents: int


class Document(NamedTuple):
    """A part of a file, or all of it."""

    id: int
    source: int
    start: int
    end: int
    name: str
    path: Path
    kind: str
    stamp: Stamp


class Totals(NamedTuple):
    """Totals of the corpus; `changes` grows with every finished batch."""

    last_piece: int
    last_document: int
    documents: int
    bytes: int
    changes: int


class Catalog:
    """One connection to the catalog; a writer has a transaction open until `commit`."""

    def __init__(self, folder: CorpusFolder, *, writes: bool = False) -> None:
        self._folder = folder
        self._roots: dict[int, tuple[Path, str]] = {}
        with self._reporting():
            self._db = _connected(folder.catalog, writes=writes)
            if writes and not self._db.execute("select 1 from sqlite_master").fetchone():
                self._db.executescript(f"begin; {_SCHEMA} commit;")
            if writes:
                self._db.execute(_MOUNTS)
            self.totals()

    def close(self) -> None:
        self._db.close()

    # -- reading ---------------------------------------------------------------------------------

    def totals(self) -> Totals:
        rows = self._all("select last_piece, last_document, documents, bytes, changes from totals")
        if len(rows) != 1 or not all(isinstance(each, int) for each in rows[0]):
            raise damaged(self._folder.path, "catalog.sqlite")
        return Totals(*rows[0])

    def roots(self) -> list[tuple[int, Path, str]]:
        rows = self._all("select id, path, label from roots order by id")
        return [(number, Path(os.fsdecode(path)), label) for number, path, label in rows]

    def kinds(self, limit: int) -> list[tuple[str, int]]:
        """Return the commonest endings of file names, each with the number of its documents."""
        return self._all(
            "select name, documents from kinds where documents > 0 "
            "order by documents desc, name limit ?",
            limit,
        )

    def fields(self, limit: int) -> list[str]:
        """Return the names of fields that documents have, or had."""
        return [
            name for (name,) in self._all("select name from fields order by name limit ?", limit)
        ]

    def document(self, number: int) -> Document | None:
        rows = self._all(f"{_DOCUMENT} where d.id = ?", number)
        return self._document(rows[0]) if rows else None

    def named(self, name: str) -> Document | None:
        """Return the first document with a name."""
        rows: list[Any] = []
        with contextlib.suppress(UnicodeEncodeError):
            rows = self._all(f"{_DOCUMENT} where d.name = ? order by d.id limit 1", name)
        for number, _, label in [] if rows else self.roots():
            inside = "" if name == label else name.removeprefix(f"{label}/")
            if inside != name:
                rows = self._all(
                    f"{_DOCUMENT} where s.root = ? and s.name = ? and d.name is null limit 1",
                    number,
                    os.fsencode(inside),
                )
            if rows:
                break
        return self._document(rows[0]) if rows else None

    def documents_after(self, number: int, limit: int) -> list[Document]:
        """Return the next documents after one, in the order of their numbers."""
        rows = self._all(f"{_DOCUMENT} where d.id > ? order by d.id limit ?", number, limit)
        return [self._document(row) for row in rows]

    def existing(self, numbers: list[int]) -> set[int]:
        """Return which of the numbers belong to documents."""
        marks = ",".join("?" * len(numbers))
        found = self._all(
            "select d.id from documents d join sources s on s.id = d.source and s.state < 2 "
            f"where d.id in ({marks})",
            *numbers,
        )
        return {number for (number,) in found}

    def document_at(self, source: int, start: int) -> Document | None:
        """Return the document that contains an offset of a file."""
        rows = self._all(
            f"{_DOCUMENT} where d.source = ? and d.start <= ? order by d.start desc limit 1",
            source,
            start,
        )
        return self._document(rows[0]) if rows else None

    def line_mark(self, document: int, start: int) -> tuple[int, int]:
        """Return the last known line start at or before an offset: its offset and line."""
        rows = self._all(
            "select start, line from line_marks where document = ? and start <= ? "
            "order by start desc limit 1",
            document,
            start,
        )
        return rows[0] if rows else (-1, 1)

    def sources_after(self, number: int, limit: int) -> list[Source]:
        """Return the next sources that have documents, in the order of their numbers."""
        rows = self._all(
            f"{_SOURCE} where id > ? and state < 2 and documents > 0 order by id limit ?",
            number,
            limit,
        )
        return [_source(row) for row in rows]

    def path_of(self, root: int, name: str) -> Path:
        """Return where a file is; a file that is itself a root has an empty name."""
        path = self._root(root)[0]
        return path / name if name else path

    def _root(self, number: int) -> tuple[Path, str]:
        if number not in self._roots:
            self._roots = {each: (path, label) for each, path, label in self.roots()}
        return self._roots[number]

    def _document(self, row: Any) -> Document:
        number, source, start, end, name, root, file, kind, size, mtime_ns = row
        try:
            path, label = self._root(root)
            inside = os.fsdecode(file)
        except (KeyError, TypeError):
            raise damaged(self._folder.path, "catalog.sqlite") from None
        whole = f"{label}/{inside}" if inside else label
        where = path / inside if inside else path
        return Document(
            number, source, start, end, name or whole, where, kind, Stamp(size, mtime_ns)
        )

    # -- writing ---------------------------------------------------------------------------------

    def root(self, path: Path, mount: Path | None) -> int:
        """Return the number of a folder or file that is indexed, and note its mount point."""
        number = self._root_number(path)
        self._run("delete from mounts where root = ?", number)
        if mount is not None:
            self._run("insert into mounts values (?, ?)", number, os.fsencode(mount))
        return number

    def mount(self, root: int) -> Path | None:
        """Return the mount point that a root was on when it was indexed."""
        rows = self._all("select path from mounts where root = ?", root)
        return Path(os.fsdecode(rows[0][0])) if rows else None

    def _root_number(self, path: Path) -> int:
        encoded = os.fsencode(path)
        rows = self._all("select id from roots where path = ?", encoded)
        if rows:
            return int(rows[0][0])
        taken = {label for _, _, label in self.roots()}
        name = path.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace") or "root"
        label, again = name, 2
        while label in taken:
            label, again = f"{name}-{again}", again + 1
        return self._insert("insert into roots (path, label) values (?, ?)", encoded, label)

    def label(self, root: int) -> str:
        return self._root(root)[1]

    def source(self, root: int, name: str) -> Source | None:
        rows = self._all(
            f"{_SOURCE} where root = ? and name = ? and state < 2", root, os.fsencode(name)
        )
        return _source(rows[0]) if rows else None

    def add_source(self, root: int, name: str, kind: str, stamp: Stamp) -> Source:
        number = self._insert(
            "insert into sources (root, name, kind, size, mtime_ns, state, done_bytes, done_lines, "
            "documents) values (?, ?, ?, ?, ?, 0, 0, 0, 0)",
            *(root, os.fsencode(name), kind, *stamp),
        )
        return Source(number, root, name, kind, stamp, INDEXING, 0, 0, 0)

    def add_documents(self, rows: list[tuple[int, int, int, int, str | None]]) -> None:
        """Add documents: number, source, start, end, and a name if it is not the file's."""
        with self._reporting():
            self._db.executemany("insert into documents values (?, ?, ?, ?, ?)", rows)

    def add_line_marks(self, rows: list[tuple[int, int, int]]) -> None:
        with self._reporting():
            self._db.executemany("insert or replace into line_marks values (?, ?, ?)", rows)

    def add_kinds(self, numbers: Mapping[str, int]) -> None:
        with self._reporting():
            self._db.executemany(
                "insert into kinds values (?, ?) on conflict (name) "
                "do update set documents = documents + excluded.documents",
                list(numbers.items()),
            )

    def add_fields(self, names: Iterable[str]) -> None:
        """Note the names of fields; if there are too many, only the first."""
        with self._reporting():
            self._db.executemany(
                "insert or ignore into fields select ? where (select count(*) from fields) < ?",
                [(name, MAX_FIELDS) for name in names],
            )

    def note_progress(self, source: Source) -> None:
        """Record how far a source is indexed."""
        self._run(
            "update sources set state = ?, done_bytes = ?, done_lines = ?, documents = ? "
            "where id = ?",
            *(source.state, source.done_bytes, source.done_lines, source.documents, source.id),
        )

    def mark_removed(self, numbers: list[int]) -> None:
        """Mark sources whose documents must be deleted; commits, before the index changes."""
        with self._reporting():
            self._db.executemany(
                "update totals set documents = documents - "
                "(select count(*) from documents where source = ?1), bytes = bytes - "
                '(select coalesce(sum("end" - start), 0) from documents where source = ?1)',
                [(number,) for number in numbers],
            )
            for number in numbers:
                self._db.execute(
                    "update kinds set documents = documents - (select documents from sources "
                    "where id = ?1) where name = (select kind from sources where id = ?1)",
                    (number,),
                )
            self._db.executemany(
                "update sources set state = 2 where id = ?", [(number,) for number in numbers]
            )
            self._db.commit()

    def removed(self) -> list[int]:
        return [number for (number,) in self._all("select id from sources where state = 2")]

    def forget(self, numbers: list[int]) -> None:
        """Delete sources that the index has deleted."""
        with self._reporting():
            for number in numbers:
                self._db.execute(
                    "delete from line_marks where document in "
                    "(select id from documents where source = ?)",
                    (number,),
                )
                self._db.execute("delete from documents where source = ?", (number,))
                self._db.execute("delete from sources where id = ?", (number,))

    def unfinished(self) -> list[int]:
        return [number for (number,) in self._all("select id from sources where state = 0")]

    def finish_batch(
        self, last_piece: int, last_document: int, documents: int, size_bytes: int, is_new: bool
    ) -> None:
        """Commit the batch: catalog and index agree up to this piece. `is_new` if not empty."""
        self._run(
            "update totals set last_piece = ?, last_document = ?, documents = documents + ?, "
            "bytes = bytes + ?, changes = changes + ?",
            *(last_piece, last_document, documents, size_bytes, is_new),
        )
        with self._reporting():
            self._db.commit()

    def begin_scan(self) -> None:
        """Prepare to note which sources still exist, and which files must be read."""
        with self._reporting():
            self._db.executescript(
                "drop table if exists temp.seen; drop table if exists temp.files_to_read;"
                "create temp table seen (id integer primary key);"
                "create temp table files_to_read (id integer primary key, root integer, name blob);"
            )

    def note_seen(self, numbers: list[int]) -> None:
        with self._reporting():
            self._db.executemany(
                "insert or ignore into seen values (?)", [(number,) for number in numbers]
            )

    def note_to_read(self, files: list[tuple[int, str]]) -> None:
        with self._reporting():
            self._db.executemany(
                "insert into files_to_read (root, name) values (?, ?)",
                [(root, os.fsencode(name)) for root, name in files],
            )

    def files_to_read(self) -> Iterator[tuple[int, str]]:
        """Yield the files that must be read: root and name."""
        last = 0
        while rows := self._all(
            "select id, root, name from files_to_read where id > ? order by id limit 1000", last
        ):
            for _, root, name in rows:
                yield root, os.fsdecode(name)
            last = rows[-1][0]

    def unseen(self, root: int) -> list[tuple[int, str]]:
        """Return the sources of a root that the scan did not find, with their names."""
        rows = self._all(
            "select id, name from sources where root = ? and state < 2 and id not in "
            "(select id from seen)",
            root,
        )
        return [(number, os.fsdecode(name)) for number, name in rows]

    # -- SQLite ----------------------------------------------------------------------------------

    def _all(self, sql: str, *values: Any) -> list[Any]:
        with self._reporting():
            return self._db.execute(sql, values).fetchall()

    def _run(self, sql: str, *values: Any) -> None:
        with self._reporting():
            self._db.execute(sql, values)

    def _insert(self, sql: str, *values: Any) -> int:
        with self._reporting():
            number = self._db.execute(sql, values).lastrowid
        assert number is not None
        return number

    @contextlib.contextmanager
    def _reporting(self) -> Generator[None, None, None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise self._problem(error) from error

    def _problem(self, error: sqlite3.DatabaseError) -> ConfigError:
        """Return the error for an SQLite error; only a malformed file means a damaged corpus."""
        path, folder = self._folder.catalog, self._folder
        if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
            return ConfigError(f"{folder} was closed; open it again with Corpus(…)")
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code == sqlite3.SQLITE_BUSY:
            return ConfigError(f"another process is writing to {folder}; try again")
        if code in (sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN) and path.exists():
            return forbidden(path)
        if code == sqlite3.SQLITE_READONLY and path.with_name(f"{path.name}-journal").exists():
            return ConfigError(
                f"{folder} was being written when the process was killed, and you can't write "
                f"there; its owner can repair it with rlm index -o {folder}"
            )
        if code == sqlite3.SQLITE_READONLY:
            return forbidden(path, "write")
        if is_full(error):
            return full(folder.path)
        if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL):
            return ConfigError(f"{display_path(path)} can't be used: {error}; check the disk")
        return damaged(folder.path, f"catalog.sqlite: {error}")


def _connected(path: Path, *, writes: bool) -> sqlite3.Connection:
    """Open the catalog. A transaction left by a killed process is rolled back first."""
    options: dict[str, Any] = {"timeout": _BUSY_SECONDS, "check_same_thread": False}
    if writes:
        db: sqlite3.Connection = sqlite3.connect(path, **options)
        db.execute("pragma synchronous = normal")
        return db
    uri = f"{path.absolute().as_uri()}?mode="
    if path.with_name(f"{path.name}-journal").exists():
        with contextlib.suppress(sqlite3.Error):  # the folder may be read-only
            db = sqlite3.connect(f"{uri}rw", uri=True, **options)
            with contextlib.closing(db):
                db.execute("select count(*) from sqlite_master")
    readable: sqlite3.Connection = sqlite3.connect(f"{uri}ro", uri=True, **options)
    return readable


def _source(row: Any) -> Source:
    number, root, name, kind, size, mtime_ns, state, done_bytes, done_lines, documents = row
    stamp = Stamp(size, mtime_ns)
    return Source(
        number, root, os.fsdecode(name), kind, stamp, state, done_bytes, done_lines, documents
    )
