"""Which parts of texts occur in a long text, and where: the core of the coverage map.

A match is a part of at least `MINIMUM` equal characters, as long as possible. Nearly all matches
contain a mark, such as the start of a line, and are found by the characters after it. A coarse
index finds long ones without a mark. The rest of the texts is looked up in a fine index, which
holds only the pieces that are sought.

Everything that touches each piece runs inside the interpreter's own loops (`map`, `zip`, `dict`),
which makes texts of a hundred million characters feasible. Hashes may collide, so texts are
compared at the end.
"""

import re
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import compress
from typing import NamedTuple

__all__ = ["MINIMUM", "Blocks", "Match", "Matcher", "all_hashes", "common_after", "common_before"]

MAX_PLACES = 32
"""A piece that occurs more often is crowded: on its own, it can't show where a text came from."""

PORTION = 100_000
"""Pieces hashed at a time; in between, other threads can run."""


def hashes(text: str, starts: range, length: int) -> Iterator[int]:
    """Yield the hashes of the pieces that begin at `starts`."""
    ends = range(starts.start + length, starts.stop + length, starts.step)
    return map(hash, map(text.__getitem__, map(slice, starts, ends)))


def all_hashes(text: str, length: int, stride: int) -> "array[int]":
    """Return the hashes of all pieces at multiples of `stride`; twice as fast as `hashes`."""
    if stride == 1:
        pieces = re.findall(rf"(?s)(?=(.{{{length}}}))", text)
    else:
        pieces = re.findall(rf"(?s)(.{{{length}}}).{{0,{stride - length}}}", text)
    return array("q", map(hash, pieces))


class Blocks:
    """An index of the pieces of a text at multiples of `stride`.

    With `sought`, hashes of pieces, only those are indexed.
    """

    def __init__(
        self, text: str, length: int, stride: int, sought: "array[int] | None" = None
    ) -> None:
        self.length = length
        self.stride = stride
        self.crowded: set[int] = set()
        self._places: dict[int, list[int]] = {}
        among = None if sought is None else frozenset(sought)
        for start in range(0, len(text), stride * PORTION):
            keys = all_hashes(text[start : start + stride * PORTION], length, stride)
            self._add(keys, range(start, len(text), stride), among)

    def _add(self, keys: "array[int]", places: range, among: frozenset[int] | None) -> None:
        numbers: Iterable[int] = range(len(keys))
        if among is not None:
            numbers = compress(numbers, map(among.__contains__, keys))
        for number in numbers:
            key = keys[number]
            if key in self.crowded:
                continue
            known = self._places.setdefault(key, [])
            if len(known) < MAX_PLACES:
                known.append(places[number])
            else:
                self.crowded.add(key)

    def hits(self, keys: "array[int]") -> Iterator[int]:
        """Yield the positions of the hashes that occur here."""
        return compress(range(len(keys)), map(self._places.__contains__, keys))

    def hits_in(self, text: str, starts: range) -> Iterator[int]:
        """Yield the places of another text whose pieces occur here."""
        found = map(self._places.__contains__, hashes(text, starts, self.length))
        return compress(starts, found)

    def places(self, key: int) -> Sequence[int]:
        """Return where pieces with that hash are, in order.

        Of a crowded one, only the first place.
        """
        return self._places[key][:1] if key in self.crowded else self._places[key]


MAX_MARKS = 500_000
SAMPLE_CHARS = 200_000
MARKED_CHARS = 64
"""How far apart marks should be: a part of a text must contain one."""


