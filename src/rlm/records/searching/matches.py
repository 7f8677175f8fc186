"""Which runs of an index have the words of a query, and where."""

import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from rlm.records.searching.words import excerpt

__all__ = ["ROW_BITS", "Chosen", "FoundRun", "IndexedText", "found_runs"]

ROW_BITS = 20
"""The number of a text begins with the number of its file; these bits are for the text."""


class IndexedText(NamedTuple):
    """One text of an event: `event` is its number within its run."""

    run_id: str
    root: str
    step: int
    event: int
    kind: str
    cell: int | None
    text: str


class FoundRun(NamedTuple):
    """A root run with the first texts that match, each with an excerpt in place of the text."""

    root: str
    hits: list[IndexedText]
    more: bool


# Each of these returns one row: between rows, a busy thread of the same process can hold the
# interpreter for some milliseconds, which adds up to seconds.
_MATCHES = (
    "select group_concat(rowid) from (select rowid from words "
    "where words match ? and rowid < ? order by rowid desc limit ?)"
)
_WITHIN = (
    "select group_concat(rowid) from (select rowid from words "
    "where words match ? and rowid >= ? and rowid < ?)"
)
_TEXTS = (
    "select json_group_array(json_array(run_id, root, step, event, kind, cell, text)) from "
    "(select * from texts where number in (select value from json_each(?)) order by number)"
)
PORTION = 1_000
MAX_PORTION = 64_000
TEXTS_AT_ONCE = 100
HITS_PER_RUN = 3
FEW_FILES = 300
"""Up to this many files are searched one by one; otherwise all matches are read."""


class Chosen(NamedTuple):
    """Which root runs are wanted: those that fit, or those of a known set."""

    fits: Callable[[str], bool]
    only: Collection[str] | None


def found_runs(
    connection: sqlite3.Connection,
    wanted: str,
    query: str,
    chosen: Chosen,
    roots: Mapping[int, str | None],
) -> Iterator[FoundRun]:
    """Yield runs with matches, file by file, from the newest file on."""
    if chosen.only is not None and len(chosen.only) <= FEW_FILES:
        files = [n for n, root in roots.items() if root is None or root in chosen.only]
        found = _in_each(connection, wanted, files)
    else:
        found = _in_all(connection, wanted)
    for numbers in found:
        root = roots.get(numbers[0] >> ROW_BITS)
        if root is not None and not chosen.fits(root):
            continue
        first = numbers[: -HITS_PER_RUN - 2 : -1] if root is not None else numbers[::-1]
        yield from _runs_in(connection, first, query, chosen.fits)


def _in_each(
    connection: sqlite3.Connection, wanted: str, files: Collection[int]
) -> Iterator[list[int]]:
    """Yield the matches of each file, the last ones first, with one query per file."""
    for number in sorted(files, reverse=True):
        within = (number << ROW_BITS, (number + 1) << ROW_BITS)
        if found := _numbers(connection, _WITHIN, wanted, *within):
            yield sorted(found, reverse=True)


def _in_all(connection: sqlite3.Connection, wanted: str) -> Iterator[list[int]]:
    """Yield the matches of each file, the last ones first, from few queries.

    For some words, starting a query takes longer than reading its matches.
    """
    numbers: list[int] = []
    before, portion = 1 << 62, PORTION
    while found := _numbers(connection, _MATCHES, wanted, before, portion):
        for number in found:
            if numbers and number >> ROW_BITS != numbers[-1] >> ROW_BITS:
                yield numbers
                numbers = []
            numbers.append(number)
        before, portion = found[-1], min(4 * portion, MAX_PORTION)
    if numbers:
        yield numbers


def _numbers(connection: sqlite3.Connection, query: str, *values: str | int) -> list[int]:
    (found,) = connection.execute(query, values).fetchone()
    return [] if found is None else [int(each) for each in found.split(",")]


def _runs_in(
    connection: sqlite3.Connection,
    numbers: Sequence[int],
    query: str,
    fits: Callable[[str], bool],
) -> Iterator[FoundRun]:
    """Yield the runs of one file with their first matches."""
    by_root: dict[str, list[IndexedText]] = {}
    for found in _texts(connection, numbers):
        hits = by_root.setdefault(found[1], [])
        if len(hits) <= HITS_PER_RUN:
            text = IndexedText(*found)
            hits.append(text._replace(text=excerpt(text.text, query)))
    for root, hits in by_root.items():
        if fits(root):
            yield FoundRun(root, hits[:HITS_PER_RUN], len(hits) > HITS_PER_RUN)


def _texts(connection: sqlite3.Connection, numbers: Sequence[int]) -> Iterator[list[Any]]:
    for start in range(0, len(numbers), TEXTS_AT_ONCE):
        some = msgspec.json.encode(numbers[start : start + TEXTS_AT_ONCE]).decode()
        (texts,) = connection.execute(_TEXTS, (some,)).fetchone()
        yield from msgspec.json.decode(texts)
