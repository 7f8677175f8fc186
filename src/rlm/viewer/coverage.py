"""Which parts of a context a tree of runs has read, found by comparing texts on the host.

What cells printed, what was passed to calls, and what a run's first request contained counts as
read. Calls and requests count only if there was a reply, even from a cache or a journal: otherwise
the text may never have reached the model. The rules, in the order in which they matter:

- Of an output that was cut for the model, only the ends that it was shown count.
- Only parts of at least `MINIMUM` equal characters count, each as long as it is equal; and shorter
  whole lines, if no other line is equal to them.
- What a cell printed with `repr` or as JSON counts as the text it stands for.
- A text that occurs several times counts once for each time it was read: first where the previous
  reader stopped, else at the first occurrence that nothing has been matched to, else at the very
  first. The answer is then not `exact`.
- Passing a context to a child run is not reading it; what the child prints of it is.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from rlm.events import CallEnded, CallStarted, CellOutput, Event, ModelAsked, ModelReplied
from rlm.images import display_text
from rlm.viewer.index import CODES, ID_CHARS
from rlm.viewer.matching import MINIMUM, Match, Matcher
from rlm.viewer.record_files import RecordFile

__all__ = [
    "SHORTEST",
    "Coverage",
    "Reader",
    "Reading",
    "ShortLines",
    "Span",
    "covered",
    "disjoint",
    "length_within",
    "readings",
    "unescaped",
    "union",
]

MAX_READERS = 50
"""At most this many readers of one part are named."""

Span = tuple[int, int, list[int]]
"""Start, end, and the numbers of the readers."""


def union(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return sorted spans that cover the same places and neither touch nor overlap."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        elif end > start:
            merged.append((start, end))
    return merged


def length_within(merged: Sequence[tuple[int, int]], limits: Sequence[tuple[int, int]]) -> int:
    """Return how much of merged spans lies within `limits`, which do not overlap."""
    starts = [start for start, _ in merged]
    total = 0
    for first, last in limits:
        at = max(0, bisect_right(starts, first) - 1)
        while at < len(merged) and merged[at][0] < last:
            total += max(0, min(last, merged[at][1]) - max(first, merged[at][0]))
            at += 1
    return total


def disjoint(read: Sequence[tuple[int, int, int]], most: int) -> list[Span]:
    """Return disjoint spans with their readers; if too many, merge some without filling gaps."""
    found = _swept(read)
    if len(found) <= most:
        return found
    merged: list[Span] = []
    for start, end, readers in found:
        if merged and merged[-1][1] == start:
            names = merged[-1][2]
            if len(names) < MAX_READERS:
                names = list(dict.fromkeys([*names, *readers]))[:MAX_READERS]
            merged[-1] = (merged[-1][0], end, names)
        else:
            merged.append((start, end, readers))
    longest = sorted(merged, key=lambda span: span[0] - span[1])[:most]
    return sorted(longest)


def _swept(read: Sequence[tuple[int, int, int]]) -> list[Span]:
    """Sweep from left to right, keeping the set of readers at each place."""
    turns: dict[int, list[tuple[bool, int]]] = {}
    for start, end, reader in read:
        turns.setdefault(start, []).append((True, reader))
        turns.setdefault(end, []).append((False, reader))
    here: dict[int, int] = {}
    spans: list[Span] = []
    before = 0
    for at in sorted(turns):
        if here and at > before:
            names = sorted(here)[:MAX_READERS] if len(here) < 1_000 else _some(here)
            if spans and spans[-1][1] == before and spans[-1][2] == names:
                spans[-1] = (spans[-1][0], at, names)
            else:
                spans.append((before, at, names))
        for begins, reader in turns[at]:
            here[reader] = here.get(reader, 0) + (1 if begins else -1)
            if here[reader] == 0:
                del here[reader]
        before = at
    return spans


def _some(here: dict[int, int]) -> list[int]:
    """Return the first readers, up to `MAX_READERS`."""
    names = []
    for name in here:
        names.append(name)
        if len(names) == MAX_READERS:
            break
    return sorted(names)


SHORTEST = 8
MAX_LOOKED_UP = 4_000_000
_STARTS = re.compile(r"(?<!\w)\S")


class ShortLines:
    """The lines of a text that are shorter than `longest` and equal to no other line of it.

    Without them a list of names, or a table with short rows, would always seem unread.
    """

    def __init__(self, text: str, longest: int) -> None:
        self.exact = True
        self._places: dict[str, int] = {}
        self._left = MAX_LOOKED_UP
        self._learn(text, longest)
        self._lengths = sorted({len(line) for line in self._places}, reverse=True)

    def _learn(self, text: str, longest: int) -> None:
        seen: set[str] = set()
        start = 0
        for line in text.split("\n"):
            bare = line.strip()
            if SHORTEST <= len(bare) < longest:
                if bare in seen:
                    self._places.pop(bare, None)
                else:
                    seen.add(bare)
                    self._places[bare] = start + line.index(bare)
            start += len(line) + 1

    def found_in(self, reading: str) -> list[tuple[int, int]]:
        """Return the positions of the lines that a reading contains as whole words."""
        if not self._places:
            return []
        found = []
        for match in _STARTS.finditer(reading):
            self._left -= len(self._lengths)
            if self._left < 0:
                self.exact = False
                break
            at = match.start()
            for length in self._lengths:
                end = at + length
                place = self._places.get(reading[at:end]) if end <= len(reading) else None
                if place is not None and not reading[end : end + 1].isalnum():
                    found.append((place, place + length))
                    break
        return found


_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|u[0-9a-fA-F]{4}|U000[0-9a-fA-F]{5}|U0010[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[abfnrtv0\\/'\"])"
)
_SHORT = dict(zip("abfnrtv0", "\a\b\f\n\r\t\v\0", strict=True))


def unescaped(text: str) -> str | None:
    """Resolve the escapes that `repr` and JSON write; return None if there are none."""
    if "\\" not in text:
        return None
    plain = _ESCAPE.sub(_resolved, text)
    return None if plain == text else plain


def _resolved(match: re.Match[str]) -> str:
    body = match[0][1:]
    if len(body) == 1:
        return _SHORT.get(body, body)
    if "\\" in body:  # A surrogate pair.
        high, low = int(body[1:5], 16), int(body[7:11], 16)
        return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
    return chr(int(body[1:], 16))


MAX_READING_CHARS = 200_000_000
MAX_DRAWN = 50_000
MAX_SOUGHT_CHARS = 2_000_000_000
"""How far to search for further occurrences of very frequent texts."""


class Reader(Struct, frozen=True):
    """The cell that printed a text, the call it was passed to, or a run's first request."""

    run_id: str
    step: int
    kind: str
    call_id: str | None = None
    cell: int | None = None