class Marks:
    """An index of the pieces that follow each mark: a character, such as the line feed.

    Every occurrence of a piece is known, wherever it is. If there are very many, only some pieces
    count, chosen by their hashes.
    """

    def __init__(self, text: str, length: int) -> None:
        self.length = length
        self._mark = _mark_of(text)
        self._places: dict[int, int | list[int]] = {}
        self._every = 1 + (text.count(self._mark) // MAX_MARKS if self._mark else 0)
        starts = array("Q", [0])
        at = text.find(self._mark) if self._mark else -1
        while at >= 0:
            starts.append(at + 1)
            at = text.find(self._mark, at + 1)
        for start in starts:
            key = hash(text[start : start + length])
            if key % self._every == 0 and start + length <= len(text):
                self._add(key, start)

    def _add(self, key: int, start: int) -> None:
        known = self._places.setdefault(key, start)
        if isinstance(known, list):
            if len(known) <= MAX_PLACES:
                known.append(start)
        elif known != start:
            self._places[key] = [known, start]

    def next_in(self, text: str, at: int) -> tuple[int, Sequence[int]] | None:
        """Return the next piece of another text that occurs here and is not crowded."""
        if at == 0 and (places := self._at(text, 0)):
            return 0, places
        at = text.find(self._mark, max(0, at - 1)) if self._mark else -1
        while at >= 0:
            if places := self._at(text, at + 1):
                return at + 1, places
            at = text.find(self._mark, at + 1)
        return None

    def _at(self, text: str, start: int) -> Sequence[int]:
        known = self._places.get(hash(text[start : start + self.length]))
        if known is None or start + self.length > len(text):
            return ()
        if isinstance(known, int):
            return (known,)
        return known if len(known) <= MAX_PLACES else ()


def _mark_of(text: str) -> str:
    """Return the character that best divides a text; "" if all of it is one character."""
    sample = text[:SAMPLE_CHARS]
    counts = Counter(sample)
    if len(sample) < 4 * MARKED_CHARS * counts["\n"] * 2 and counts["\n"] * 16 < len(sample):
        return "\n"
    wanted = max(1, len(sample) // MARKED_CHARS)
    return min(counts, key=lambda each: abs(counts[each] - wanted), default="")


# -- growing a match ------------------------------------------------------------------------------


def common_after(one: str, at: int, other: str, place: int) -> int:
    """Return how many characters are equal from these positions on."""
    most = min(len(one) - at, len(other) - place)
    if one[at : at + most] == other[place : place + most]:
        return most
    done, size = 0, 64
    while one[at + done : at + done + size] == other[place + done : place + done + size]:
        done += size
        size *= 4
    while size > 1:  # The first difference is among the next `size` characters.
        half = size // 2
        if one[at + done : at + done + half] == other[place + done : place + done + half]:
            done += half
            size -= half
        else:
            size = half
    return done


def common_before(one: str, at: int, other: str, place: int) -> int:
    """Return how many characters are equal before these positions."""
    most = min(at, place)
    if one[at - most : at] == other[place - most : place]:
        return most
    done, size = 0, 64
    while size <= most - done and (
        one[at - done - size : at - done] == other[place - done - size : place - done]
    ):
        done += size
        size *= 4
    size = min(size, most - done)
    while size > 1:  # The first difference is among the `size` characters before.
        half = size // 2
        if one[at - done - half : at - done] == other[place - done - half : place - done]:
            done += half
            size -= half
        else:
            size = half
    return done


MINIMUM = 24
"""Shorter parts do not count: they may be equal by chance."""

FINE = (12, 13)
COARSE = (32, 256)
"""Length and stride. A part of `length + stride - 1` characters always contains a whole piece."""

MAX_LEFT_CHARS = 2_000_000
"""How much of the text that the coarse index did not find is looked up in the fine one."""

MAX_SEAM_CHARS = 100_000
"""How much text around the ends of long parts is; parts below the minimum may be found there."""

MAX_SCANNED_CHARS = 8_000_000
"""How much of the text without marks is looked up in the coarse index."""

MAX_CANDIDATES = 1_000
MAX_COMPARED = 300_000
"""Limits, per text and in total, for pieces with several places; beyond them, the first counts."""


class Match(NamedTuple):
    """A part of a text, from `start` to `end`, and its places in the long text.

    If it is not `sure`, there may be further places.
    """

    start: int
    end: int
    places: tuple[int, ...]
    sure: bool = True


class Matcher:
    """Matches texts against one long text. `exact` turns False when something was left out."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.exact = True
        self._patience = MAX_COMPARED
        self._left_to_scan = MAX_SCANNED_CHARS
        self._marks = Marks(text, MINIMUM)

    @cached_property
    def _coarse(self) -> Blocks:
        return Blocks(self.text, *COARSE)

    def matches(
        self, needles: Iterable[str], progress: Callable[[float], None] = lambda done: None
    ) -> list[list[Match]]:
        """Return the matches of each needle; none lies inside another."""
        texts = list(needles)
        found: list[_Found] = []
        for number, text in enumerate(texts):
            if number % 100 == 0:
                progress(0.8 * number / len(texts))
            found.append(self._long_matches(text))
        left = _Left()
        for number, text in enumerate(texts):
            left.add(number, text, found[number])
        self.exact = self.exact and not left.dropped
        progress(0.9)
        self._look_up(left, texts, found)
        return [self._chosen(texts[number], each) for number, each in enumerate(found)]

    # -- long parts --------------------------------------------------------------------------

    def _long_matches(self, needle: str) -> "_Found":
        found = _Found()
        at = 0
        while (mark := self._marks.next_in(needle, at)) is not None:
            hit, places = mark
            at = hit + 1
            for place in places:
                if len(places) > 1:
                    self._patience -= 1
                at = max(at, self._grown(needle, hit, place, found, self._patience > 0))
                if self._patience <= 0:
                    break
        found.by_mark.update(found.by_range)
        for start, end in found.gaps(len(needle)):
            if end - start >= sum(COARSE) - 1:
                self._scan(needle, start, end, found)
        return found

    def _scan(self, needle: str, at: int, end: int, found: "_Found") -> None:
        """Find long parts without a mark, or after marks that are too frequent."""
        self._left_to_scan -= end - at
        if self._left_to_scan < 0:
            self.exact = False
            return
        coarse, stop = self._coarse, end - COARSE[0] + 1
        while at < stop:
            hit = next(coarse.hits_in(needle, range(at, stop)), None)
            if hit is None:
                break
            key = hash(needle[hit : hit + coarse.length])
            sure = key not in coarse.crowded
            grown = (self._grown(needle, hit, place, found, sure) for place in coarse.places(key))
            at = max(hit + 1, max(grown, default=0))

    def _grown(self, needle: str, at: int, place: int, found: "_Found", sure: bool) -> int:
        """Extend a match in both directions; return its end, or 0 if it is too short."""
        before = common_before(needle, at, self.text, place)
        end = at + common_after(needle, at, self.text, place)
        if end - at + before < MINIMUM:
            return 0
        found.add(at - before, end, place - before, sure)
        return end

    # -- what is left ------------------------------------------------------------------------

    def _look_up(self, left: "_Left", texts: list[str], found: "list[_Found]") -> None:
        if not left.keys:
            return
        blocks = Blocks(self.text, *FINE, left.keys)
        for hit in blocks.hits(left.keys):
            self._follow(hit, blocks, left, texts, found)

    def _follow(
        self, hit: int, blocks: Blocks, left: "_Left", texts: list[str], found: "list[_Found]"
    ) -> None:
        """Compare the places of a hit with every text that contains this piece."""
        region, at = left.region_at(hit)
        key = left.keys[hit]
        places = blocks.places(key)
        sure = key not in blocks.crowded and (len(places) == 1 or self._patience > 0)
        if not sure:
            places = places[:1]
        if region.joint >= 0:
            places = region.crossing(at, blocks.length, places, self.text)
        for number, offset in region.owners if places else ():
            known, spot = found[number], offset + at
            if len(known.by_diagonal) > MAX_CANDIDATES:
                self.exact = False
                continue
            if not sure and known.covers(spot, spot + blocks.length):
                continue
            for place in places:
                if not known.has(spot, spot + blocks.length, place - spot, sure):
                    self._patience -= len(places) > 1
                    self._grown(texts[number], spot, place, known, sure)

    # -- choosing ----------------------------------------------------------------------------

    def _chosen(self, needle: str, found: "_Found") -> list[Match]:
        """Drop matches inside longer ones, and join equal ones with several places."""
        chosen: list[Match] = []
        reached = -1
        for (start, end), places in sorted(
            found.by_range.items(), key=lambda each: (each[0][0], -each[0][1])
        ):
            if end > reached:
                reached = end
                sure = found.is_sure(start, end, places)
                self.exact = self.exact and sure
                by_mark = (start, end) in found.by_mark
                every = sorted(places if by_mark else self._all_places(needle[start:end], places))
                chosen.append(Match(start, end, tuple(every), sure))
        return chosen

    def _all_places(self, part: str, known: set[int]) -> set[int]:
        """Return all places of a part; a long one may occur where it was not sought."""
        if len(part) >= sum(COARSE) - 1:
            coarse, known = self._coarse, set(known)
            for at in coarse.hits_in(part, range(coarse.stride)):
                for place in coarse.places(hash(part[at : at + coarse.length])):
                    if place >= at and self.text.startswith(part, place - at):
                        known.add(place - at)
        return known


class _Found:
    """The matches of one needle so far.

    A match is sure if it contains a piece whose places were all tried: then it can't have come from
    elsewhere.
    """

    def __init__(self) -> None:
        self.by_range: dict[tuple[int, int], set[int]] = {}
        self.by_diagonal: dict[int, dict[tuple[int, int], bool]] = {}
        self.by_mark: set[tuple[int, int]] = set()
        """Those that contain a mark: all their places are known."""
        self._mask = bytearray()
        """Which characters of the needle are matched."""

    def add(self, start: int, end: int, place: int, sure: bool) -> None:
        self._mask.extend(bytes(max(0, end - len(self._mask))))
        self._mask[start:end] = b"\1" * (end - start)
        self.by_range.setdefault((start, end), set()).add(place)
        spans = self.by_diagonal.setdefault(place - start, {})
        spans[start, end] = spans.get((start, end), False) or sure

    def has(self, start: int, end: int, diagonal: int, sure: bool) -> bool:
        """Return whether a match on that diagonal is known; if `sure`, mark it as such."""
        spans = self.by_diagonal.get(diagonal, {})
        for begin, stop in spans:
            if begin <= start and end <= stop:
                spans[begin, stop] = spans[begin, stop] or sure
                return True
        return False

    def gaps(self, length: int) -> Iterator[tuple[int, int]]:
        """Yield what lies between the matches in a needle of that length."""
        at = 0
        for start, end in sorted(self.by_range):
            if start > at:
                yield at, start
            at = max(at, end)
        if at < length:
            yield at, length

    def covers(self, start: int, end: int) -> bool:
        """Return whether both ends of that part are already matched."""
        return end <= len(self._mask) and bool(self._mask[start] and self._mask[end - 1])

    def is_sure(self, start: int, end: int, places: set[int]) -> bool:
        return any(self.by_diagonal[place - start].get((start, end)) for place in places)


class _Region:
    """A part of needles that no long match covers; or, with a `joint`, where one begins or ends."""

    __slots__ = ("joint", "owners", "text")

    def __init__(self, text: str, joint: int) -> None:
        self.text = text
        self.joint = joint
        self.owners: list[tuple[int, int]] = []
        """The needles that contain it, and where."""

    def crossing(self, at: int, length: int, places: Sequence[int], text: str) -> list[int]:
        """Return the places where a match would lie on both sides of the joint.

        All others lie inside the long match.
        """
        start, end = min(at, self.joint - 1), max(at + length, self.joint + 1)
        part, before = self.text[start:end], at - start
        return [each for each in places if each >= before and text.startswith(part, each - before)]


class _Left:
    """The regions that no long match covers, each text once, and the hashes of their pieces."""

    def __init__(self) -> None:
        self.keys = array("q")
        self.dropped = False
        self._seams = 0
        self._regions: list[_Region] = []
        self._starts: list[int] = []
        self._known: dict[tuple[str, int], _Region] = {}

    def add(self, number: int, needle: str, found: _Found) -> None:
        """Add what lies between long matches, and the seams where it meets them."""
        at = 0
        for start, end in [*sorted(found.by_range), (len(needle), len(needle))]:
            if start > at:
                self._add_region(number, needle, at, start)
            for joint in {at, max(at, start)} - {0, len(needle)}:
                self._add_region(number, needle, joint - MINIMUM + 1, joint + MINIMUM - 1, joint)
            at = max(at, end)

    def _add_region(
        self, number: int, needle: str, start: int, stop: int, joint: int | None = None
    ) -> None:
        start, stop = max(0, start), min(stop, len(needle))
        if stop - start < MINIMUM:
            return
        name = needle[start:stop], -1 if joint is None else joint - start
        region = self._known.get(name)
        if region is None:
            self._seams += 0 if joint is None else stop - start
            too_many_seams = joint is not None and self._seams > MAX_SEAM_CHARS
            if too_many_seams or len(self.keys) + stop - start > MAX_LEFT_CHARS:
                self.dropped = True
                return
            region = self._known[name] = _Region(*name)
            self._regions.append(region)
            self._starts.append(len(self.keys))
            self.keys.extend(all_hashes(region.text, FINE[0], 1))
        region.owners.append((number, start))

    def region_at(self, position: int) -> tuple[_Region, int]:
        """Return the region of a hash, and the position in it."""
        number = bisect_right(self._starts, position) - 1
        return self._regions[number], position - self._starts[number]
