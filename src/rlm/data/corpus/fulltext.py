"""The full-text index of a corpus, by tantivy: pieces of documents, their names and fields."""

import contextlib
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from rlm._util.disks import is_full
from rlm._util.distribution import install_command
from rlm._util.text import sendable
from rlm.data.corpus.folder import damaged, forbidden, full
from rlm.data.filesystem.opening import display_path
from rlm.errors import ConfigError

__all__ = [
    "FullText",
    "FullTextWriter",
    "Piece",
    "PieceFound",
    "SearchRefused",
    "can_lock",
    "require_tantivy",
]

HEAP_BYTES = 160_000_000
"""How much memory all writing threads may use together."""
MAX_QUERY_CHARS = 2_000
MAX_CONDITIONS = 20
MAX_CHOICES = 100

_SYNTAX = re.compile(r"[\[\]{}*~^\\/<>`]")
_FIELD = re.compile(r"(?<!\w)(?!(?:name|text):)([^\s:\"()+\-]*):")
_SPECIAL = re.compile(r"\W")
_LARGEST = 1 << 63
_DOT = "\ue02e"
"""A private-use character, which is not printable and so never in the name of a field."""
_ATTEMPTS = 3
_FILE_NAME = re.compile(r'filepath: "([^"/\\]+)"')
_OF_THE_SYSTEM = re.compile(
    r'kind: (?:StorageFull|ReadOnlyFilesystem|Uncategorized|QuotaExceeded), message: "([^"]+)"'
)
_COMPARISONS = frozenset((">=", ">", "<=", "<"))
_LOCK = ".tantivy-meta.lock"
_NOT_LINKED = (".managed.json", ".lock")
"""The list of files that the writer may delete, and the locks."""


class SearchRefused(Exception):
    """A search that can't be made; the message is one line that says what to write instead."""


class Piece(NamedTuple):
    """A part of a document that is indexed by itself: at most some 100,000 characters."""

    source: int
    number: int
    document: int
    start: int
    line: int
    text: str
    name: str
    fields: Mapping[str, str | int | float | bool]


class PieceFound(NamedTuple):
    """A piece that matches a query: where it is, and how well it matches."""

    score: float
    document: int
    start: int
    line: int


def require_tantivy() -> Any:
    """Return tantivy; ConfigError if it is not installed."""
    try:
        return import_module("tantivy")
    except ImportError as error:
        raise ConfigError(
            f"a corpus needs tantivy, which is not installed: {install_command('corpus')}"
        ) from error


def _schema(tantivy: Any) -> Any:
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("source", indexed=True)
    builder.add_unsigned_field("piece", indexed=True, fast=True)
    for name in ("document", "start", "line"):
        builder.add_unsigned_field(name, fast=True)
    builder.add_text_field("text")
    builder.add_text_field("name")
    builder.add_json_field("fields", tokenizer_name="raw", fast=True)
    return builder.build()


class FullTextWriter:
    """The one writer of an index."""

    def __init__(self, path: Path, threads: int) -> None:
        self._tantivy = require_tantivy()
        self._corpus = path.parent
        path.mkdir(exist_ok=True)
        with _Reporting(self._corpus):
            self._index = self._tantivy.Index(_schema(self._tantivy), str(path))
            self._writer = self._index.writer(HEAP_BYTES, threads)

    def add(self, piece: Piece) -> None:
        document = self._tantivy.Document()
        document.add_unsigned("source", piece.source)
        document.add_unsigned("piece", piece.number)
        document.add_unsigned("document", piece.document)
        document.add_unsigned("start", piece.start)
        document.add_unsigned("line", piece.line)
        document.add_text("text", piece.text)
        document.add_text("name", piece.name)
        if piece.fields:
            fields = {_stored_name(name): value for name, value in piece.fields.items()}
            document.add_json("fields", fields)
        self._writer.add_document(document)

    def delete_source(self, number: int) -> None:
        # By a query: delete_documents_by_term would look for an int as a signed number, in vain.
        query = self._tantivy.Query.term_query(self._index.schema, "source", number)
        self._writer.delete_documents_by_query(query)

    def delete_after(self, piece: int) -> None:
        """Delete the pieces with higher numbers."""
        query = self._tantivy.Query.range_query(
            self._index.schema, "piece", self._tantivy.FieldType.Unsigned, piece + 1
        )
        self._writer.delete_documents_by_query(query)

    def commit(self) -> None:
        with _Reporting(self._corpus):
            self._writer.commit()

    def close(self) -> None:
        """Wait until segments are merged; uncommitted changes are lost."""
        with _Reporting(self._corpus):
            self._writer.rollback()
            self._writer.wait_merging_threads()


