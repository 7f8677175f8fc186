"""One file of events, as the server holds it: its notes, up to date, and its events by seeking.

All of it blocks: it is called from threads. Notes grow in small portions, so that whoever asks
while a large file is read for the first time gets what there is so far.
"""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from rlm.errors import ConfigError
from rlm.events import Event
from rlm.records.trajectories import Skipped
from rlm.records.trajectories.decoding import Line, event_of
from rlm.viewer.notes import Notes, RunNotes
from rlm.viewer.outlines import Forest
from rlm.viewer.pages import Pages, pages_of

__all__ = ["RecordFile", "Stamp", "stamp_of"]

PORTION = 2_000
Stamp = tuple[tuple[int, int, int] | None, ...]
"""What changes when a file does: where it lies, how large it is, when it was written to."""


def stamp_of(path: Path) -> Stamp:
    """Of a file and of what SQLite writes beside it."""
    return _stat(path), _stat(Path(f"{path}-wal"))


def _stat(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


class RecordFile:
    """Opened when it is first needed. `is_read`: the first pass over it is done."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_read = False
        self.problem: str | None = None
        self._pages: Pages | None = None
        self._notes = Notes()
        self._stamp: Stamp | None = None
        self._is_asleep = False
        self._reading = threading.Lock()
        self._noting = threading.RLock()
        self._forest: tuple[tuple[int, int, bool], Forest] | None = None

    # -- keeping up --------------------------------------------------------------------------

    def refresh(self) -> bool:
        """Read what was added; whether there was anything to read."""
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
        # What kind of file it is may not be seen before its first event: journals begin empty.
        if self._pages is None or not self._notes.events or _was_replaced(self._stamp, stamp):
            pages = pages_of(self.path)
            with self._noting:
                self._pages, self._notes = pages, Notes()
        notes, pages = self._notes, self._pages
        assert pages is not None
        lines = pages.read_on(notes.end, notes.skipped)
        while portion := list(islice(lines, PORTION)):
            with self._noting:
                for place, end, text, torn in portion:
                    notes.take(place, end, text, torn)

    def sleep(self) -> None:
        """Let go of the notes, but for the outlines; they are made again when they are needed."""
        self.forest()
        with self._reading, self._noting:
            self._pages, self._notes, self._is_asleep = None, Notes(), True

    def wake(self) -> None:
        """Be up to date, with all notes there."""
        if self._is_asleep:
            with self._reading:
                self._stamp = None
        self.refresh()

    def may_grow(self) -> bool:
        """Whether somebody may still be writing to it."""
        return self._pages is not None and self._pages.may_grow()

    @property
    def events(self) -> int:
        return self._notes.events

    @property
    def progress(self) -> float:
        """How much of the file was read, from 0 to 1."""
        seen = _stat(self.path)
        if self.is_read or seen is None or self._pages is None:
            return 1.0 if self.is_read else 0.0
        return min(1.0, self._notes.end / max(1, seen[1]))

    @property
    def skipped(self) -> Skipped:
        with self._noting:
            told = Skipped()
            told.include(self._notes.skipped)
            return told

    # -- runs --------------------------------------------------------------------------------

    def forest(self) -> Forest:
        """The runs as trees, as of now."""
        with self._noting:
            notes = self._notes
            if self._is_asleep and self._forest is not None:
                return self._forest[1]
            may_run = self.may_grow()
            state = (id(notes), notes.end, may_run)
            if self._forest is None or self._forest[0] != state:
                self._forest = state, Forest(notes.runs, may_run=may_run)
            return self._forest[1]

    def version(self) -> tuple[int, int]:
        """Changes whenever anything was added."""
        return id(self._notes), self._notes.end

    def notes_of(self, run_id: str) -> RunNotes:
        """What is known of a run. It may grow meanwhile, but only at its ends."""
        return self._notes.runs[run_id]

    # -- events ------------------------------------------------------------------------------

    def events_at(self, run_id: str, numbers: Sequence[int]) -> Iterator[tuple[int, Event]]:
        """Some events of a run, by their numbers in ascending order."""
        run, wanted = self.notes_of(run_id), set(numbers)
        places = [run.places[number] for number in numbers]
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
        """Places, numbers and events of several runs, in the order of the file.

        Only those of some types (`codes` as in `rlm.viewer.notes`), behind a place, or whose line
        `passes` a first look.
        """
        runs = {run_id: self.notes_of(run_id) for run_id in run_ids}
        places = sorted(
            set(chain.from_iterable(_places(run, codes, after) for run in runs.values()))
        )
        for place, number, event in self._numbered(places, runs, passes):
            if codes is None or runs[event.run_id].types[number] in codes:
                yield place, number, event

    def _numbered(
        self,
        places: Iterable[int],
        runs: dict[str, RunNotes],
        passes: Callable[[bytes], bool] | None = None,
    ) -> Iterator[tuple[int, int, Event]]:
        if self._pages is None:
            return
        if not self._pages.one_a_place:
            passes = None
        last, seen = -1, Counter[str]()
        for place, text in self._pages.lines_at(places):
            if passes is not None and not passes(text):
                continue
            event = event_of(Line(place, place, text), Skipped())
            if event is None or (run := runs.get(event.run_id)) is None:
                continue
            if place != last:
                last, seen = place, Counter()
            number = bisect_left(run.places, place) + seen[event.run_id]
            seen[event.run_id] += 1
            if number < len(run.types):
                yield place, number, event


def _places(run: RunNotes, codes: frozenset[int] | None, after: int) -> Iterable[int]:
    first = bisect_left(run.places, after + 1)
    if codes is None:
        return run.places[first:]
    types = zip(run.places[first:], run.types[first:], strict=False)
    return [place for place, code in types if code in codes]


def _was_replaced(before: Stamp | None, now: Stamp) -> bool:
    """Whether this is another file, or one that was cut, under the same name."""
    if before is None or before[0] is None or now[0] is None:
        return True
    return before[0][0] != now[0][0] or now[0][1] < before[0][1]
