"""Which parts of a context a tree of runs has read, found by comparing texts on the host.

Read is what cells printed, what was passed to calls, and what stood in a run's first request;
calls and requests count only if they were answered. The rules, in the order in which they matter:

- Only parts of at least `MINIMUM` equal characters count, each as long as it is equal; and whole
  lines that are shorter, if no other line is equal to them.
- What a cell printed with `repr` or as JSON counts as the text it stands for.
- A text that stands several times counts once for each time it was read: first where the reader
  before left off, else at the first place that nobody got for it, else at the first of all. The
  answer is then not `exact`.
- A context that is handed to a child run is not read by that; what the child prints of it is.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from rlm.viewer.escapes import unescaped
from rlm.viewer.matching import MINIMUM, Match, Matcher
from rlm.viewer.short_lines import ShortLines
from rlm.viewer.spans import Span, disjoint, length_within, union

__all__ = ["Coverage", "Reader", "Reading", "covered"]

MOST_READING_CHARS = 200_000_000
MOST_DRAWN = 50_000
MOST_SOUGHT_CHARS = 2_000_000_000
"""So much is searched for further places of texts that stand very often."""


class Reader(Struct, frozen=True):
    """Who read something: a cell that printed it, or a call it was passed to."""

    run_id: str
    step: int
    kind: str
    call_id: str | None = None


class Reading(Struct, frozen=True):
    """One text that somebody got to see."""

    reader: Reader
    text: str


class Coverage(Struct, kw_only=True):
    """Spans are disjoint, sorted, and read at least once; `readers` are named by number."""

    spans: list[Span]
    readers: list[Reader]
    unread_percent: float
    exact: bool

    def plain(self) -> dict[str, Any]:
        return {
            "spans": [
                {"start": start, "end": end, "readers": readers}
                for start, end, readers in self.spans
            ],
            "readers": [
                {"run_id": r.run_id, "step": r.step, "kind": r.kind, "call_id": r.call_id}
                for r in self.readers
            ],
            "unread_percent": self.unread_percent,
            "exact": self.exact,
        }


def covered(
    text: str, documents: Sequence[tuple[int, int]], readings: Iterable[Reading]
) -> Coverage:
    """Match readings against a text; percentages are of what lies in its documents."""
    matcher = Matcher(text)
    kept, whole = _within_limit(readings)
    needles: dict[str, int] = {}
    for reading in kept:
        for variant in _variants(reading.text):
            needles.setdefault(variant, len(needles))
    matches = matcher.matches(needles)
    choice, lines = _Choice(text), ShortLines(text, MINIMUM)
    readers: dict[Reader, int] = {}
    read: list[tuple[int, int, int]] = []
    for reading in kept:
        for variant in _variants(reading.text):
            for match in matches[needles[variant]]:
                number = readers.setdefault(reading.reader, len(readers))
                place = choice.place(variant, match)
                read.append((place, place + match.end - match.start, number))
            for start, end in lines.found_in(variant):
                read.append((start, end, readers.setdefault(reading.reader, len(readers))))
    total = sum(end - start for start, end in documents)
    seen = length_within(union((start, end) for start, end, _ in read), documents)
    return Coverage(
        spans=disjoint(read, MOST_DRAWN),
        readers=list(readers),
        unread_percent=100.0 * (total - seen) / total if total else 0.0,
        exact=matcher.exact and choice.exact and lines.exact and whole,
    )


def _within_limit(readings: Iterable[Reading]) -> tuple[list[Reading], bool]:
    """As many as fit into the memory, and whether that is all."""
    kept: list[Reading] = []
    chars = 0
    for reading in readings:
        chars += len(reading.text)
        if chars > MOST_READING_CHARS:
            return kept, False
        kept.append(reading)
    return kept, True


def _variants(text: str) -> tuple[str, ...]:
    plain = unescaped(text)
    return (text,) if plain is None else (text, plain)


class _Choice:
    """Which of several places of one text is meant by whoever read it."""

    def __init__(self, text: str) -> None:
        self.exact = True
        self._text = text
        self._left_off = -1
        self._left_to_seek = MOST_SOUGHT_CHARS
        self._given: dict[str, set[int]] = {}

    def place(self, needle: str, match: Match) -> int:
        place = match.places[0]
        if len(match.places) > 1 or not match.sure:
            self.exact = False
            place = self._next(needle[match.start : match.end], match)
        self._left_off = place + match.end - match.start
        return place

    def _next(self, part: str, match: Match) -> int:
        given = self._given.setdefault(part, set())
        chosen = self._left_off
        if chosen < 0 or not self._text.startswith(part, chosen):
            chosen = next((each for each in match.places if each not in given), -1)
        if chosen < 0 and not match.sure:
            chosen = self._sought(part, max(given) + len(part))
        if chosen < 0:
            chosen = match.places[0]
        given.add(chosen)
        return chosen

    def _sought(self, part: str, start: int) -> int:
        if self._left_to_seek <= 0 or start > len(self._text):
            return -1
        found = self._text.find(part, start)
        self._left_to_seek -= (len(self._text) if found < 0 else found) - start
        return found
