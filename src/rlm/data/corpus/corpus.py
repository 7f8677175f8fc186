"""Read a corpus: documents by number or name, search, grep, samples."""

import random
import threading
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from rlm._util.text import counted, sendable
from rlm.data.corpus.catalog import MAX_FIELDS, Catalog, Document
from rlm.data.corpus.folder import CorpusFolder
from rlm.data.corpus.fulltext import FullText, SearchRefused
from rlm.data.corpus.grepping import Found, grep_sources
from rlm.data.corpus.indexing import LINES_SUFFIXES
from rlm.data.corpus.passages import best_passage, words_of
from rlm.data.corpus.pieces import PIECE_BYTES
from rlm.data.corpus.reading import SourceChanged, read_part, whole_characters
from rlm.data.corpus.records import Fields, Record, Scalar, read_record
from rlm.errors import ConfigError

__all__ = ["Corpus", "GrepMatches", "Hit", "Match"]

MAX_DOCUMENT_BYTES = 16 << 20
"""A larger document is read in parts."""
MAX_HITS = 1_000
MAX_MATCHES = 10_000
MAX_SAMPLE = 10_000
_PAGE = 500
_SHOWN_FIELDS = 20


class Hit(NamedTuple):
    """A document that a search found, and the passage that matches best."""

    id: int
    name: str
    score: float
    line: int
    text: str
    fields: dict[str, Scalar]


class Match(NamedTuple):
    """A line that a pattern matches."""

    id: int
    name: str
    line: int
    text: str


class Part(NamedTuple):
    """A part of a document: its text, where it ends, and the size of the document, in bytes."""

    id: int
    name: str
    text: str
    end: int
    size: int


class GrepMatches(list[Match]):
    """Matching lines; not `complete` if time ran out; `changed` names files left out."""

    def __init__(self, matches: list[Match], *, complete: bool, changed: tuple[str, ...]) -> None:
        super().__init__(matches)
        self.complete = complete
        self.changed = changed


