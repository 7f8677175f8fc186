"""Files of events, indexed and read by seeking: logs, journals, and logs of the reference engine.

A place is a number that only its file can interpret: a byte of a log, or the row of a journal and a
line in it. Everything blocks and is called from threads. The index grows in small portions, so that
a request gets what is known so far while a large file is read for the first time.
"""

import os
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from rlm.errors import ConfigError
from rlm.events import Event, RunStarted
from rlm.logger import encoded
from rlm.records.journal import database
from rlm.records.trajectories import Skipped, read
from rlm.records.trajectories.decoding import MAX_LINE_BYTES, Line, event_of, lines_of
from rlm.records.trajectories.reference import ReferenceSource
from rlm.records.trajectories.sources import JournalSource, changed_lately, opened
from rlm.viewer.index import FileIndex, RunIndex
from rlm.viewer.outlines import Forest

__all__ = [
    "EventFile",
    "JournalFile",
    "LogFile",
    "RecordFile",
    "ReferenceFile",
    "Stamp",
    "Unknown",
    "open_event_file",
    "stamp_of",
]

LINE_BITS = 20
MAX_ROWS = 1 << 43
"""The limit that makes a place fit into 64 bits."""

Placed = tuple[int, int, bytes, bool]
"""The place of a line, the place of the next, its text, and whether it is torn."""


class Unknown(ConfigError):
    """There is no such run, step, event or text here."""