class FullText:
    """An index open for reading; `reload` makes newer batches visible."""

    def __init__(self, path: Path) -> None:
        self._tantivy = require_tantivy()
        self._corpus = path.parent
        self._links = None if can_lock(path) else _IndexLinks(path)
        with _Reporting(self._corpus):
            if not self._tantivy.Index.exists(str(path)):
                raise damaged(self._corpus, "index")
            home = path if self._links is None else self._links.path
            self._index = self._with_links(lambda: self._tantivy.Index.open(str(home)))
            self._index.config_reader("manual")
        self.reload()

    def reload(self) -> None:
        with _Reporting(self._corpus):
            self._with_links(self._index.reload)
            self._searcher = self._index.searcher()

    def _with_links(self, action: Callable[[], Any]) -> Any:
        """Run an action that reads the list of segments; retry if links were made too late."""
        if self._links is None:
            return action()
        for _ in range(_ATTEMPTS - 1):
            self._links.update()
            with contextlib.suppress(ValueError):
                return action()
        self._links.update()
        return action()

    def close(self) -> None:
        if self._links is not None:
            self._links.close()

    def search(self, query: str, limit: int, where: Mapping[str, Any] | None) -> list[PieceFound]:
        """Return the best pieces, best first; SearchRefused if the request is malformed."""
        parsed = self._parsed(query, where or {})
        with _Reporting(self._corpus):
            hits = self._searcher.search(parsed, limit, count=False).hits
            places = [address for _, address in hits]
            documents, starts, lines = (
                self._searcher.fast_field_values(name, places)
                for name in ("document", "start", "line")
            )
        scores = [float(score) for score, _ in hits]
        return [PieceFound(*each) for each in zip(scores, documents, starts, lines, strict=True)]

    def _parsed(self, query: str, where: Mapping[str, Any]) -> Any:
        if len(query) > MAX_QUERY_CHARS:
            raise SearchRefused(f"a query can have at most {MAX_QUERY_CHARS:,} characters")
        if len(where) > MAX_CONDITIONS:
            raise SearchRefused(f"where can have at most {MAX_CONDITIONS} fields")
        # Ranges, wildcards and so on could make one query as expensive as thousands. A colon is
        # more often punctuation than the end of a field's name.
        plain = _FIELD.sub(r"\1 ", _SYNTAX.sub(" ", sendable(query)))
        words, _ = self._index.parse_query_lenient(plain, ["text", "name"])
        kinds = self._tantivy.Query
        if not where:
            return words
        if not query.strip():
            words = kinds.all_query()
        must = self._tantivy.Occur.Must
        conditions = [
            (must, kinds.boost_query(kinds.const_score_query(each, 1.0), 0.0))
            for name, value in where.items()
            for each in self._conditions(name, value)
        ]
        return kinds.boolean_query([(must, words), *conditions])

    def _conditions(self, name: object, value: object) -> list[Any]:
        """Return the queries for one field: a value, one of several, or bounds such as `>=`."""
        if not isinstance(name, str) or not name or not name.isprintable():
            raise SearchRefused("where must be a dict of field names and values")
        if isinstance(value, dict):
            return [self._range(name, value)]
        choices = value if isinstance(value, list | tuple) else [value]
        if not 1 <= len(choices) <= MAX_CHOICES:
            raise SearchRefused(f"where[{name!r}] must compare with 1 to {MAX_CHOICES} values")
        should = self._tantivy.Occur.Should
        equal = [(should, self._equal(name, each)) for each in choices]
        return [self._tantivy.Query.boolean_query(equal)]

    def _equal(self, name: str, value: object) -> Any:
        if isinstance(value, int | float) and not isinstance(value, bool):
            if not _is_number(value):
                raise SearchRefused(
                    f"where[{name!r}] must compare with numbers from -2**63 to 2**63, not "
                    f"{value!s:.40}"
                )
            return self._range(name, {">=": value, "<=": value})  # 3 is 3.0
        if not isinstance(value, str | bool):
            raise SearchRefused(f"where[{name!r}] must compare with strings, numbers or bools")
        path = "fields." + _stored_name(name).replace("\\", "\\\\")
        term = sendable(value) if isinstance(value, str) else value
        return self._tantivy.Query.term_query(self._index.schema, path, term)

    def _range(self, name: str, bounds: dict[Any, Any]) -> Any:
        numbers = [each for each in bounds.values() if _is_number(each)]
        if not bounds or not _COMPARISONS.issuperset(bounds) or len(numbers) < len(bounds):
            raise SearchRefused(f"where[{name!r}] takes bounds such as {{'>=': 1990, '<': 2000}}")
        path = "fields." + _SPECIAL.sub(r"\\\g<0>", _stored_name(name))
        both = []
        for sign, value in bounds.items():  # In one query, bounds of two types make tantivy panic.
            number = format(Decimal(repr(value)), "f")
            words, problems = self._index.parse_query_lenient(f"{path}:{sign}{number}", ["text"])
            if problems:
                raise SearchRefused(
                    f"where[{name[:50]!r}] does not support bounds; compare with values"
                )
            both.append((self._tantivy.Occur.Must, words))
        return self._tantivy.Query.boolean_query(both)