class Reading(Struct, frozen=True):
    """One text that was read."""

    reader: Reader
    text: str


class Coverage(Struct, kw_only=True):
    """Spans are disjoint and sorted; `readers` are referred to by number."""

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
                {
                    "run_id": r.run_id,
                    "step": r.step,
                    "kind": r.kind,
                    "call_id": r.call_id,
                    "cell": r.cell,
                }
                for r in self.readers
            ],
            "unread_percent": self.unread_percent,
            "exact": self.exact,
        }


def covered(
    text: str,
    documents: Sequence[tuple[int, int]],
    readings: Iterable[Reading],
    progress: Callable[[float], None] = lambda done: None,
) -> Coverage:
    """Match readings against a text; percentages refer to its documents."""
    matcher = Matcher(text)
    kept, whole = _within_limit(readings)
    needles: dict[str, int] = {}
    for reading in kept:
        for variant in _variants(reading.text):
            needles.setdefault(variant, len(needles))
    matches = matcher.matches(needles, progress)
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
        spans=disjoint(read, MAX_DRAWN),
        readers=list(readers),
        unread_percent=100.0 * (total - seen) / total if total else 0.0,
        exact=matcher.exact and choice.exact and lines.exact and whole,
    )


def _within_limit(readings: Iterable[Reading]) -> tuple[list[Reading], bool]:
    """Return as many readings as fit into memory, and whether that is all of them."""
    kept: list[Reading] = []
    chars = 0
    for reading in readings:
        chars += len(reading.text)
        if chars > MAX_READING_CHARS:
            return kept, False
        kept.append(reading)
    return kept, True


def _variants(text: str) -> tuple[str, ...]:
    plain = unescaped(text)
    return (text,) if plain is None else (text, plain)


