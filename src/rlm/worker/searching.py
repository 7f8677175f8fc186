"""Which passages of some texts match a few words best; nothing is indexed, and no model is asked.

A passage is a line, or part of one that is very long. Words are found inside longer ones too.
"""

from __future__ import annotations

import heapq

from . import ranking

__all__ = ["best_passages"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator
    from typing import Any

PASSAGE_CHARS = 1_000


def best_passages(
    sources: Iterable[tuple[str, str]], query: str, k: int = 5
) -> list[dict[str, Any]]:
    """The `k` best as {"source", "text", "start", "score"}; those that have no word are left out.

    `sources` are (name, text); `start` is where the passage begins in that text.
    """
    words = ranking.words_of(query)
    if not words:
        raise ValueError("the query has no words to look for")
    pattern = ranking.pattern_of(words, whole=False)
    found = [
        (name, start, passage, ranking.counts_of(pattern, passage, words))
        for name, text in sources
        for start, passage in _passages(text, pattern)
    ]
    having = {word: sum(word in counts for *_, counts in found) for word in words}
    weights = {word: ranking.weight(len(found), number) for word, number in having.items()}
    usual = sum(len(passage) for _, _, passage, _ in found) / max(1, len(found)) or 1.0
    scored = [
        (ranking.score(counts, weights, len(passage), usual), -order, name, start, passage)
        for order, (name, start, passage, counts) in enumerate(found)
    ]
    return [
        {"source": name, "text": passage, "start": start, "score": round(points, 4)}
        for points, _, name, start, passage in heapq.nlargest(max(0, k), scored)
    ]


def _passages(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """The passages in which the pattern occurs, each once."""
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