def _stored_name(name: str) -> str:
    """Return the indexed name of a field: in tantivy's queries, a dot separates a path."""
    return sendable(name).replace(".", _DOT)


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -_LARGEST <= value < _LARGEST  # not NaN either


class _Reporting:
    """Turn errors of tantivy, and panics of Rust, into the error for a damaged corpus."""

    def __init__(self, corpus: Path) -> None:
        self._corpus = corpus

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        if isinstance(error, ConfigError):
            return
        if isinstance(error, OSError | ValueError) or (kind and kind.__name__ == "PanicException"):
            first_line = str(error).partition("\n")[0][:200]
            if "PermissionDenied" in first_line or isinstance(error, PermissionError):
                named = _FILE_NAME.search(first_line)
                raise forbidden(self._corpus / "index" / (named[1] if named else "")) from error
            if is_full(first_line):
                raise full(self._corpus) from error
            if system := _OF_THE_SYSTEM.search(first_line):
                raise ConfigError(
                    f"{display_path(self._corpus)} can't be used: {system[1]}; check the disk"
                ) from error
            raise damaged(self._corpus, f"index: {first_line}") from error


def can_lock(index: Path) -> bool:
    """Return whether this user can lock an index, as a reader does briefly."""
    file = index / _LOCK
    effective = os.access in os.supports_effective_ids
    return os.access(file if file.exists() else index, os.W_OK, effective_ids=effective)


class _IndexLinks:
    """A temporary folder with links to the files of an index in a read-only folder.

    tantivy locks a file beside the index even to read, so this folder has a lock file of its own.
    The real lock would keep the writer from deleting files that are about to be opened; without
    it, opening is retried.
    """

    def __init__(self, index: Path) -> None:
        self._index = index.absolute()
        self.path = Path(tempfile.mkdtemp(prefix="rlm-corpus-"))
        # A corpus need not be closed: the folder is removed with it, or at exit.
        self._remove = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def update(self) -> None:
        """Link the files that exist now, and drop links to those that are gone."""
        try:
            there = {each.name for each in self._index.iterdir()}
            names = {name for name in there if not name.endswith(_NOT_LINKED)}
            linked = {each.name for each in self.path.iterdir() if each.is_symlink()}
            for name in names - linked:
                (self.path / name).symlink_to(self._index / name)
            for name in linked - names:
                (self.path / name).unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(f"the index can't be opened read-only: {error.strerror}") from error

    def close(self) -> None:
        self._remove()
