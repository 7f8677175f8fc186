"""Search the source files of a corpus for a pattern, in several processes at once."""

import os
import re
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from typing import Any, NamedTuple

from rlm._util.limited import JobLimits, Jobs, JobStopped
from rlm.data.corpus.catalog import Catalog, Source
from rlm.data.corpus.fulltext import SearchRefused
from rlm.data.corpus.indexing import LINES_SUFFIXES
from rlm.data.corpus.literals import PatternFacts, facts_of
from rlm.data.corpus.records import Fields

__all__ = ["Found", "Grepped", "grep_sources"]

SPAN_BYTES = 64 << 20
"""The work of one process; starting one takes as long as searching some ten megabytes."""
MOST_SPAN_BYTES = 256 << 20
"""The same in a large corpus for a pattern with a literal, which is found much faster."""
SPANS_AT_ONCE = 500
MAX_PATTERN_CHARS = 2_000
_PAGE = 1_000
_AT_ONCE = max(1, min(os.cpu_count() or 1, 8))
_LIMITS = JobLimits(seconds=30.0, memory_bytes=512 << 20, output_bytes=16 << 20)
_JOBS = Jobs("rlm.data.corpus.grep_worker", _LIMITS, at_once=_AT_ONCE, ready=_AT_ONCE)


class Found(NamedTuple):
    """A matching line: its source, the offset of the line or record, and its text.

    `line` is the line within a record, from 1; 0 for a text, whose lines are counted later.
    """

    source: Source
    place: int
    line: int
    text: str


class Grepped(NamedTuple):
    """Matches in the order of documents; `complete` is False if time ran out."""

    found: list[Found]
    changed: list[Source]
    complete: bool


class _Unit(NamedTuple):
    """The work of one process: parts of files."""

    sources: list[Source]
    spans: list[list[Any]]


def grep_sources(
    catalog: Catalog,
    pattern: str,
    *,
    most: int,
    ignore_case: bool,
    fields: Fields,
    seconds: float | None,
) -> Grepped:
    """Return the first matching lines; SearchRefused for a pattern that can't be used. Blocks."""
    literal = _checked(pattern, ignore_case).literal
    deadline = None if seconds is None else time.monotonic() + seconds
    found: list[Found] = []
    changed: dict[int, Source] = {}
    units = _units(catalog, _unit_bytes(catalog, literal))
    waiting: deque[tuple[_Unit, Future[dict[str, Any]]]] = deque()

    def search(unit: _Unit, context: Context) -> dict[str, Any]:
        limits = _LIMITS if deadline is None else _within(deadline - time.monotonic())
        given = (unit.spans, pattern, ignore_case, most, list(fields))
        answer: dict[str, Any] = context.run(_JOBS.call, "search_spans", *given, limits=limits)
        return answer

    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="rlm-grep")
    try:
        while len(found) < most:
            while len(waiting) < 2 * _AT_ONCE and (unit := next(units, None)) is not None:
                waiting.append((unit, pool.submit(search, unit, copy_context())))
            if not waiting:
                return Grepped(found, list(changed.values()), True)
            if deadline is not None and time.monotonic() > deadline:
                return Grepped(found, list(changed.values()), False)
            unit, future = waiting.popleft()
            try:
                answer = future.result()
            except JobStopped as error:
                if deadline is not None and time.monotonic() >= deadline:
                    return Grepped(found, list(changed.values()), False)
                raise _refusal(error) from None
            for number, place, line, text in answer["matches"]:
                found.append(Found(unit.sources[number], place, line, text))
            changed.update((each.id, each) for each in _sources(unit, answer["changed"]))
        return Grepped(found[:most], list(changed.values()), True)
    finally:
        for _, future in waiting:
            future.cancel()
        pool.shutdown(wait=True, cancel_futures=True)


def _checked(pattern: str, ignore_case: bool) -> PatternFacts:
    if len(pattern) > MAX_PATTERN_CHARS:
        raise SearchRefused(f"a pattern can have at most {MAX_PATTERN_CHARS:,} characters")
    try:
        return facts_of(pattern, ignore_case=ignore_case)
    except (re.error, OverflowError, RecursionError) as error:
        raise SearchRefused(f"the pattern is not a valid regular expression: {error}") from None


def _within(seconds: float) -> JobLimits:
    return JobLimits(
        max(0.05, min(seconds, _LIMITS.seconds)), _LIMITS.memory_bytes, _LIMITS.output_bytes
    )


def _refusal(error: JobStopped) -> SearchRefused:
    if error.reason == "time":
        return SearchRefused(
            f"the pattern takes more than {_LIMITS.seconds:g} s on one part of the corpus: avoid "
            "nested repetitions, such as (a+)+"
        )
    return SearchRefused(f"the search failed ({error}); write a simpler pattern")


def _sources(unit: _Unit, numbers: Any) -> list[Source]:
    return [unit.sources[number] for number in numbers]


def _unit_bytes(catalog: Catalog, literal: str) -> int:
    """Return how much one process searches: a fair share, within bounds."""
    most = MOST_SPAN_BYTES if literal else SPAN_BYTES
    return max(SPAN_BYTES, min(catalog.totals().bytes // (4 * _AT_ONCE), most))


def _units(catalog: Catalog, unit_bytes: int) -> Iterator[_Unit]:
    """Yield all files in units of similar size, in the order of their documents."""
    unit, size = _Unit([], []), 0
    for source in _all_sources(catalog):
        path = os.fsencode(catalog.path_of(source.root, source.name)).hex()
        for start in range(0, source.stamp.size, unit_bytes):
            end = min(start + unit_bytes, source.stamp.size)
            if unit.spans and (size + end - start > unit_bytes or len(unit.spans) == SPANS_AT_ONCE):
                yield unit
                unit, size = _Unit([], []), 0
            unit.sources.append(source)
            unit.spans.append([path, *source.stamp, start, end, source.kind in LINES_SUFFIXES])
            size += end - start
    if unit.spans:
        yield unit


def _all_sources(catalog: Catalog) -> Iterator[Source]:
    last = 0
    while page := catalog.sources_after(last, _PAGE):
        yield from page
        last = page[-1].id
