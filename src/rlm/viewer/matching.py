"""Which parts of texts occur in a long text, and where: the heart of the coverage map.

A match is a part of at least `MINIMUM` equal characters, as long as possible. A coarse index finds
the long ones. The rest of the texts is looked up in a fine index, which holds only the pieces that
are sought.

Everything that touches each piece runs inside the interpreter's own loops (`map`, `zip`, `dict`),
which makes texts of a hundred million characters bearable. Hashes may collide, so texts are
compared in the end.
"""

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, repeat
from operator import and_
from typing import NamedTuple

__all__ = ["MINIMUM", "Blocks", "Match", "Matcher", "all_hashes", "common_after", "common_before"]

MAX_PLACES = 32
"""A piece that occurs more often is crowded: it alone can't show where a text came from."""

PORTION = 100_000
"""Pieces hashed at a time; in between, other threads can run."""

TABLE = 1 << 26
MASK = TABLE - 1


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

    With `sought`, hashes of pieces, only those are indexed; a filter keeps most others out.
    """

    def __init__(
        self, text: str, length: int, stride: int, sought: "array[int] | None" = None
    ) -> None:
        self.length = length
        self.stride = stride
        self.crowded: set[int] = set()
        self._places: dict[int, list[int]] = {}
        among = None if sought is None else _Filter(sought)
        for start in range(0, len(text), stride * PORTION):
            keys = all_hashes(text[start : start + stride * PORTION], length, stride)
            self._add(keys, range(start, len(text), stride), among)

    def _add(self, keys: "array[int]", places: range, among: "_Filter | None") -> None:
        for number in range(len(keys)) if among is None else among.kept(keys):
            key = keys[number]
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


class _Filter:
    """A filter of hashes; a few percent of those that pass were not in it."""

    def __init__(self, keys: "array[int]") -> None:
        table = self._table = bytearray(TABLE)
        for key in keys:
            table[key & MASK] = 1

    def kept(self, keys: "array[int]") -> Iterator[int]:
        """Yield the positions of the hashes that pass."""
        passes = map(self._table.__getitem__, map(and_, keys, repeat(MASK)))
        return compress(range(len(keys)), passes)


# -- growing a match ------------------------------------------------------------------------------


def common_after(one: str, at: int, other: str, place: int) -> int:
    """Return how many characters are equal from there on."""
    most = min(len(one) - at, len(other) - place)
    done, size = 0, 64
    while done < most:
        size = min(size, most - done)
        mine, yours = one[at + done : at + done + size], other[place + done : place + done + size]
        if mine == yours:
            done += size
            size *= 4
        elif size == 1:
            return done
        else:
            size = max(1, size // 2) if size < 16 else size // 8
    return done


def common_before(one: str, at: int, other: str, place: int) -> int:
    """Return how many characters are equal before there."""
    most = min(at, place)
    done, size = 0, 64
    while done < most:
        size = min(size, most - done)
        stop, end = at - done, place - done
        if one[stop - size : stop] == other[end - size : end]:
            done += size
            size *= 4
        elif size == 1:
            return done
        else:
            size = max(1, size // 2) if size < 16 else size // 8
    return done


MINIMUM = 24
"""Shorter parts do not count: they may be equal by chance."""

FINE = (12, 13)
COARSE = (32, 256)
"""Length and stride. A part of `length + stride - 1` characters always contains a whole piece."""

MAX_LEFT_CHARS = 4_000_000
"""How much of what the coarse index did not find is looked up in the fine one."""

MAX_CANDIDATES = 1_000
MAX_COMPARED = 300_000
"""Limits per text, and in total, for pieces with several places. Beyond them the first counts."""


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
        self._coarse = Blocks(text, *COARSE)

    def matches(self, needles: Iterable[str]) -> list[list[Match]]:
        """Return the matches of each needle; none lies inside another."""
        texts = list(needles)
        found = [self._long_matches(text) for text in texts]
        left = _Left()
        for number, text in enumerate(texts):
            left.add(number, text, found[number])
        self.exact = self.exact and not left.dropped
        self._look_up(left, texts, found)
        return [self._chosen(texts[number], each) for number, each in enumerate(found)]

    # -- long parts --------------------------------------------------------------------------

    def _long_matches(self, needle: str) -> "_Found":
        coarse, found = self._coarse, _Found()
        at, stop = 0, len(needle) - coarse.length + 1
        while at < stop:
            hit = next(coarse.hits_in(needle, range(at, stop)), None)
            if hit is None:
                break
            key = hash(needle[hit : hit + coarse.length])
            sure = key not in coarse.crowded
            grown = (self._grown(needle, hit, place, found, sure) for place in coarse.places(key))
            at = max(hit + 1, max(grown, default=0))
        return found

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
        for number, offset in left.owners[region]:
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
                every = self._all_places(needle[start:end], places)
                chosen.append(Match(start, end, every, sure))
        return chosen

    def _all_places(self, part: str, known: set[int]) -> tuple[int, ...]:
        """Return all places of a part; a long one may occur where it was not sought."""
        coarse = self._coarse
        if len(part) >= sum(COARSE) - 1:
            known = set(known)
            for at in coarse.hits_in(part, range(coarse.stride)):
                for place in coarse.places(hash(part[at : at + coarse.length])):
                    if place >= at and self.text.startswith(part, place - at):
                        known.add(place - at)
        return tuple(sorted(known))


class _Found:
    """The matches of one needle so far.

    A match is sure if it contains a piece whose places were all tried: then it can't have come from
    elsewhere.
    """

    def __init__(self) -> None:
        self.by_range: dict[tuple[int, int], set[int]] = {}
        self.by_diagonal: dict[int, dict[tuple[int, int], bool]] = {}
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

    def covers(self, start: int, end: int) -> bool:
        """Return whether both ends of that part are matched already."""
        return end <= len(self._mask) and bool(self._mask[start] and self._mask[end - 1])

    def is_sure(self, start: int, end: int, places: set[int]) -> bool:
        return any(self.by_diagonal[place - start].get((start, end)) for place in places)


class _Left:
    """The regions that no long match covers, each text once, and the hashes of their pieces."""

    def __init__(self) -> None:
        self.owners: list[list[tuple[int, int]]] = []
        """For each region the needles that contain it, and where."""
        self.keys = array("q")
        self.dropped = False
        self._starts: list[int] = []
        self._known: dict[str, int] = {}

    def add(self, number: int, needle: str, found: _Found) -> None:
        """Add what lies between long matches, and the seams where it meets them."""
        at = 0
        for start, end in [*sorted(found.by_range), (len(needle), len(needle))]:
            if start > at:
                self._add_region(number, needle, at, start)
            for joint in {at, max(at, start)} - {0, len(needle)}:
                self._add_region(number, needle, joint - MINIMUM + 1, joint + MINIMUM - 1)
            at = max(at, end)

    def _add_region(self, number: int, needle: str, start: int, stop: int) -> None:
        start, stop = max(0, start), min(stop, len(needle))
        if stop - start < MINIMUM:
            return
        text = needle[start:stop]
        region = self._known.get(text)
        if region is None:
            if len(self.keys) + len(text) > MAX_LEFT_CHARS:
                self.dropped = True
                return
            region = self._known[text] = len(self.owners)
            self.owners.append([])
            self._starts.append(len(self.keys))
            self.keys.extend(all_hashes(text, FINE[0], 1))
        self.owners[region].append((number, start))

    def region_at(self, position: int) -> tuple[int, int]:
        """Return the region of a hash, and the position in it."""
        region = bisect_right(self._starts, position) - 1
        return region, position - self._starts[region]
