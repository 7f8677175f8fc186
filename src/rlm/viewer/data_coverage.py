"""What a tree of runs read of its data, by document and by statement, as the host recorded it.

Records may come from strangers: every number is limited before it is added, and so is what is
kept of very many documents.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict

from rlm.events import DataRead, DocumentRead
from rlm.viewer.coverage import union
from rlm.viewer.index import CODES
from rlm.viewer.record_files import RecordFile

__all__ = ["data_read_by", "data_reads"]

MAX_LISTED = 1_000
MAX_KEPT = 200_000
"""How many documents and statements are counted separately."""
MAX_RANGES = 2_000_000
MERGED_RANGES = 1_000
"""If a document has more ranges than this, they are merged again."""
NAME_CHARS = 300
TEXT_CHARS = 1_200
_MOST = 1 << 53
_CODES = frozenset({CODES["data_read"]})


class _Document(Struct):
    name: str
    bytes: int = 0
    found: int = 0
    matched: int = 0
    read: int = 0
    bytes_read: int = 0
    ranges: list[tuple[int, int]] = field(default_factory=list)


class _Statement(Struct):
    """A statement, or all requests of one method."""

    method: str
    text: str = ""
    count: int = 0
    returned: int = 0
    failed: int = 0


def data_reads(file: RecordFile, run_ids: list[str]) -> Iterable[DataRead]:
    """Yield what a tree of runs was given of its data."""
    for _, _, event in file.tree_events(run_ids, codes=_CODES):
        if isinstance(event, DataRead):
            yield event


def data_read_by(events: Iterable[DataRead]) -> dict[str, Any]:
    """Return documents and statements, first those of which most was read or returned."""
    found = _Found()
    for event in events:
        found.take(event)
    return found.plain()


class _Found:
    def __init__(self) -> None:
        self._sources: dict[str, tuple[str, int, int]] = {}
        self._documents: dict[tuple[str, int, str], _Document] = {}
        self._statements: dict[tuple[str, str], _Statement] = {}
        self._methods: dict[str, _Statement] = {}
        self._ranges = 0
        self._exact = True

    def take(self, event: DataRead) -> None:
        source_id, method = event.source_id[:NAME_CHARS], event.method[:NAME_CHARS]
        if len(self._sources) < MAX_LISTED:
            totals = _number(event.source_documents), _number(event.source_bytes)
            self._sources[source_id] = event.source[:NAME_CHARS], *totals
        whole = self._kept(self._methods, method, _Statement(method))
        _add(whole, event.count, event.returned, event.failed)
        for request in event.requests:
            text = request.text[:TEXT_CHARS]
            one = self._kept(self._statements, (method, text), _Statement(method, text))
            _add(one, request.count, request.returned, request.failed)
        for touched in event.documents:
            key = source_id, touched.id, "" if touched.id else touched.name[:NAME_CHARS]
            one_document = _Document(touched.name[:NAME_CHARS])
            self._touch(self._kept(self._documents, key, one_document), touched)

    def _kept(self, kept: dict[Any, Any], key: Any, new: Any) -> Any:
        """Return what is kept for a key; beyond the limit, a value that is not kept."""
        if key in kept or len(kept) < MAX_KEPT:
            return kept.setdefault(key, new)
        self._exact = False
        return new

    def _touch(self, document: _Document, touched: DocumentRead) -> None:
        document.found += _number(touched.found)
        document.matched += _number(touched.matched)
        document.read += _number(touched.read)
        document.bytes = max(document.bytes, _number(touched.bytes))
        new = [(_number(start), _number(end)) for start, end in touched.ranges]
        if self._ranges + len(new) > MAX_RANGES:
            self._exact = False
            return
        before = len(document.ranges)
        document.ranges += new
        if len(document.ranges) >= MERGED_RANGES:
            document.ranges = union(document.ranges)
        self._ranges += len(document.ranges) - before

    def plain(self) -> dict[str, Any]:
        for each in self._documents.values():
            size = sum(end - start for start, end in union(each.ranges))
            each.bytes_read = min(size, each.bytes) if each.bytes else size
        documents = sorted(
            self._documents.values(),
            key=lambda each: (-each.bytes_read, -each.read, -each.matched, -each.found, each.name),
        )
        statements = sorted(self._statements.values(), key=lambda each: (-each.count, each.text))
        listed = [asdict(each) for each in documents[:MAX_LISTED]]
        for row in listed:
            del row["ranges"]
        return {
            "sources": sorted({kind for kind, _, _ in self._sources.values()}),
            "source_documents": sum(count for _, count, _ in self._sources.values()),
            "source_bytes": sum(size for _, _, size in self._sources.values()),
            "documents_found": sum(each.found > 0 for each in documents),
            "documents_matched": sum(each.matched > 0 for each in documents),
            "documents_read": sum(each.read > 0 for each in documents),
            "bytes_read": sum(each.bytes_read for each in documents),
            "documents": listed,
            "more_documents": len(documents) - len(listed),
            "methods": [asdict(each) for each in list(self._methods.values())[:MAX_LISTED]],
            "statements": [asdict(each) for each in statements[:MAX_LISTED]],
            "more_statements": max(0, len(statements) - MAX_LISTED),
            "exact": self._exact,
        }


def _add(one: _Statement, count: int, returned: int, failed: int) -> None:
    one.count += _number(count)
    one.returned += _number(returned)
    one.failed += _number(failed)


def _number(value: int) -> int:
    return max(0, min(value, _MOST))
