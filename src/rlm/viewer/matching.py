"""Which parts of texts stand in a long text, and where: the heart of the coverage map.

A match is a part of at least `MINIMUM` characters that is equal, and as long as it can be. First a
coarse index finds the long ones. What is left of the texts is then looked up in a fine index, which
holds only those pieces of the long text that are looked for.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from rlm.viewer.blocks import Blocks, all_hashes, common_after, common_before

__all__ = ["MINIMUM", "Match", "Matcher"]

MINIMUM = 24
"""Shorter parts are not counted: they may stand there by chance."""

FINE = (12, 13)
COARSE = (32, 256)
"""Length and stride. A part of `length + stride - 1` characters holds a whole piece for sure."""

MOST_LEFT_CHARS = 4_000_000
"""Of what the coarse index did not find, so much is looked up in the fine one."""

MOST_CANDIDATES = 1_000
MOST_COMPARED = 300_000
"""Of one text, and of all: places of pieces that stand several times. Then the first counts."""


class Match(NamedTuple):
    """From `start` to `end` of a text; where that stands in the long one, first place first.

    If it is not `sure`, it may stand in further places.
    """

    start: int
    end: int
    places: tuple[int, ...]
    sure: bool = True


class Matcher:
    """For one long text. `exact` turns False when something had to be left out."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.exact = True
        self._patience = MOST_COMPARED
        self._coarse = Blocks(text, *COARSE)

    def matches(self, needles: Iterable[str]) -> list[list[Match]]:
        """For each needle its matches: none lies inside another."""
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
        """Grow a match from equal places; where it ends, or 0 if it is too short."""
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
        """Compare the places of a hit with every text that holds this piece."""
        region, at = left.region_at(hit)
        key = left.keys[hit]
        places = blocks.places(key)
        sure = key not in blocks.crowded and (len(places) == 1 or self._patience > 0)
        if not sure:
            places = places[:1]
        for number, offset in left.owners[region]:
            known, spot = found[number], offset + at
            if len(known.by_diagonal) > MOST_CANDIDATES:
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
        """The matches that lie in no longer one; equal ones are one, with several places."""
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
        """Where a part stands. A long one may stand where nobody has looked for it yet."""
        coarse = self._coarse
        if len(part) >= sum(COARSE) - 1:
            known = set(known)
            for at in coarse.hits_in(part, range(coarse.stride)):
                for place in coarse.places(hash(part[at : at + coarse.length])):
                    if place >= at and self.text.startswith(part, place - at):
                        known.add(place - at)
        return tuple(sorted(known))


class _Found:
    """Matches of one needle while they are looked for.

    One is sure if it holds a piece all of whose places were tried: then there is no other place
    that it could have come from.
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
        """Whether a match on that diagonal is known already; it may become sure by this."""
        spans = self.by_diagonal.get(diagonal, {})
        for begin, stop in spans:
            if begin <= start and end <= stop:
                spans[begin, stop] = spans[begin, stop] or sure
                return True
        return False

    def covers(self, start: int, end: int) -> bool:
        """Whether that part is matched already, at least by its ends."""
        return end <= len(self._mask) and bool(self._mask[start] and self._mask[end - 1])

    def is_sure(self, start: int, end: int, places: set[int]) -> bool:
        return any(self.by_diagonal[place - start].get((start, end)) for place in places)


class _Left:
    """The regions that no long match covers, each text once, and the hashes of their pieces."""

    def __init__(self) -> None:
        self.owners: list[list[tuple[int, int]]] = []
        """By region: in which needles it stands, and where."""
        self.keys = array("q")
        self.dropped = False
        self._starts: list[int] = []
        self._known: dict[str, int] = {}

    def add(self, number: int, needle: str, found: _Found) -> None:
        """Note what lies between long matches, and the joints where it meets them."""
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
            if len(self.keys) + len(text) > MOST_LEFT_CHARS:
                self.dropped = True
                return
            region = self._known[text] = len(self.owners)
            self.owners.append([])
            self._starts.append(len(self.keys))
            self.keys.extend(all_hashes(text, FINE[0], 1))
        self.owners[region].append((number, start))

    def region_at(self, position: int) -> tuple[int, int]:
        """Which region a hash is of, and where in it."""
        region = bisect_right(self._starts, position) - 1
        return region, position - self._starts[region]