class _Choice:
    """Chooses which of several occurrences of a text was read."""

    def __init__(self, text: str) -> None:
        self.exact = True
        self._text = text
        self._left_off = -1
        self._left_to_seek = MAX_SOUGHT_CHARS
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


_SEEN = frozenset({CODES["cell_output"], CODES["call_started"], CODES["model_asked"]})
_REPLIES = frozenset({CODES["call_ended"], CODES["model_replied"]})


def readings(file: RecordFile, run_ids: list[str]) -> Iterator[Reading]:
    """Yield what a tree of runs has read, in order: of outputs, what a model was shown of them."""
    answered = _Answered(file, run_ids)
    printed: dict[str, list[CellOutput]] = {}  # by run, and not shown to its model yet
    for _, number, event in file.tree_events(run_ids, codes=_SEEN):
        if isinstance(event, CellOutput):
            printed.setdefault(event.run_id, []).append(event)
        elif answered.includes(number, event):
            if isinstance(event, ModelAsked):
                for each in printed.pop(event.run_id, ()):
                    yield from _printed(each, event)
            yield from _of(event)


class _Answered:
    """The calls and requests that got a reply."""

    def __init__(self, file: RecordFile, run_ids: list[str]) -> None:
        self._calls: set[tuple[str, str]] = set()
        self._last_replies: dict[str, int] = {}
        for _, number, event in file.tree_events(run_ids, codes=_REPLIES):
            if isinstance(event, CallEnded) and event.error is None:
                self._calls.add((event.run_id, event.call_id))
            elif isinstance(event, ModelReplied) and event.error is None:
                self._last_replies[event.run_id] = number

    def includes(self, number: int, event: Event) -> bool:
        if isinstance(event, CallStarted):
            return (event.run_id, event.call_id) in self._calls
        if isinstance(event, ModelAsked):
            # A failed request is part of the next one, which may have got a reply.
            return number < self._last_replies.get(event.run_id, -1)
        return True


_CUT = re.compile(
    r"\n… (?P<missing>[\d,]++) of (?P<total>[\d,]++) characters cut"
    r"(?:; [\d,]++ lines in total)? …\n"
)
"""The line that `prompts.observation.cut` puts between the ends of a long output."""


def _printed(event: CellOutput, asked: ModelAsked) -> Iterator[Reading]:
    """Yield what the next request of the run shows of an output: all of it, or both ends."""
    reader = _printer(event)
    for text in _shown_of(event.text.rstrip("\n"), asked):
        yield Reading(reader, text)


def _printer(event: CellOutput) -> Reader:
    return Reader(event.run_id, event.step, "printed", cell=event.cell)


def _shown_of(output: str, asked: ModelAsked) -> tuple[str, ...]:
    """Return the parts of an output that a request shows.

    If no new message shows it, an earlier one does. A request that consists of new messages, such
    as a final one that had no room for the whole history, is read as it is, by `_of`.
    """
    for message in asked.new_messages:
        shown = display_text(message.content)
        if output in shown:
            break
        for cut in _CUT.finditer(shown):
            half = (_number(cut["total"]) - _number(cut["missing"])) // 2
            if not 0 < half <= len(shown) or 2 * half > len(output):
                continue
            head, tail = output[:half], output[-half:]
            if shown.endswith(head, 0, cut.start()) and shown.startswith(tail, cut.end()):
                return head, tail
    return () if _is_recorded_whole(asked) else (output,)


def _is_recorded_whole(asked: ModelAsked) -> bool:
    """Whether an event holds all messages of its request, and not only the new ones."""
    return asked.message_count == len(asked.new_messages)


def _number(written: str) -> int:
    return int(written.replace(",", "")[:18])


def _of(event: Event) -> Iterator[Reading]:
    if isinstance(event, CallStarted):
        reader = Reader(event.run_id, event.step, "call", event.call_id[:ID_CHARS])
        yield Reading(reader, event.prompt)
    elif isinstance(event, ModelAsked) and _is_recorded_whole(event):
        # What later requests show is the output of cells, which `_printed` reads.
        for message in event.new_messages:
            if message.role == "user":
                yield Reading(
                    Reader(event.run_id, event.step, "request"), display_text(message.content)
                )
