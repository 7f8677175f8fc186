"""Where pieces of fixed length stand in a long text: an index of every so many-th of them.

Everything that touches each piece runs inside the interpreter's own loops (`map`, `zip`, `dict`),
which is what makes texts of a hundred million characters bearable. Hashes may collide; whoever
uses a place compares the texts.
"""

import re
from array import array
from collections.abc import Iterator, Sequence
from itertools import compress, repeat
from operator import and_

__all__ = ["Blocks", "all_hashes", "common_after", "common_before"]

MOST_PLACES = 32
"""A piece that stands more often is crowded: where it came from can't be told from it alone."""

PORTION = 100_000
"""So many pieces are hashed at a time: others want the processor too."""

TABLE = 1 << 26
MASK = TABLE - 1


def hashes(text: str, starts: range, length: int) -> Iterator[int]:
    """Of the pieces that start there, one after the other."""
    ends = range(starts.start + length, starts.stop + length, starts.step)
    return map(hash, map(text.__getitem__, map(slice, starts, ends)))


def all_hashes(text: str, length: int, stride: int) -> "array[int]":
    """Of every piece that starts at a multiple of `stride`: twice as fast, for all at once."""
    if stride == 1:
        pieces = re.findall(rf"(?s)(?=(.{{{length}}}))", text)
    else:
        pieces = re.findall(rf"(?s)(.{{{length}}}).{{0,{stride - length}}}", text)
    return array("q", map(hash, pieces))


class Blocks:
    """The pieces of a text at every multiple of `stride`: all of them, or those that are `sought`.

    Of `sought`, only the hashes are known; a filter keeps most others out.
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
            if len(known) < MOST_PLACES:
                known.append(places[number])
            else:
                self.crowded.add(key)

    def hits(self, keys: "array[int]") -> Iterator[int]:
        """At which of these hashes there is something here."""
        return compress(range(len(keys)), map(self._places.__contains__, keys))

    def hits_in(self, text: str, starts: range) -> Iterator[int]:
        """At which of these places of another text there is something here."""
        found = map(self._places.__contains__, hashes(text, starts, self.length))
        return compress(starts, found)

    def places(self, key: int) -> Sequence[int]:
        """Where pieces with that hash stand, in ascending order. Of a crowd, only the first."""
        return self._places[key][:1] if key in self.crowded else self._places[key]


class _Filter:
    """Which hashes may be among some others: a few in a hundred that pass are not."""

    def __init__(self, keys: "array[int]") -> None:
        table = self._table = bytearray(TABLE)
        for key in keys:
            table[key & MASK] = 1

    def kept(self, keys: "array[int]") -> Iterator[int]:
        """The numbers of those that pass."""
        passes = map(self._table.__getitem__, map(and_, keys, repeat(MASK)))
        return compress(range(len(keys)), passes)


# -- growing a match ------------------------------------------------------------------------------


def common_after(one: str, at: int, other: str, place: int) -> int:
    """How many characters are equal from there on."""
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
    """How many characters are equal before there."""
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