class EventFile(Protocol):
    """One file. Every line is an event or is skipped."""

    path: Path
    one_event_per_place: bool
    """Whether there is only one event at every place."""

    def read_on(self, start: int, skipped: Skipped) -> Iterator[Placed]:
        """Yield the lines from a place on."""

    def lines_at(self, places: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """Yield the lines at some places, in ascending order; a place may have several."""

    def may_grow(self) -> bool:
        """Return whether the file may still be written to."""


class LogFile:
    """A log, read line by line, as fast as possible."""

    one_event_per_place = True

    def __init__(self, path: Path) -> None:
        self.path = path

    def read_on(self, start: int, skipped: Skipped) -> Iterator[Placed]:
        with opened(self.path) as file:
            at = file.seek(start)
            while text := file.readline(MAX_LINE_BYTES + 1):
                if text[-1] != 10 and len(text) > MAX_LINE_BYTES:
                    for line in lines_of(file, skipped, start=at, stop=at + 1):
                        at = file.seek(line.end)
                    continue
                end = at + len(text)
                yield at, end, text, text[-1] != 10
                at = end

    def lines_at(self, places: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        with opened(self.path) as file:
            for place in places:
                file.seek(place)
                yield place, file.readline(MAX_LINE_BYTES + 1)

    def may_grow(self) -> bool:
        return changed_lately(self.path)


class JournalFile:
    """A journal. Each of its rows holds some lines and never changes."""

    one_event_per_place = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = database.Lock(path.with_suffix(".lock"))

    def read_on(self, start: int, skipped: Skipped) -> Iterator[Placed]:
        first, line = start >> LINE_BITS, start & ((1 << LINE_BITS) - 1)
        with database.reading(self.path) as connection:
            rows = connection.execute(
                "select number, lines from events where number >= ? and number < ? order by number",
                (first, MAX_ROWS),
            )
            for number, lines in rows:
                base = number << LINE_BITS
                for place, text in _lines_in(lines, base):
                    if number > first or place - base >= line:
                        yield place, place + 1, text, False

    def lines_at(self, places: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        row, lines = -1, dict[int, bytes]()
        with database.reading(self.path) as connection:
            for place in places:
                if place >> LINE_BITS != row:
                    row = place >> LINE_BITS
                    found = connection.execute(
                        "select lines from events where number = ?", (row,)
                    ).fetchone()
                    lines = dict(_lines_in(found[0], row << LINE_BITS)) if found else {}
                if place in lines:
                    yield place, lines[place]

    def may_grow(self) -> bool:
        """Return whether a run holds the lock; the kernel releases the locks of dead processes."""
        return self._lock.is_taken()


def _lines_in(lines: object, base: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a row with their places; a foreign row may hold anything."""
    texts = lines.splitlines(keepends=True) if isinstance(lines, bytes) else []
    return enumerate(texts[: 1 << LINE_BITS], base)


class ReferenceFile:
    """A log of the reference engine, converted to our events: several share a place."""

    one_event_per_place = False

    def __init__(self, source: ReferenceSource) -> None:
        self.path = source.path
        self._source = source

    def read_on(self, start: int, skipped: Skipped) -> Iterator[Placed]:
        glances = self._source.glances(start, skipped, Skipped())
        ends = {place: end for place, end, glance in glances if glance is None}
        for place, event in self._source.events(list(ends.items()), Skipped()):
            yield place, ends[place], encoded(event) + b"\n", False

    def lines_at(self, places: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        spans = [(place, place + 1) for place in dict.fromkeys(places)]
        for place, event in self._source.events(spans, Skipped()):
            yield place, encoded(event)

    def may_grow(self) -> bool:
        return self._source.may_grow()


def open_event_file(path: Path) -> EventFile:
    """Recognise a file by its first bytes; raise ConfigError if it can't be read."""
    source = read.source_of(path)
    if isinstance(source, JournalSource):
        return JournalFile(path)
    return ReferenceFile(source) if isinstance(source, ReferenceSource) else LogFile(path)


PORTION = 2_000
BEGINNING_BYTES = 4_096
Stamp = tuple[tuple[int, int, int] | None, ...]
"""The inode, size and time of a file, which change when it does."""


def stamp_of(path: Path) -> Stamp:
    """Return the stamp of a file and of SQLite's write-ahead log beside it."""
    return _stat(path), _stat(f"{path}-wal")


def _stat(path: Path | str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - a Path for each of thousands is slow
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


class RecordFile:
    """A file and its index, opened when first needed. `is_read`: the first pass is done."""

    def __init__(self, path: Path, *, hides_settings: bool = False) -> None:
        self.path = path
        self.hides_settings = hides_settings
        self.is_read = False
        self.problem: str | None = None
        self._file: EventFile | None = None
        self._index = FileIndex()
        self._stamp: Stamp | None = None
        self._beginning = b""
        self._is_asleep = False
        self._reading = threading.Lock()
        self._indexing = threading.RLock()
        self._forest: tuple[tuple[int, int, bool], Forest] | None = None

    # -- keeping up --------------------------------------------------------------------------

    def refresh(self) -> bool:
        """Read what was added; return whether there was anything."""
        with self._reading:
            stamp = stamp_of(self.path)
            if stamp == self._stamp:
                return False
            self._is_asleep = False
            try:
                self._read_on(stamp)
                self.problem = None
            except ConfigError as error:
                self.problem = str(error)
            self._stamp = stamp
            self.is_read = True
            return True

    def _read_on(self, stamp: Stamp) -> None:
        index, file = self._index, self._file
        before, self._beginning = self._beginning, _beginning_of(self.path)
        is_another = _was_replaced(self._stamp, stamp) or not self._beginning.startswith(before)
        # The kind may not be known before the first event: journals begin empty.
        if file is None or not index.events or is_another:
            index, file = FileIndex(), open_event_file(self.path)
            if not self._index.events:  # Otherwise requests use the old index until the end.
                with self._indexing:
                    self._file, self._index = file, index
        lines = file.read_on(index.end, index.skipped)
        while portion := list(islice(lines, PORTION)):
            with self._indexing:
                for place, end, text, torn in portion:
                    index.take(place, end, text, torn)
        with self._indexing:
            self._file, self._index = file, index

    def sleep(self) -> None:
        """Drop the index but keep the outlines; it is rebuilt when needed."""
        self.forest()
        with self._reading, self._indexing:
            self._file, self._index, self._is_asleep = None, FileIndex(), True

    def wake(self) -> None:
        """Bring the whole index up to date."""
        if self._is_asleep:
            with self._reading:
                self._stamp = None
        self.refresh()

    def may_grow(self) -> bool:
        """Return whether the file may still be written to."""
        return self._file is not None and self._file.may_grow()

    def may_run(self) -> bool:
        """Return whether a run of the file may still be running."""
        return self.forest().is_unfinished and self.may_grow()

    @property
    def events(self) -> int:
        return self._index.events

    @property
    def progress(self) -> float:
        """How much of the file has been read, from 0 to 1."""
        if self.is_read:
            return 1.0
        seen = _stat(self.path)
        if seen is None or self._file is None:
            return 0.0
        return min(1.0, self._index.end / max(1, seen[1]))

    def add_skipped_to(self, skipped: Skipped) -> None:
        """Add what was skipped here."""
        own = self._index.skipped
        if own.counts or own.notices:
            with self._indexing:
                skipped.include(own)

    # -- runs --------------------------------------------------------------------------------

    def forest(self) -> Forest:
        """Return the runs as trees, as of now."""
        with self._indexing:
            index = self._index
            if self._is_asleep and self._forest is not None:
                return self._forest[1]
            known = self._forest
            is_same = known is not None and known[0][:2] == (id(index), index.end)
            if is_same and known is not None and not known[1].is_unfinished:
                return known[1]  # Nothing can change any more: no need to check the file.
            may_run = self.may_grow()
            state = (id(index), index.end, may_run)
            if self._forest is None or self._forest[0] != state:
                self._forest = state, Forest(index.runs, may_run=may_run)
            return self._forest[1]

    def version(self) -> tuple[int, int]:
        """Return a value that changes whenever something is added."""
        return id(self._index), self._index.end

    def identity(self) -> str:
        """Return a value that stays the same as long as events are only added to the file."""
        with self._indexing:
            runs = self._index.runs
            first = next(iter(runs.values()), None)
            opening = None if first is None else (first.opening.run_id, first.opening.wall_time)
            restarts = sum(run.attempts - 1 for run in runs.values())
            adds = self._file is not None and self._file.one_event_per_place
            seen = _stat(self.path)
            return repr((seen and seen[0], opening, restarts, adds or self._index.end))

    def index_of(self, run_id: str) -> RunIndex:
        """Return the index of a run; it may grow at its end while you use it."""
        if run_id not in self._index.runs:
            self.wake()  # Another request may have dropped the index to make room.
        try:
            return self._index.runs[run_id]
        except KeyError:
            raise Unknown("this run is no longer in its file; load the page again") from None

    # -- events ------------------------------------------------------------------------------

    def events_at(self, run_id: str, numbers: Sequence[int]) -> Iterator[tuple[int, Event]]:
        """Yield some events of a run, by their numbers in ascending order.

        A run that was resumed since the numbers were read may not have all of them yet.
        """
        run, wanted = self.index_of(run_id), set(numbers)
        places = [run.places[number] for number in numbers if number < len(run.places)]
        for _, number, event in self._numbered(places, {run_id: run}):
            if number in wanted:
                yield number, event

    def tree_events(
        self,
        run_ids: Iterable[str],
        *,
        codes: frozenset[int] | None = None,
        after: int = -1,
        passes: Callable[[bytes], bool] | None = None,
    ) -> Iterator[tuple[int, int, Event]]:
        """Yield places, numbers and events of several runs, in the order of the file.

        They can be limited to types (`codes` as in `rlm.viewer.index`), to places after one, or to
        lines that pass a first check.
        """
        runs = {run_id: self.index_of(run_id) for run_id in run_ids}
        places = sorted(
            set(chain.from_iterable(_places(run, codes, after) for run in runs.values()))
        )
        for place, number, event in self._numbered(places, runs, passes):
            if codes is None or runs[event.run_id].types[number] in codes:
                yield place, number, event

    def _numbered(
        self,
        places: Iterable[int],
        runs: dict[str, RunIndex],
        passes: Callable[[bytes], bool] | None = None,
    ) -> Iterator[tuple[int, int, Event]]:
        if self._file is None:
            return
        if not self._file.one_event_per_place:
            passes = None
        last, seen = -1, Counter[str]()
        for place, text in self._file.lines_at(places):
            if passes is not None and not passes(text):
                continue
            event = event_of(Line(place, place, text), Skipped())
            if event is None or (run := runs.get(event.run_id)) is None:
                continue
            if self.hides_settings and isinstance(event, RunStarted):
                event = replace(event, settings={})
            if place != last:
                last, seen = place, Counter()
            number = bisect_left(run.places, place) + seen[event.run_id]
            seen[event.run_id] += 1
            if number < len(run.types):
                yield place, number, event


def _places(run: RunIndex, codes: frozenset[int] | None, after: int) -> Iterable[int]:
    first = bisect_left(run.places, after + 1)
    if codes is None:
        return run.places[first:]
    types = zip(run.places[first:], run.types[first:], strict=False)
    return [place for place, code in types if code in codes]


def _beginning_of(path: Path) -> bytes:
    """Return what never changes in a log that only grows; nothing for a journal."""
    with opened(path) as file:
        found = file.read(BEGINNING_BYTES)
    return b"" if found.startswith(database.HEAD) else found


def _was_replaced(before: Stamp | None, now: Stamp) -> bool:
    """Return whether this is another file, or a truncated one, under the same name."""
    if before is None or before[0] is None or now[0] is None:
        return True
    return before[0][0] != now[0][0] or now[0][1] < before[0][1]
