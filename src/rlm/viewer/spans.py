"""Arithmetic of spans of a text: what several of them cover together, and who is where."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence

__all__ = ["Span", "disjoint", "length_within", "union"]

MOST_READERS = 50
"""So many of those who read one part are named; that others did too changes nothing."""

Span = tuple[int, int, list[int]]
"""From, to, and the numbers of those who read it."""


def union(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same places as sorted spans that neither touch nor overlap."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        elif end > start:
            merged.append((start, end))
    return merged


def length_within(merged: Sequence[tuple[int, int]], limits: Sequence[tuple[int, int]]) -> int:
    """How much of merged spans lies within some limits, which do not overlap."""
    starts = [start for start, _ in merged]
    total = 0
    for first, last in limits:
        at = max(0, bisect_right(starts, first) - 1)
        while at < len(merged) and merged[at][0] < last:
            total += max(0, min(last, merged[at][1]) - max(first, merged[at][0]))
            at += 1
    return total


def disjoint(read: Sequence[tuple[int, int, int]], most: int) -> list[Span]:
    """Spans with everybody who read all of it. Too many are drawn coarser, without a gap filled."""
    found = _swept(read)
    if len(found) <= most:
        return found
    merged: list[Span] = []
    for start, end, readers in found:
        if merged and merged[-1][1] == start:
            names = list(dict.fromkeys([*merged[-1][2], *readers]))
            merged[-1] = (merged[-1][0], end, names[:MOST_READERS])
        else:
            merged.append((start, end, readers))
    longest = sorted(merged, key=lambda span: span[0] - span[1])[:most]
    return sorted(longest)


def _swept(read: Sequence[tuple[int, int, int]]) -> list[Span]:
    """From left to right, with the readers of each place at hand."""
    turns: dict[int, list[tuple[bool, int]]] = {}
    for start, end, reader in read:
        turns.setdefault(start, []).append((True, reader))
        turns.setdefault(end, []).append((False, reader))
    here: dict[int, int] = {}
    spans: list[Span] = []
    before = 0
    for at in sorted(turns):
        if here and at > before:
            names = sorted(here)[:MOST_READERS] if len(here) < 1_000 else _some(here)
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
    """Of a crowd, those that came first."""
    names = []
    for name in here:
        names.append(name)
        if len(names) == MOST_READERS:
            break
    return sorted(names)