class Corpus(Mapping[int | str, str]):
    """The documents of a folder that `rlm index` made, by number. Nothing is held in memory.

    A document can also be looked up by its name. Threads may share a corpus, and it may be open in
    many processes while one writes to it; new documents are visible from the next search on.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        folder = CorpusFolder(Path(path))
        about = folder.read()
        self.path = folder.path
        self._id = str(about.get("id"))[:32]
        self._fields = Fields(about.get("text_field"), about.get("id_field"))
        if not folder.catalog.exists():
            raise ConfigError(f"{folder} is empty: rlm index did not finish its first batch")
        self._catalog = Catalog(folder)
        try:
            self._index = FullText(folder.index)
        except BaseException:
            self._catalog.close()
            raise
        self._changes = self._catalog.totals().changes
        self._lock = threading.Lock()

    def close(self) -> None:
        self._catalog.close()
        self._index.close()

    def __enter__(self) -> "Corpus":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- documents -------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._catalog.totals().documents

    @property
    def size_bytes(self) -> int:
        """The size of all documents in their source files."""
        return self._catalog.totals().bytes

    @property
    def id(self) -> str:
        """An id that is the same as long as the corpus has the same documents."""
        return f"{self._id}-{self.changes}"

    @property
    def changes(self) -> int:
        """A number that grows with every batch that is added or removed."""
        return self._catalog.totals().changes

    def kinds(self, limit: int = 8) -> list[tuple[str, int]]:
        """Return the commonest endings of file names, each with the number of its documents."""
        return self._catalog.kinds(limit)

    def field_names(self, limit: int = 50) -> list[str]:
        """Return the names of fields that `where` can compare."""
        return self._catalog.fields(limit)

    def __iter__(self) -> Iterator[int]:
        last = 0
        while page := self._catalog.documents_after(last, _PAGE):
            for each in page:
                yield each.id
            last = page[-1].id

    def names(self, after: int = 0, limit: int = _PAGE) -> list[tuple[int, str, int]]:
        """Return number, name and size in bytes of the next documents after one."""
        page = self._catalog.documents_after(after, max(0, min(limit, MAX_MATCHES)))
        return [(each.id, sendable(each.name), each.end - each.start) for each in page]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, int | str) and self._found(key) is not None

    def __getitem__(self, key: Any) -> str:
        """Return the text of a document by number or name; `corpus[key, a:b]` for bytes a to b."""
        if isinstance(key, tuple) and len(key) == 2 and isinstance(key[1], slice):
            start, stop = key[1].start or 0, key[1].stop
            return self.read(key[0], start, None if stop is None else stop - start)
        document = self._document(key)
        if document.end - document.start > MAX_DOCUMENT_BYTES:
            raise ConfigError(
                f"{sendable(document.name)} has {document.end - document.start:,} bytes, and at "
                f"most {MAX_DOCUMENT_BYTES:,} can be read at once: read a part, such as "
                f"corpus[{document.id}, 0:1000000]"
            )
        return self._text(document)

    def read(self, key: int | str, start: int = 0, size: int | None = None) -> str:
        """Return part of a document, by offsets in its UTF-8 bytes."""
        return self.part(key, start, size).text

    def part(self, key: int | str, start: int = 0, size: int | None = None) -> Part:
        """Return part of a document, with its end and the size of the document."""
        document = self._document(key)
        if not _is_integer(start) or start < 0:
            raise ConfigError("places in a document are counted from 0")
        if size is not None and (not _is_integer(size) or size < 0):
            raise ConfigError("the size of a part must be a number of bytes or None")
        most = MAX_DOCUMENT_BYTES if size is None else min(size, MAX_DOCUMENT_BYTES)
        if document.kind in LINES_SUFFIXES:
            encoded = self._text(document).encode()
            part, total = encoded[start : start + most], len(encoded)
        else:
            first = document.start + start
            part = read_part(document, first, min(document.end, first + most))
            total = document.end - document.start
        at_end = start + len(part) >= total
        first, last = whole_characters(part, is_first=start == 0, is_last=at_end)
        # A character that was cut at the end belongs to the next part.
        text = part[first:last].decode("utf-8", "replace")
        return Part(document.id, sendable(document.name), text, start + last, total)

    def sample(self, n: int, seed: int | str = 0) -> list[int]:
        """Return the numbers of n random documents, always the same for a seed."""
        if not _is_integer(n) or not 0 <= n <= MAX_SAMPLE:
            raise ConfigError(f"a sample can have 0 to {MAX_SAMPLE:,} documents")
        totals, chooser = self._catalog.totals(), random.Random(seed)
        wanted = min(n, totals.documents)
        if totals.documents * 20 < totals.last_document or wanted * 2 > totals.documents:
            ranks = set(chooser.sample(range(totals.documents), wanted))
            return [number for rank, number in enumerate(iter(self)) if rank in ranks]
        chosen: dict[int, None] = {}
        while len(chosen) < wanted:  # At least every 20th number is a document's.
            tried = [chooser.randint(1, totals.last_document) for _ in range(_PAGE)]
            there = self._catalog.existing(tried)
            chosen.update((number, None) for number in tried if number in there)
        return list(chosen)[:wanted]

    # -- search ----------------------------------------------------------------------------------

    def search(self, query: str, k: int = 10, where: Mapping[str, Any] | None = None) -> list[Hit]:
        """Return the k documents that match best, by BM25, best first.

        Words are alternatives; "words in quotes" must be adjacent, +word must occur, -word must
        not, name:word must occur in the name. `where` compares fields of records with a value,
        a list of values, or bounds: `{"year": {">=": 1990}, "lang": ["en", "de"]}`.
        """
        _check_text("query", query)
        _check_number("k", k, MAX_HITS)
        if where is not None:
            self._check_fields(where)
        self._refresh()
        words, hits, limit = words_of(query), dict[int, Hit](), k + 5
        while True:
            pieces = self._index.search(query, limit, where)
            for piece in pieces:
                if len(hits) < k and piece.document not in hits:
                    document = self._catalog.document(piece.document)
                    if document is not None:  # None if it was removed a moment ago.
                        hits[document.id] = self._hit(document, piece, words)
            if len(hits) == k or len(pieces) < limit or limit >= 20 * MAX_HITS:
                return list(hits.values())
            limit *= 4

    def grep(
        self,
        pattern: str,
        max_matches: int = 50,
        ignore_case: bool = False,
        *,
        seconds: float | None = None,
    ) -> GrepMatches:
        """Return the first lines that a regular expression matches, in the order of documents."""
        _check_text("pattern", pattern)
        _check_number("max_matches", max_matches, MAX_MATCHES)
        if seconds is not None and not (_is_number(seconds) and seconds > 0):
            raise SearchRefused("seconds must be a positive number or None")
        found, changed, complete = grep_sources(
            self._catalog,
            pattern,
            most=max_matches,
            ignore_case=ignore_case,
            fields=self._fields,
            seconds=seconds,
        )
        matches = [match for each in found if (match := self._match(each)) is not None]
        names = tuple(
            sendable(str(self._catalog.path_of(each.root, each.name))) for each in changed
        )
        return GrepMatches(matches, complete=complete, changed=names)

    def _check_fields(self, where: object) -> None:
        """Refuse fields that no document has: they are usually misspelt."""
        if not isinstance(where, Mapping):
            raise SearchRefused(
                "where must be a dict of field names and values, such as {'year': 1990}"
            )
        known = self._catalog.fields(MAX_FIELDS)
        names = set(known)
        unknown = [each for each in where if not isinstance(each, str) or each not in names]
        if unknown and len(known) < MAX_FIELDS:  # If there are too many, only the first are noted.
            listed = ", ".join(known[:_SHOWN_FIELDS]) or "none"
            more = ", …" if len(known) > _SHOWN_FIELDS else ""
            raise SearchRefused(
                f"no document has a field {str(unknown[0])[:50]!r}; fields: {listed}{more}"
            )

    def _refresh(self) -> None:
        """Make batches visible that were added since the last refresh."""
        with self._lock:
            if (now := self.changes) != self._changes:
                self._index.reload()
                self._changes = now

    def _hit(self, document: Document, piece: Any, words: list[str]) -> Hit:
        name, fields = sendable(document.name), dict[str, Scalar]()
        try:
            if document.kind in LINES_SUFFIXES:
                record = self._record(document)
                text, before, fields = record.text, 0, record.fields
            else:
                end = min(document.end, piece.start + PIECE_BYTES)
                part = read_part(document, piece.start, end)
                text, before = part.decode("utf-8", "replace"), piece.line - 1
        except SourceChanged as error:
            return Hit(document.id, name, piece.score, piece.line, f"({error})", {})
        passage = best_passage(text, words)
        line = before + passage.lines_before + 1
        return Hit(document.id, name, piece.score, line, passage.text, fields)

    def _match(self, found: Found) -> Match | None:
        document = self._catalog.document_at(found.source.id, found.place)
        if document is None:
            return None
        line = found.line or self._line_at(document, found.place)
        return Match(document.id, sendable(document.name), line, found.text)

    def _line_at(self, document: Document, place: int) -> int:
        start, line = self._catalog.line_mark(document.id, place)
        start = max(start, document.start)
        try:
            return line + read_part(document, start, place).count(b"\n")
        except SourceChanged:
            return line

    # -- reading ---------------------------------------------------------------------------------

    def _found(self, key: int | str) -> Document | None:
        if isinstance(key, str):
            return self._catalog.named(key)
        return self._catalog.document(key) if 0 < key < 1 << 63 else None

    def _document(self, key: Any) -> Document:
        if isinstance(key, bool) or not isinstance(key, int | str):
            raise KeyError("a document is identified by a number or a name")
        document = self._found(key)
        if document is None:
            shown = repr(key)[:100]
            raise KeyError(f"no document {shown} among {counted(len(self), 'document')}")
        return document

    def _text(self, document: Document) -> str:
        if document.kind in LINES_SUFFIXES:
            return self._record(document).text
        part = read_part(document, document.start, document.end)
        return part.decode("utf-8", "replace")

    def _record(self, document: Document) -> Record:
        part = read_part(document, document.start, document.end)
        record = read_record(part, self._fields)
        if record is None:
            raise SourceChanged(f"{sendable(document.name)} changed since; run rlm index again")
        return record


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise SearchRefused(f"{name} must be a string, not {type(value).__name__}")


def _check_number(name: str, value: object, most: int) -> None:
    if not _is_integer(value) or not 1 <= value <= most:
        raise SearchRefused(f"{name} must be an integer from 1 to {most:,}")


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
