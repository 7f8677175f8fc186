"""Files that hold tables: recognized by their beginning, stamped, and hashed."""

import codecs
import contextlib
import glob
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from rlm.data.filesystem.opening import display_path
from rlm.errors import ConfigError

__all__ = [
    "TableFile",
    "TableFormat",
    "check_unchanged",
    "format_of",
    "is_parquet_folder",
    "is_table_file",
    "parquet_parts",
    "table_file",
    "table_in_parts",
]

TableFormat = Literal["parquet", "csv", "tsv", "sqlite", "duckdb"]

HASHED_WHOLE_BYTES = 64 << 20
"""For a larger file, only beginning, end and size are hashed: reading it all would take longer than
most queries."""
HASHED_PART_BYTES = 1 << 20

_PARQUET = b"PAR1"
_SQLITE = b"SQLite format 3\0"
_DUCKDB = b"DUCK"
_DUCKDB_AT = 8
_HEAD_BYTES = 16
_MAX_PARTS = 10_000
_PARQUET_SUFFIXES = (".parquet", ".pq")
_TABS = (".tsv", ".tab")
_PENDING: dict[str, str] = {"sqlite": "-wal", "duckdb": ".wal"}
_BEGUN = bytes.fromhex("d9d505f920a163d7")
"""How the journal of an unfinished SQLite transaction begins."""


class TableFile(NamedTuple):
    """A file that holds a table or a database; `stamp` shows whether it was changed.

    If a table is in several Parquet files, `more` holds the others.
    """

    path: str
    format: TableFormat
    stamp: tuple[int, ...]
    more: "tuple[TableFile, ...]" = ()

    @property
    def name(self) -> str:
        return Path(self.path).name

    @property
    def paths(self) -> list[str]:
        return [self.path, *(each.path for each in self.more)]

    def digest(self) -> str:
        """Return a hash of the content; blocking."""
        digest = hashlib.sha256(str(self.stamp[0]).encode())
        for each in self.more:
            digest.update(each.digest().encode())
        with Path(self.path).open("rb") as file:
            if self.stamp[0] <= HASHED_WHOLE_BYTES:
                while block := file.read(HASHED_PART_BYTES):
                    digest.update(block)
            else:
                digest.update(file.read(HASHED_PART_BYTES))
                file.seek(-HASHED_PART_BYTES, os.SEEK_END)
                digest.update(file.read(HASHED_PART_BYTES))
        return digest.hexdigest()


def is_table_file(path: Path) -> bool:
    """Return whether a file can only be a table; a CSV file is also a text unless asked for."""
    try:
        head, status = _head(path)
    except (OSError, ValueError):
        return False
    if not stat.S_ISREG(status.st_mode):
        return False
    return path.suffix.lower() in _PARQUET_SUFFIXES or format_of(head) is not None


def format_of(head: bytes) -> TableFormat | None:
    """Return the format shown by the beginning of a file, if it can only be a table."""
    if head.startswith(_PARQUET):
        return "parquet"
    if head.startswith(_SQLITE):
        return "sqlite"
    return "duckdb" if head[_DUCKDB_AT:].startswith(_DUCKDB) else None


def is_parquet_folder(path: Path) -> bool:
    """Return whether a folder holds Parquet files and nothing else."""
    if not _is_folder(path):
        return False
    found = False
    try:
        for each in _visible_files(path):
            if each.suffix.lower() not in _PARQUET_SUFFIXES:
                return False
            found = True
    except ConfigError:
        return False
    return found


def parquet_parts(path: Path) -> tuple[Path, ...] | None:
    """Return the Parquet files of a folder or pattern, which form one table; None for a file."""
    if _is_folder(path):
        found = [e for e in _visible_files(path) if e.suffix.lower() in _PARQUET_SUFFIXES]
    elif glob.has_magic(str(path)) and not os.path.lexists(path):
        named = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207 (it may be absolute)
        found = [Path(each) for each in named if not Path(each).is_dir()]
    else:
        return None
    if not found:
        raise ConfigError(f"{display_path(str(path))!r} contains no Parquet files")
    if len(found) > _MAX_PARTS:
        raise ConfigError(f"a table can have at most {_MAX_PARTS:,} files, not {len(found):,}")
    return tuple(found)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # for example a name that is too long
        return False


