"""What users write to pass tables and databases: `table`, `tables` and `database`."""

import glob
import os
import re
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, TypeGuard

from msgspec import Struct

from rlm.data.corpus.folder import is_corpus, refuse_corpus
from rlm.data.files import is_parquet_folder, is_table_file, parquet_parts
from rlm.data.frames import is_frame
from rlm.data.places.addresses import Fetched, Place, is_address, place
from rlm.errors import ConfigError

__all__ = [
    "Database",
    "GivenCorpus",
    "GivenTables",
    "OpenCorpus",
    "database",
    "given_data",
    "table",
    "tables",
    "tables_of",
]

_NOT_A_WORD = re.compile(r"\W+")
_MAX_NAME_CHARS = 60
_CSV = (".csv", ".tsv", ".tab")
_CORPUS = ("rlm.data.corpus.corpus", "Corpus")


class GivenTables(Struct, frozen=True):
    """Tables by name: paths of files, tuples of paths of their parts, frames, and places."""

    by_name: dict[str, Any]


class GivenCorpus(Struct, frozen=True):
    """The folder of a corpus, made by `rlm index`."""

    path: Path


class OpenCorpus(Protocol):
    """A `Corpus` of `rlm.data.corpus`, for type checkers; few programs import that module."""

    path: Path

    def grep(self, pattern: str, max_matches: int = 50) -> list[Any]: ...


class Database(Struct, frozen=True):
    """A database by URL, or by the `$NAME` of an environment variable that holds its URL."""

    url: str
    schemas: tuple[str, ...]

    @property
    def variable(self) -> str | None:
        """The name of the environment variable, if one was given."""
        return self.url[1:] if self.url.startswith("$") else None

    def resolved(self) -> str:
        """Return the URL itself, which may hold a password."""
        if self.variable is None:
            return self.url
        found = os.environ.get(self.variable, "")
        if not found:
            raise ConfigError(
                f"the environment variable {self.variable} is not set: it must contain the "
                "database's URL"
            )
        return found


def table(value: Any, name: str | None = None) -> GivenTables:
    """Pass a file (Parquet, CSV, TSV, SQLite, DuckDB) or a frame as a table for `ctx.sql`.

    A file may be elsewhere: `s3://bucket/x.parquet`, or the value of `place`. The Parquet files of
    a folder, or of a pattern such as `s3://bucket/x/*.parquet`, are parts of one table.
    """
    return _named([(name, value)])


def tables(*values: Any, **named: Any) -> GivenTables:
    """Pass several files or frames as tables; tables are named after their files, or by keyword."""
    if not values and not named:
        raise ConfigError("tables() needs at least one file or frame, such as tables('orders.csv')")
    return _named([*((None, each) for each in values), *named.items()])


def database(url: str, schemas: list[str] | tuple[str, ...] = ("public",)) -> Database:
    """Let cells query a database, read-only: `postgresql://…`, `sqlite:///path`, or `$VARIABLE`.

    In PostgreSQL, only the listed schemas are shown and searched.
    """
    if not isinstance(url, str) or not url:
        raise ConfigError("database() needs a URL, such as 'postgresql://reader@host/sales'")
    if isinstance(schemas, str) or not schemas or not all(isinstance(s, str) for s in schemas):
        raise ConfigError("schemas= must be a list of names, such as schemas=['public']")
    return Database(url, tuple(schemas))


def given_data(value: object) -> GivenTables | GivenCorpus | Database | None:
    """Return a context as data for queries; None if it is anything else."""
    if isinstance(value, GivenTables | GivenCorpus | Database):
        return value
    if _is_open_corpus(value):
        return GivenCorpus(value.path)
    if is_frame(value):
        return _named([(None, value)])
    if isinstance(value, PathLike):
        path = Path(os.fsdecode(value))
        if is_corpus(path):
            return GivenCorpus(path)
        is_table = is_table_file(path) or is_parquet_folder(path)
        return _named([(None, path)]) if is_table else None
    if isinstance(value, Mapping) and any(map(_is_table, value.values())):
        return _tables_by_name(value)
    return _tables_of_list(value) if isinstance(value, (list, tuple)) else None


