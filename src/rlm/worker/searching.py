"""Which passages of some texts match a few words best; nothing is indexed, and no model is asked.

A passage is a line, or part of one that is very long. Words count the more the fewer passages have
them, and the second occurrence of a word in a passage counts less than the first (BM25).
"""

from __future__ import annotations

import heapq
import math
import re

__all__ = ["best_passages"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

PASSAGE_CHARS = 1_000
_MOST_WORDS = 32
_WORD = re.compile(r"\w+")
_SATURATION = 1.2
_LENGTH_WEIGHT = 0.5
_USUAL_CHARS = 200


def best_passages(
    sources: Iterable[tuple[str, str]], query: str, k: int = 5
) -> list[dict[str, Any]]:
    """The `k` best as {"source", "text", "start", "score"}; those that have no word are left out.

    `sources` are (name, text); `start` is where the passage begins in that text.
    """
    words = list(dict.fromkeys(_WORD.findall(query.lower())))[:_MOST_WORDS]
    if not words:
        raise ValueError("the query has no words to look for")
    pattern = re.compile("|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)))
    found = [
        (name, start, passage, _counts(pattern, passage))
        for name, text in sources
        for start, passage in _passages(text, pattern)
    ]
    having = {word: sum(word in counts for *_, counts in found) for word in words}
    weights = {word: math.log(1 + len(found) / (1 + number)) for word, number in having.items()}
    best = heapq.nlargest(
        max(0, k), enumerate(found), key=lambda each: (_score(each[1], weights), -each[0])
    )
    return [
        {"source": name, "text": text, "start": start, "score": round(_score(row, weights), 4)}
        for _, row in best
        for name, start, text, _ in [row]
    ]


def _passages(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """The passages in which the pattern occurs, each once."""
    lowered = text.lower()
    if len(lowered) != len(text):  # Some letters become two; then offsets would be wrong.
        lowered = text
    done = 0
    for match in pattern.finditer(lowered):
        if match.start() < done:
            continue
        start = text.rfind("\n", 0, match.start()) + 1
        start = max(start, done, match.start() - PASSAGE_CHARS // 2)
        end = text.find("\n", match.end())
        end = min(len(text) if end < 0 else end, start + PASSAGE_CHARS)
        end = max(end, match.end())
        yield start, text[start:end]
        done = end


def _counts(pattern: re.Pattern[str], passage: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for word in pattern.findall(passage.lower()):
        counts[word] = counts.get(word, 0) + 1
    return counts


def _score(row: tuple[str, int, str, dict[str, int]], weights: dict[str, float]) -> float:
    *_, passage, counts = row
    length = 1 + _LENGTH_WEIGHT * (len(passage) / _USUAL_CHARS - 1)
    return sum(
        weights[word] * count * (1 + _SATURATION) / (count + _SATURATION * length)
        for word, count in counts.items()
    )