def _visible_files(folder: Path) -> Iterator[Path]:
    """Yield the files in and below a folder, except those named `_…` or `.…`, by convention."""

    def refuse(error: OSError) -> None:
        name = Path(error.filename or folder).name
        raise ConfigError(f"the folder {name!r} can't be read: {error.strerror}") from error

    for place, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(each for each in folders if not each.startswith(("_", ".")))
        for name in sorted(names):
            if not name.startswith(("_", ".")):
                yield Path(place, name)


def table_file(path: Path) -> TableFile:
    """Return a file as a table; ConfigError if it is not one."""
    path = path.absolute()
    try:
        head, status = _head(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"the file {path.name!r} can't be read: {reason}") from error
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"{path.name!r} is not a file; a table must be a file or a database")
    if not status.st_size:
        raise ConfigError(f"{path.name!r} is empty: it contains no table")
    form = format_of(head)
    if form is None and path.suffix.lower() in _PARQUET_SUFFIXES:
        raise ConfigError(f"{path.name!r} is not a Parquet file: it does not begin like one")
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ConfigError(f"{path.name!r} is encoded in UTF-16; save it as UTF-8")
    if form is None and b"\0" in head:
        raise ConfigError(f"{path.name!r} is not Parquet, CSV, or a SQLite or DuckDB database")
    tabs = path.suffix.lower() in _TABS
    form = form or ("tsv" if tabs else "csv")
    found = TableFile(str(path), form, _stamp(status, path, form))
    _check_settled(found)
    return found


def table_in_parts(paths: Sequence[Path]) -> TableFile:
    """Return a table whose rows are in one file or in several Parquet files, in this order."""
    first, *others = (table_file(path) for path in paths)
    if others and {each.format for each in (first, *others)} != {"parquet"}:
        raise ConfigError("a table in several files must consist only of Parquet files")
    return first._replace(more=tuple(others))


def check_unchanged(file: TableFile) -> None:
    """Raise ConfigError if a file is gone or was changed since it was described."""
    for each in file.more:
        check_unchanged(each)
    path = Path(file.path)
    try:
        now = _stamp(path.stat(), path, file.format)
    except OSError as error:
        raise ConfigError(f"{file.name!r} can no longer be read: {error.strerror}") from error
    if now != file.stamp:
        raise ConfigError(f"{file.name!r} changed after you passed it; ask again")
    _check_settled(file)


def _head(path: Path) -> tuple[bytes, os.stat_result]:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):  # A pipe would block.
        return b"", status
    with path.open("rb") as file:
        return file.read(_HEAD_BYTES), os.fstat(file.fileno())


def _stamp(status: os.stat_result, path: Path, form: TableFormat) -> tuple[int, ...]:
    """Return facts that change with a file, or with the pending changes beside a database."""
    beside = (0, 0)
    if form in _PENDING:
        with contextlib.suppress(OSError):
            found = Path(f"{path}{_PENDING[form]}").stat()
            beside = (found.st_size, found.st_mtime_ns) if found.st_size else beside
    return status.st_size, status.st_mtime_ns, *beside


def _check_settled(file: TableFile) -> None:
    """Raise ConfigError if another program's transaction is half written to a SQLite file.

    SQLite would wait for the lock, but our process can't see locks: it may only read.
    """
    if file.format != "sqlite":
        return
    try:
        with Path(f"{file.path}-journal").open("rb") as journal:
            begun = journal.read(len(_BEGUN)) == _BEGUN
    except OSError:
        return
    if begun:
        raise ConfigError(
            f"another program is writing to {file.name!r}, or was interrupted while writing: try "
            "again later, or open it once with sqlite3"
        )