def _tables_of_list(values: Sequence[Any]) -> GivenTables | None:
    if values and is_frame(values[0]):
        raise ConfigError("frames in a list have no names: pass a dict, such as {'orders': frame}")
    if not values or not isinstance(values[0], PathLike):  # A list may have millions of texts.
        return None
    paths = [Path(os.fsdecode(each)) for each in values if isinstance(each, PathLike)]
    if len(paths) < len(values) or not all(map(is_table_file, paths)):
        return None
    return _named([(None, path) for path in paths])


def _tables_by_name(value: Mapping[Any, Any]) -> GivenTables:
    others = [str(name) for name, each in value.items() if not _is_table(each)]
    if others:
        raise ConfigError(
            f"{others[0]!r} is not a table: a dict of tables can contain only frames and paths"
        )
    for name, each in value.items():
        if isinstance(each, PathLike):
            path = Path(os.fsdecode(each))
            refuse_corpus(path)
            if path.is_file() and path.suffix.lower() not in _CSV and not is_table_file(path):
                raise ConfigError(
                    f"{str(name)!r} is not a table: {path.name!r} is read as text. Pass texts with "
                    f"files('…'); if it contains CSV, use tables({_plain_name(str(name))}='…')"
                )
    return _named([(str(name), each) for name, each in value.items()])


def tables_of(fetched: Fetched) -> GivenTables | None:
    """Return fetched files as tables, if they can only be that; they may be one table."""
    if not all(map(is_table_file, fetched.paths)):
        return None
    if fetched.place.is_table:
        return _named([(None, fetched)])
    return _named([(None, path) for path in fetched.paths])


def _is_open_corpus(value: object) -> TypeGuard[OpenCorpus]:
    """Return whether a value is a `Corpus`, by its name.

    Few programs need that module, and another thread may be importing it.
    """
    return any((kind.__module__, kind.__qualname__) == _CORPUS for kind in type(value).__mro__)


def _is_table(value: object) -> bool:
    return is_frame(value) or isinstance(value, PathLike | Place | Fetched)


def _table_name(path: Path) -> str:
    """Return the name of a file without its suffix, or of the folder of a pattern."""
    fixed = [each for each in path.parts if not glob.has_magic(each)]
    return path.stem if len(fixed) == len(path.parts) or path.exists() else "".join(fixed[-1:])


def _named(given: list[tuple[str | None, Any]]) -> GivenTables:
    """Give every table a unique name that needs no quotes in SQL."""
    by_name: dict[str, Any] = {}
    for name, value in given:
        if isinstance(value, str):
            if not value:
                raise ConfigError("the name of a table's file is empty")
            value = place(value) if is_address(value) else value
        if isinstance(value, Place | Fetched):
            name = name or value.table_name
        elif isinstance(value, (str, PathLike)):
            path = Path(os.fsdecode(value))
            name = name or _table_name(path)
            value = parquet_parts(path) or path
        elif not is_frame(value):
            raise ConfigError(
                "a table must be a file, a place, or a pandas, polars or PyArrow frame, not "
                f"{type(value).__name__}"
            )
        wanted = free = _plain_name(name or "table")
        number = 2
        while free.casefold() in {each.casefold() for each in by_name}:
            free, number = f"{wanted}_{number}", number + 1
        by_name[free] = value
    return GivenTables(by_name)


_WORDS_OF_SQL = """
add all alter analyse analyze and anti any array as asc asof asymmetric at authorization
autoincrement between binary both by case cast check collate collation column commit
concurrently constraint create cross current_date current_time current_timestamp default
deferrable delete desc describe distinct do drop else end escape except exists false fetch for
foreign freeze from full glob group having ilike in index initially inner insert intersect into
is isnull join lambda lateral leading left like limit natural not nothing notnull null offset on
only or order outer overlaps pivot pivot_longer pivot_wider placing positional primary qualify
raise references returning right select semi set show similar some summarize symmetric table
tablesample then to trailing transaction true union unique unpack unpivot update using values
variadic verbose when where window with
"""
_RESERVED = frozenset(_WORDS_OF_SQL.split())
"""Words that can't be names in DuckDB or SQLite; such a table gets an underscore."""


def _plain_name(name: str) -> str:
    plain = _NOT_A_WORD.sub("_", name).strip("_")[:_MAX_NAME_CHARS]
    if not plain or plain[0].isdigit():
        plain = f"t_{plain}".rstrip("_")
    return "data" if plain == "table" else f"{plain}_" if plain.lower() in _RESERVED else plain
