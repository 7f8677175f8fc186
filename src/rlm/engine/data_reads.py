"""Sum up the data that the cells of a run received, in events of bounded size.

A cell may send a hundred thousand requests. Equal requests are counted, and adjacent parts of a
document are joined, so one event per method and cell usually holds everything; the rest follows
in further events, and no count is lost.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from rlm._util.text import sendable
from rlm.calls.scope import Scope
from rlm.data.answers import METHODS, Answered, Touched
from rlm.events import DataRead, DataRequest, DocumentRead

__all__ = ["DataReads"]

MAX_ENTRIES = 500
"""The most requests, documents and ranges in one event."""
MAX_CHARS = 100_000
TEXT_CHARS = 1_000
NAME_CHARS = 200
ERROR_CHARS = 600


class _Request(Struct):
    count: int = 0
    returned: int = 0
    failed: int = 0


class _Document(Struct):
    name: str
    bytes: int = 0
    found: int = 0
    matched: int = 0
    read: int = 0
    ranges: list[tuple[int, int]] = field(default_factory=list)


class _Open(Struct):
    """The contents of an event that is still being collected."""

    manifest: Mapping[str, Any]
    count: int = 0
    failed: int = 0
    from_journal: int = 0
    returned: int = 0
    bytes: int = 0
    seconds: float = 0.0
    error: str | None = None
    requests: dict[str, _Request] = field(default_factory=dict)
    documents: dict[tuple[int, str], _Document] = field(default_factory=dict)
    ranges: int = 0
    chars: int = 0

    @property
    def is_full(self) -> bool:
        entries = len(self.requests) + len(self.documents) + self.ranges
        return entries >= MAX_ENTRIES or self.chars >= MAX_CHARS


class DataReads:
    """The reads of one run since they were last reported."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._open: dict[tuple[str, str], _Open] = {}

    def add(
        self,
        manifest: Mapping[str, Any],
        method: str,
        text: str,
        answer: Answered,
        *,
        seconds: float = 0.0,
        error: str | None = None,
        from_journal: bool = False,
    ) -> None:
        """Count one request to the source of a manifest, and its answer."""
        key = manifest["id"], method if method in METHODS else "other"
        one = self._open.setdefault(key, _Open(manifest))
        one.count += 1
        one.failed += error is not None
        one.from_journal += from_journal
        one.returned += answer.returned
        one.bytes += answer.bytes
        one.seconds += seconds
        if error is not None:
            one.error = sendable(_short(error, ERROR_CHARS))
        if text:
            shown = sendable(_short(text, TEXT_CHARS))
            if (request := one.requests.get(shown)) is None:
                request = one.requests[shown] = _Request()
                one.chars += len(shown)
            request.count += 1
            request.returned += answer.returned
            request.failed += error is not None
        for touched in answer.documents:
            self._touch(self._open.setdefault(key, _Open(manifest)), method, touched)
            self._report_if_full(key)
        self._report_if_full(key)

    def report(self) -> None:
        """Emit what was read since the last report."""
        for key in sorted(self._open):
            self._emit(key)

    def _touch(self, one: _Open, method: str, touched: Touched) -> None:
        name = sendable(_short(touched.name, NAME_CHARS))
        place = (touched.id, "" if touched.id else name)
        if (document := one.documents.get(place)) is None:
            document = one.documents[place] = _Document(name)
            one.chars += len(name)
        if method == "search":
            document.found += 1
        elif method == "grep":
            document.matched += 1
        else:
            document.read += 1
            document.bytes = touched.bytes
            if touched.end:
                one.ranges -= len(document.ranges)
                document.ranges = _with_range(document.ranges, touched.start, touched.end)
                one.ranges += len(document.ranges)

    def _report_if_full(self, key: tuple[str, str]) -> None:
        if key in self._open and self._open[key].is_full:
            self._emit(key)

    def _emit(self, key: tuple[str, str]) -> None:
        one = self._open.pop(key)
        manifest = one.manifest
        facts: dict[str, Any] = {
            name: getattr(one, name)
            for name in ("count", "failed", "from_journal", "returned", "bytes", "seconds", "error")
        }
        self._scope.emit(
            DataRead,
            cell=self._scope.cell,
            source=manifest["source"],
            source_id=key[0],
            method=key[1],
            requests=tuple(
                DataRequest(text=text, count=each.count, returned=each.returned, failed=each.failed)
                for text, each in one.requests.items()
            ),
            documents=tuple(
                DocumentRead(
                    id=place[0],
                    name=each.name,
                    bytes=each.bytes,
                    found=each.found,
                    matched=each.matched,
                    read=each.read,
                    ranges=tuple(each.ranges),
                )
                for place, each in one.documents.items()
            ),
            source_documents=manifest.get("documents", 0),
            source_bytes=manifest.get("bytes", 0),
            **facts,
        )


def _with_range(ranges: list[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    """Return sorted ranges with one more; those that meet are joined."""
    before = [each for each in ranges if each[1] < start]
    after = [each for each in ranges if each[0] > end]
    for low, high in ranges[len(before) : len(ranges) - len(after)]:
        start, end = min(start, low), max(end, high)
    return [*before, (start, end), *after]


def _short(text: str, most: int) -> str:
    """Return a text, or its beginning and its length if it is too long."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"
