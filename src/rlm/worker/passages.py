"""Finds the passages of texts that fit a question best, without an index or a model.

A passage is a paragraph, with its heading if it has one, or the part of a long one around a match.
Ranking is BM25 (see `search.py`) over stems of words. Words in the heading, the title or the name
of the text count too, and so does a word next to another word of the question.
"""

from __future__ import annotations

import bisect
import heapq

from .hits import Passages
from .passage_bounds import HEADING, PASSAGE_CHARS, around, between, paragraphs, with_neighbours
from .query_words import WITHOUT_SPACES, WORD, Query, stem
from .search import score, weight

__all__ = ["PASSAGE_CHARS", "Passages", "best_passages", "stem"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from .passage_bounds import Hit

PIECE_CHARS = 4_000_000
HEADING_CHARS = 200
MAX_PASSAGES = 100_000
NEAR_CHARS = 24
NEAR_WEIGHT = 0.5
LENGTH_WEIGHT = 0.2
HEADING_COUNT = 2.0
TITLE_COUNT = 0.5


def best_passages(sources: Iterable[tuple[Any, str]], query: str, k: int = 5) -> Passages:
    """Return the `k` best passages; `sources` are names and texts.

    `start` and `end` of a passage are character offsets into its text; lines count from 1. If the
    query has "quoted words", a passage must contain some of them. This applies to the first
    12 words of the first 8 quotations; other words count as usual.
    """
    search = _Search(query)
    for name, text in sources:
        search.read(name, text)
    return search.best(k)


class _Search:
    """The passages found so far, and how many of them contain each term."""

    def __init__(self, query: str) -> None:
        self.query = Query(query)
        self.having = [0] * (len(self.query.patterns) + len(self.query.stems))
        self.chars = 0
        self.found: list[tuple[Any, ...]] = []

    def read(self, name: Any, text: str) -> None:
        """Find the passages of a text."""
        self.chars += len(text)
        headings = _Headings(name, text, self)
        line = 1
        for offset, piece in _pieces(text):
            lower = _lower(piece)
            hits = self._hits(lower)
            if hits:
                at = 0
                for start, end, inside in self._passages(piece, hits):
                    line += piece.count("\n", at, start)
                    at = start
                    where = name, line, offset + start, piece[start:end]
                    self._note(where, inside, headings)
                line += piece.count("\n", at)
            else:
                line += piece.count("\n")

    def _hits(self, text: str) -> list[Hit]:
        """Return where the terms occur in a lower-case text; required ones come first."""
        hits: list[Hit] = []
        for number, pattern in enumerate(self.query.patterns):
            hits += ((match.start(), match.end(), number) for match in pattern.finditer(text))
        for number, wanted in enumerate(self.query.stems, len(self.query.patterns)):
            at = text.find(wanted)
            if wanted >= WITHOUT_SPACES:
                while at >= 0:
                    hits.append((at, at + len(wanted), number))
                    at = text.find(wanted, at + len(wanted))
                continue
            while at >= 0:
                end = at + len(wanted)
                if not (at and text[at - 1].isalnum()):
                    match = WORD.match(text, at)
                    if match and stem(match.group()) == wanted:
                        end = match.end()
                        hits.append((at, end, number))
                at = text.find(wanted, end)
        hits.sort()
        return hits

    def _passages(self, text: str, hits: list[Hit]) -> Iterator[tuple[int, int, list[Hit]]]:
        """Yield (start, end, hits inside) of every passage that the hits are in.

        `text` has the case of the original, and the hits are in order.
        """
        starts, ends = paragraphs(text)
        anchors = (
            [hit for hit in hits if hit[2] < self.query.required] if self.query.required else hits
        )
        done = 0
        for hit in anchors:
            if hit[0] < done:
                continue
            number = bisect.bisect_right(starts, hit[0]) - 1
            first = max(done, starts[number])
            while text[first] == "\n":
                first += 1
            last = ends[number]
            start, end = around(text, hit[0], first, last)
            if self.query.required and last - first > PASSAGE_CHARS:
                start, end = with_neighbours(text, (start, end), hits, first, last)
            end = max(end, hit[1])
            yield start, end, between(hits, start, end)
            done = end

    def _note(self, where: tuple[Any, ...], hits: list[Hit], headings: _Headings) -> None:
        text = where[3]
        if text.endswith(("?", "？")) and WORD.findall(text.lower()) == self.query.words:
            return  # This is the question itself.
        counts: dict[int, float] = {}
        near = set()
        before: Hit | None = None
        for hit in hits:
            counts[hit[2]] = counts.get(hit[2], 0) + 1
            if before is not None and before[2] != hit[2] and hit[0] - before[1] <= NEAR_CHARS:
                near.add((before[2], hit[2]) if before[2] < hit[2] else (hit[2], before[2]))
            before = hit
        for number in counts:
            self.having[number] += 1
        for number, count in headings.counts_at(where[2]).items():
            counts[number] = counts.get(number, 0) + count
        self.found.append((len(counts), -len(self.found), where, counts, near))
        if len(self.found) >= 2 * MAX_PASSAGES:  # Keep those with the most terms.
            self.found = heapq.nlargest(MAX_PASSAGES, self.found, key=lambda each: each[:2])

    def best(self, k: int) -> Passages:
        """Return the best passages, best first; equally good ones in the order of the texts."""
        usual = sum(len(each[2][3]) for each in self.found) / max(1, len(self.found)) or 1.0
        total = max(len(self.found), int(self.chars / usual))
        weights = {number: weight(total, having) for number, having in enumerate(self.having)}
        all_weight = sum(weights.values())
        scored = []
        for _, order, where, counts, near in self.found:
            points = score(counts, weights, len(where[3]), usual, LENGTH_WEIGHT)
            points += NEAR_WEIGHT * sum(min(weights[a], weights[b]) for a, b in near)
            points *= sum(weights[number] for number in counts) / all_weight
            scored.append((round(points, 4), order, where))
        best = heapq.nlargest(max(0, k), scored, key=lambda each: each[:2])
        return Passages(
            {
                "source": name,
                "line": line,
                "last_line": line + text.count("\n"),
                "start": start,
                "end": start + len(text),
                "text": text,
                "score": points,
            }
            for points, _, (name, line, start, text) in best
        )


class _Headings:
    """The terms in the headings above the passages of a text, in its title and in its name."""

    def __init__(self, name: Any, text: str, search: _Search) -> None:
        self._name, self._text, self._search = name, text, search
        self._starts: list[int] = []
        self._counts: list[dict[int, float]] = []

    def counts_at(self, start: int) -> dict[int, float]:
        if not self._counts:
            self._read()
        return self._counts[bisect.bisect_right(self._starts, start) - 1]

    def _read(self) -> None:
        """Read all headings, when the first passage of the text is found."""
        headings = list(HEADING.finditer(self._text))
        title = headings[0][1][:HEADING_CHARS] if headings else ""
        general = dict.fromkeys(self._terms_in(f"{self._name} {title}"), TITLE_COUNT)
        self._starts, self._counts = [0], [general]
        for heading in headings:
            counts = dict(general)
            for number in self._terms_in(heading[1][:HEADING_CHARS]):
                counts[number] = counts.get(number, 0) + HEADING_COUNT
            self._starts.append(heading.start())
            self._counts.append(counts)

    def _terms_in(self, text: str) -> set[int]:
        return {number for _, _, number in self._search._hits(_lower(text))}


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """Yield a text in pieces that end at a line end, if lines are not too long."""
    start = 0
    while start < len(text):
        end = start + PIECE_CHARS
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or end
        yield start, text[start:end]
        start = end


def _lower(text: str) -> str:
    """Return a text in lower case, with the same length."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(low if len(low := char.lower()) == 1 else char for char in text)
