"""How well a text matches some words: BM25, for whoever searches, here or on the host.

A word counts the more the fewer texts have it; its second occurrence in a text counts less than the
first, and a long text less than a short one.
"""

from __future__ import annotations

import math
import re

__all__ = ["counts_of", "pattern_of", "score", "weight", "words_of"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

SATURATION = 1.2
LENGTH_WEIGHT = 0.75
MOST_WORDS = 32
_WORD = re.compile(r"\w+")


def words_of(query: str) -> list[str]:
    """The different words of a query, in lower case."""
    return list(dict.fromkeys(_WORD.findall(query.lower())))[:MOST_WORDS]


def pattern_of(words: Collection[str], *, whole: bool) -> re.Pattern[str]:
    """What finds these words, in any case; `whole`: not as parts of longer ones."""
    # The longest first: of two that begin alike, the shorter one would hide the other.
    listed = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    return re.compile(rf"\b(?:{listed})\b" if whole else listed, re.IGNORECASE)


def counts_of(pattern: re.Pattern[str], text: str, words: Collection[str]) -> dict[str, int]:
    """How often each word that occurs does."""
    counts: dict[str, int] = {}
    for found in pattern.findall(text):
        word = found.lower()
        if word in words:  # Letters such as the dotted I have more than one lower case.
            counts[word] = counts.get(word, 0) + 1
    return counts


def weight(texts: int, having: int) -> float:
    """What a word is worth that so many of all texts have."""
    return math.log(1 + (texts - having + 0.5) / (having + 0.5))


def score(counts: dict[str, int], weights: dict[str, float], length: int, usual: float) -> float:
    """Of a text of this length, where `usual` is the mean of all."""
    norm = SATURATION * (1 - LENGTH_WEIGHT + LENGTH_WEIGHT * length / usual)
    return sum(
        weights[word] * count * (SATURATION + 1) / (count + norm) for word, count in counts.items()
    )
