"""Files of events that can be read on from a place, and sought in: logs, journals, and others'.

A place is a number that only its file has to understand: a byte of a log; of a journal the number
of a row, and that of a line in it.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from rlm.logger import encoded
from rlm.records.journal import database
from rlm.records.trajectories import read
from rlm.records.trajectories.decoding import MOST_LINE_BYTES, Skipped, lines_of
from rlm.records.trajectories.reference import ReferenceSource
from rlm.records.trajectories.sources import JournalSource, changed_lately, opened

__all__ = ["JournalPages", "LogPages", "Pages", "ReferencePages", "pages_of"]

LINE_BITS = 20
MOST_ROWS = 1 << 43
"""So that a place fits into 64 bits."""

Placed = tuple[int, int, bytes, bool]
"""Where a line stands, where the next one does, its text, and whether its end is missing."""


class Pages(Protocol):
    """One file. Every line of it is an event, or it is skipped."""

    path: Path
    one_a_place: bool
    """Whether every place has one event only."""

    def read_on(self, start: int, skipped: Skipped) -> Iterator[Placed]:
        """The lines from a place on."""

    def lines_at(self, places: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """Lines at some places in ascending order, by seeking; there may be several at one."""

    def may_grow(self) -> bool:
        """Whether somebody may still be writing."""


class LogPages:
    """A log of ours. It is read line by line in the fastest way there is."""

    one_a_place = True

    def __init__(self, path: Path) -> None:
        self.path = path

    def read_on(self, start: int, skipped: Skipped) -> Iterator[Placed]:
        with opened(self.path) as file:
            at = file.seek(start)
            while text := file.readline(MOST_LINE_BYTES + 1):
                if text[-1] != 10 and len(text) > MOST_LINE_BYTES:
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
                yield place, file.readline(MOST_LINE_BYTES + 1)

    def may_grow(self) -> bool:
        return changed_lately(self.path)


class JournalPages:
    """A journal of ours. Its rows hold some lines each, and never change."""

    one_a_place = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = database.Lock(path.with_suffix(".lock"))

    def read_on(self, start: int, skipped: Skipped) -> Iterator[Placed]:
        first, line = start >> LINE_BITS, start & ((1 << LINE_BITS) - 1)
        with database.reading(self.path) as connection:
            rows = connection.execute(
                "select number, lines from events where number >= ? and number < ? order by number",
                (first, MOST_ROWS),
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
        """The one who runs a run holds its lock; the kernel takes it from the dead."""
        return self._lock.is_taken()


def _lines_in(lines: object, base: int) -> Iterator[tuple[int, bytes]]:
    """The lines of a row with their places; a stranger's row may hold anything."""
    texts = lines.splitlines(keepends=True) if isinstance(lines, bytes) else []
    return enumerate(texts[: 1 << LINE_BITS], base)


class ReferencePages:
    """A log of the reference engine, as events of ours: several of them stand at one place."""

    one_a_place = False

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


def pages_of(path: Path) -> Pages:
    """What kind of file it is, by the start of it; ConfigError if it can't be read."""
    source = read.source_of(path)
    if isinstance(source, JournalSource):
        return JournalPages(path)
    return ReferencePages(source) if isinstance(source, ReferenceSource) else LogPages(path)
