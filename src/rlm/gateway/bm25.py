"""Which lines match some words best: BM25 over the lines of many files, in two passes.

The first pass counts in how many lines each word is, the second keeps the best so far. Nothing but
these counts is held, so memory does not grow with the files.
"""

import heapq
from collections.abc import Callable, Iterable

from rlm.worker import search

__all__ = ["Best", "Corpus"]

Lines = Iterable[tuple[int, str]]
"""Numbers and texts of the lines of one file."""
Best = tuple[float, str, int, str]
"""Score, file, number of the line, its text."""


class Corpus:
    """What the first pass finds out."""

    def __init__(self, words: list[str]) -> None:
        self._pattern = search.pattern_of(words, whole=True)
        self.lines = 0
        self.characters = 0
        self.having = dict.fromkeys(words, 0)

    def count(self, lines: Lines) -> bool:
        """Take in a file; whether it has any of the words."""
        found = False
        for _, text in lines:
            self.lines += 1
            self.characters += len(text)
            for word in self._counts(text):
                self.having[word] += 1
                found = True
        return found

    def best(self, files: Iterable[tuple[str, Callable[[], Lines]]], k: int) -> list[Best]:
        """The k lines with the highest scores, the highest first; of equals the earlier one."""
        heap: list[tuple[float, int, Best]] = []
        order = 0
        usual = self.characters / max(1, self.lines) or 1.0
        weights = {word: search.weight(self.lines, n) for word, n in self.having.items()}
        for name, lines in files:
            for number, text in lines():
                counts = self._counts(text)
                if not counts:
                    continue
                order -= 1
                score = search.score(counts, weights, len(text), usual)
                entry = (score, order, (score, name, number, text))
                if len(heap) < k:
                    heapq.heappush(heap, entry)
                elif entry[:2] > heap[0][:2]:
                    heapq.heapreplace(heap, entry)
        return [best for *_, best in sorted(heap, key=lambda each: each[:2], reverse=True)]

    def _counts(self, text: str) -> dict[str, int]:
        return search.counts_of(self._pattern, text, self.having)
