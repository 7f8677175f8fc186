"""Finds the passages of texts that match a few words best, without an index or a model.

A passage is a line, or part of a very long one. Ranking is BM25: a word counts more the fewer texts
contain it, its second occurrence in a text counts less than the first, and a long text counts less
than a short one. The host uses the ranking too.
"""

from __future__ import annotations

import heapq
import math
import re

__all__ = ["best_passages", "counts_of", "pattern_of", "score", "weight", "words_of"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from typing import Any

PASSAGE_CHARS = 1_000


def best_passages(
    sources: Iterable[tuple[str, str]], query: str, k: int = 5
) -> list[dict[str, Any]]:
    """Return the `k` best passages with a matching word, as {"source", "text", "start", "score"}.

    `sources` are (name, text); `start` is where the passage begins in that text.
    """
    words = words_of(query)
    if not words:
        raise ValueError("the query has no words to look for")
    pattern = pattern_of(words, whole=False)
    found = [
        (name, start, passage, counts_of(pattern, passage, words))
        for name, text in sources
        for start, passage in _passages(text, pattern)
    ]
    having = {word: sum(word in counts for *_, counts in found) for word in words}
    weights = {word: weight(len(found), number) for word, number in having.items()}
    usual = sum(len(passage) for _, _, passage, _ in found) / max(1, len(found)) or 1.0
    scored = [
        (score(counts, weights, len(passage), usual), -order, name, start, passage)
        for order, (name, start, passage, counts) in enumerate(found)
    ]
    return [
        {"source": name, "text": passage, "start": start, "score": round(points, 4)}
        for points, _, name, start, passage in heapq.nlargest(max(0, k), scored)
    ]


def _passages(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Yield the passages in which the pattern occurs, each once."""
    done = 0
    for match in pattern.finditer(text):
        if match.start() < done:
            continue
        start = text.rfind("\n", 0, match.start()) + 1
        start = max(start, done, match.start() - PASSAGE_CHARS // 2)
        end = text.find("\n", match.end())
        end = min(len(text) if end < 0 else end, start + PASSAGE_CHARS)
        end = max(end, match.end())
        yield start, text[start:end]
        done = end


# -- BM25 --

SATURATION = 1.2
LENGTH_WEIGHT = 0.75
MAX_WORDS = 32
_WORD = re.compile(r"\w+")


def words_of(query: str) -> list[str]:
    """Return the distinct words of a query, in lower case."""
    return list(dict.fromkeys(_WORD.findall(query.lower())))[:MAX_WORDS]


def pattern_of(words: Collection[str], *, whole: bool) -> re.Pattern[str]:
    """Return a pattern for these words, in any case; with `whole`, only whole words."""
    # Longest first: otherwise a word would hide a longer one that begins with it.
    listed = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    return re.compile(rf"\b(?:{listed})\b" if whole else listed, re.IGNORECASE)


def counts_of(pattern: re.Pattern[str], text: str, words: Collection[str]) -> dict[str, int]:
    """Count the occurrences of each word."""
    counts: dict[str, int] = {}
    for found in pattern.findall(text):
        word = found.lower()
        if word in words:  # Some letters, such as the dotted I, have several lower-case forms.
            counts[word] = counts.get(word, 0) + 1
    return counts


def weight(texts: int, having: int) -> float:
    """Return the IDF of a word found in `having` of `texts`."""
    return math.log(1 + (texts - having + 0.5) / (having + 0.5))


def score(counts: dict[str, int], weights: dict[str, float], length: int, usual: float) -> float:
    """Return the BM25 score of a text of this length; `usual` is the mean length."""
    norm = SATURATION * (1 - LENGTH_WEIGHT + LENGTH_WEIGHT * length / usual)
    return sum(
        weights[word] * count * (SATURATION + 1) / (count + norm) for word, count in counts.items()
    )
