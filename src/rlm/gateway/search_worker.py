"""The search itself, in a process that is killed when its time is up.

Ranking is BM25 over the lines of many files, in two passes: the first counts how many lines contain
each word, the second keeps the best lines so far. Memory use does not grow with the files.
"""

import heapq
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rlm._util import patterns
from rlm._util.patterns import compile_for_lines
from rlm.data.filesystem.denial import Denials
from rlm.errors import ConfigError
from rlm.gateway.errors import Refused
from rlm.gateway.listing import files_below
from rlm.gateway.paths import Root
from rlm.worker import search as ranking
from rlm.worker.search import words_of

__all__ = ["Best", "Corpus", "search"]

Lines = Iterable[tuple[int, str]]
"""Numbers and texts of the lines of one file."""
Best = tuple[float, str, int, str]
"""Score, file, number of the line, its text."""


class Corpus:
    """The counts of the first pass."""

    def __init__(self, words: list[str]) -> None:
        self._pattern = ranking.pattern_of(words, whole=True)
        self.lines = 0
        self.characters = 0
        self.having = dict.fromkeys(words, 0)

    def count(self, lines: Lines) -> bool:
        """Count a file; return whether it contains any of the words."""
        found = False
        for _, text in lines:
            self.lines += 1
            self.characters += len(text)
            for word in self._counts(text):
                self.having[word] += 1
                found = True
        return found

    def best(self, files: Iterable[tuple[str, Callable[[], Lines]]], k: int) -> list[Best]:
        """Return the k lines with the highest scores, best first; earlier ones first in a tie."""
        heap: list[tuple[float, int, Best]] = []
        order = 0
        average = self.characters / max(1, self.lines) or 1.0
        weights = {word: ranking.weight(self.lines, n) for word, n in self.having.items()}
        for name, lines in files:
            for number, text in lines():
                counts = self._counts(text)
                if not counts:
                    continue
                order -= 1
                score = ranking.score(counts, weights, len(text), average)
                entry = (score, order, (score, name, number, text))
                if len(heap) < k:
                    heapq.heappush(heap, entry)
                elif entry[:2] > heap[0][:2]:
                    heapq.heapreplace(heap, entry)
        return [best for *_, best in sorted(heap, key=lambda each: each[:2], reverse=True)]

    def _counts(self, text: str) -> dict[str, int]:
        return ranking.counts_of(self._pattern, text, self.having)


SNIFFED_BYTES = 8_192
LONGEST_LINE_CHARS = 20_000
SHOWN_CHARS = 400
BLOCK_BYTES = 1 << 20

patterns.prepare()  # Once, in the process that the others are forked from.


def search(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield hits as they are found, and finally why there are no more, if that is known."""
    try:
        yield from _hits(job)
    except Refused as refusal:
        yield {"refused": str(refusal)}
    except (re.error, OverflowError, RecursionError) as error:
        yield {"refused": f"this is not a valid regular expression: {error}"}


def _hits(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    root = _root(job)
    names = _files(root, job)
    if job["ranked"]:
        yield from _ranked(root, names, job)
    else:
        yield from _matching(root, names, job)


def _root(job: dict[str, Any]) -> Root:
    """Open the folder that the gateway opened, unless another one has taken its place."""
    try:
        root = Root(job["folder"], job["root"], Denials(job["denied"]))
    except ConfigError:
        raise Refused("this root is gone") from None
    if root.identity != tuple(job["identity"]):
        root.close()
        raise Refused("this root is gone")
    return root


def _files(root: Root, job: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the files to search: the named ones, or all below a folder."""
    if job["files"] is not None:
        yield from (tuple(parts) for parts in job["files"])
        return
    wanted = compile_for_lines(str(job["names"])) if job["names"] else None
    for entry in files_below(root, job["below"], ignored=job["ignored"]):
        if wanted is None or wanted.search(entry.path):
            yield entry.parts


def _matching(
    root: Root, names: Iterator[tuple[str, ...]], job: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    pattern = compile_for_lines(job["query"], ignore_case=job["ignore_case"])
    left = job["most"]
    after = (tuple(job["after"][0]), job["after"][1]) if job["after"] else ((), 0)
    for parts in names:
        for number, text in _lines(root, parts):
            if (parts, number) <= after:
                continue
            if pattern.search(text):
                yield {"parts": parts, "line": number, "text": text[:SHOWN_CHARS]}
                left -= 1
                if left <= 0:
                    return


def _ranked(
    root: Root, names: Iterator[tuple[str, ...]], job: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    words = words_of(job["query"])
    if not words:
        raise Refused("the query has no words; give some, or a regular expression")
    corpus = Corpus(words)
    having = [parts for parts in names if corpus.count(_lines(root, parts))]

    def lines_of(parts: tuple[str, ...]) -> Callable[[], Iterator[tuple[int, str]]]:
        return lambda: _lines(root, parts)

    files = (("/".join(parts), lines_of(parts)) for parts in having)
    for score, name, number, text in corpus.best(files, job["most"]):
        parts = name.split("/")
        yield {
            "parts": parts,
            "line": number,
            "text": text[:SHOWN_CHARS],
            "score": round(score, 4),
        }


def _lines(root: Root, parts: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file; none if it is binary or gone."""
    try:
        fd = root.open_file(parts)
    except Refused:
        return
    with os.fdopen(fd, "rb") as file:
        if b"\0" in file.read(SNIFFED_BYTES):
            return
        file.seek(0)
        number = 0
        while line := file.readline(BLOCK_BYTES):
            number += 1
            yield number, line[:LONGEST_LINE_CHARS].decode("utf-8", "replace").rstrip("\r\n")
            while line and not line.endswith(b"\n"):
                line = file.readline(BLOCK_BYTES)
