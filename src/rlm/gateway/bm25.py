"""Which lines match some words best: BM25 over the lines of many files, in two passes.

The first pass counts in how many lines each word is, the second keeps the best so far. Nothing but
these counts is held, so memory does not grow with the files.
"""

import heapq
import math
import re
from collections.abc import Callable, Iterable

__all__ = ["Best", "Corpus", "words_of"]

SATURATION = 1.2
LENGTH_WEIGHT = 0.75
MOST_WORDS = 32
_WORD = re.compile(r"\w+")

Lines = Iterable[tuple[int, str]]
"""Numbers and texts of the lines of one file."""
Best = tuple[float, str, int, str]
"""Score, file, number of the line, its text."""


def words_of(query: str) -> list[str]:
    """The different words of a query, in lower case."""
    return list(dict.fromkeys(_WORD.findall(query.lower())))[:MOST_WORDS]


class Corpus:
    """What the first pass finds out."""

    def __init__(self, words: list[str]) -> None:
        self._pattern = re.compile(
            r"\b(?:" + "|".join(re.escape(word) for word in words) + r")\b", re.IGNORECASE
        )
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
        for name, lines in files:
            for number, text in lines():
                counts = self._counts(text)
                if not counts:
                    continue
                order -= 1
                score = self._score(counts, len(text))
                entry = (score, order, (score, name, number, text))
                if len(heap) < k:
                    heapq.heappush(heap, entry)
                elif entry[:2] > heap[0][:2]:
                    heapq.heapreplace(heap, entry)
        return [best for *_, best in sorted(heap, key=lambda each: each[:2], reverse=True)]

    def _counts(self, text: str) -> dict[str, int]:
        counts: dict[str, int] = {}
        for found in self._pattern.findall(text):
            word = found.lower()
            if word in self.having:
                counts[word] = counts.get(word, 0) + 1
        return counts

    def _score(self, counts: dict[str, int], length: int) -> float:
        usual = self.characters / max(1, self.lines) or 1.0
        norm = SATURATION * (1 - LENGTH_WEIGHT + LENGTH_WEIGHT * length / usual)
        return sum(
            self._weight(word) * count * (SATURATION + 1) / (count + norm)
            for word, count in counts.items()
        )

    def _weight(self, word: str) -> float:
        having = self.having[word]
        return math.log(1 + (self.lines - having + 0.5) / (having + 0.5))
