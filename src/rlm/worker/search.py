"""Ranks texts by the words they contain, without an index or a model.

Ranking is BM25: a word counts more the fewer texts contain it, its second occurrence in a text
counts less than the first, and a long text counts less than a short one. `passages.py` uses it in
the sandbox, the gateway on the host.
"""

from __future__ import annotations

import math
import re

__all__ = ["counts_of", "pattern_of", "score", "weight", "words_of"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

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


def score(
    counts: dict[Any, Any],
    weights: dict[Any, float],
    length: int,
    usual: float,
    length_weight: float = LENGTH_WEIGHT,
) -> float:
    """Return the BM25 score of a text of this length; `usual` is the mean length."""
    norm = SATURATION * (1 - length_weight + length_weight * length / usual)
    points: float = sum(
        weights[word] * count * (SATURATION + 1) / (count + norm) for word, count in counts.items()
    )
    return points
