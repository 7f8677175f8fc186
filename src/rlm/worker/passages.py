"""Finds the passages of texts that fit a question best, without an index or a model.

A passage is a paragraph, with its heading if it has one, or the part of a longer one around what
was found. Ranking is BM25 (see `search.py`) over stems of words. A word in the heading, the title
or the name of the text counts too, and so does a word next to another word of the question.
"""

from __future__ import annotations

import bisect
import functools
import heapq
import re
from itertools import islice

from .search import score, weight

__all__ = ["PASSAGE_CHARS", "Passages", "best_passages", "stem"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    Hit = tuple[int, int, int]
    """Start and end of what was found, and the number of the term."""

PASSAGE_CHARS = 800
BEFORE_CHARS = 200
"""How much of a long paragraph is shown before what was found."""

WRAPPED_CHARS = 40
"""A shorter line is not taken for the first part of a wrapped one."""

PIECE_CHARS = 4_000_000
MAX_TERMS = 32
MAX_PHRASES = 8
PHRASE_WORDS = 12
HEADING_CHARS = 200
MAX_PASSAGES = 100_000
NEAR_CHARS = 24
NEAR_LINES = 3
NEAR_WEIGHT = 0.5
LENGTH_WEIGHT = 0.2
HEADING_COUNT = 2.0
TITLE_COUNT = 0.5

_IGNORED = (
    "a about all also am an and any are as at be been but by can could did do does for from had "
    "has have he her him his how i if in into is it its itself may me might mine must my no not of "
    "on or our ours please shall she should so some such tell than that the their them then there "
    "these they this those to us was we were what when where which who whom whose why will with "
    "would you your"
)
IGNORED = frozenset(_IGNORED.split())
_WORD = re.compile(r"[^\W_]+")
_QUOTED = re.compile(r"\"([^\"\n]{1,200})\"")
_BREAK = re.compile(r"\n[ \t\r]*\n\s*")
_HEADING = re.compile(r"^#{1,6}[ \t]+(\S.*)$", re.MULTILINE)
_LETTERS_AND_NUMBER = re.compile(r"\b([^\W\d_]{1,5})(\d{2,})\b")
_WITHOUT_SPACES = "\u2e80"
"""From here on are the scripts that write words without spaces between them."""


@functools.lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """Return a word in lower case without its commonest English endings."""
    word = word.lower()
    if len(word) > 4 and word.endswith(("ies", "ied")):
        word = word[:-3] + "y"
    elif len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ation", "ment", "ing", "ion", "ed", "er", "ly"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            word = word[: -len(ending)]
            break
    else:
        for ending in ("ing", "ed"):
            if word.endswith(ending) and len(word) - len(ending) == 3:
                word = word[: -len(ending)]
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiousl":
        word = word[:-1]
    return word[:-1] if len(word) > 3 and word.endswith(("e", "y")) else word


class Passages(list["Any"]):
    """Passages, the best first: dicts with source, line, last_line, start, end, text and score.

    `source` is the name of the text, its index in a list, or None. Printed, each passage is below
    its place, such as `2. notes/april.md:12–14`.
    """

    def __str__(self) -> str:
        return "\n\n".join(
            "\n".join([f"{number}. {_label(each)}", *map(_indented, each["text"].splitlines())])
            for number, each in enumerate(self, 1)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Saved chats hold a plain list, which any Python can load."""
        return list, (list(self),)


def _indented(line: str) -> str:
    return f"   {line}".rstrip()


def _label(passage: dict[str, Any]) -> str:
    source, first, last = passage["source"], passage["line"], passage["last_line"]
    lines = f"{first}" if first == last else f"{first}–{last}"
    if source is None:
        return f"line {lines}"
    return f"[{source}]:{lines}" if isinstance(source, int) else f"{source}:{lines}"


def best_passages(sources: Iterable[tuple[Any, str]], query: str, k: int = 5) -> Passages:
    """Return the `k` best passages; `sources` are names and texts.

    `start` and `end` of a passage are offsets in characters into its text, lines count from 1. If
    the query has "quoted words", a passage must hold some of them. That holds for the first
    12 words of the first 8 quotations; the words of others count as usual.
    """
    search = _Search(query)
    for name, text in sources:
        search.read(name, text)
    return search.best(k)


class _Search:
    """The passages found so far, and in how many of them each term is."""

    def __init__(self, query: str) -> None:
        phrases = list(dict.fromkeys(" ".join(each.split()) for each in _QUOTED.findall(query)))
        phrases = [each.lower() for each in phrases if _WORD.search(each)]
        usual = " ".join([_QUOTED.sub(" ", query), *phrases[MAX_PHRASES:]])
        phrases = list(dict.fromkeys(map(_beginning, phrases[:MAX_PHRASES])))
        self.required = len(phrases)
        self.patterns = [*map(_phrase, phrases), *map(_verbatim, phrases)]
        self.stems = _stems(usual)[:MAX_TERMS]
        terms = len(self.patterns) + len(self.stems)
        if not terms:
            raise ValueError("the query has no words to look for")
        self.having = [0] * terms
        self.words = _WORD.findall(query.lower())
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
        """Return where the terms are in a text in lower case; required ones come first."""
        hits: list[Hit] = []
        for number, pattern in enumerate(self.patterns):
            hits += ((match.start(), match.end(), number) for match in pattern.finditer(text))
        for number, wanted in enumerate(self.stems, len(self.patterns)):
            at = text.find(wanted)
            if wanted >= _WITHOUT_SPACES:
                while at >= 0:
                    hits.append((at, at + len(wanted), number))
                    at = text.find(wanted, at + len(wanted))
                continue
            while at >= 0:
                end = at + len(wanted)
                if not (at and text[at - 1].isalnum()):
                    match = _WORD.match(text, at)
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
        starts, ends = _paragraphs(text)
        anchors = [hit for hit in hits if hit[2] < self.required] if self.required else hits
        done = 0
        for hit in anchors:
            if hit[0] < done:
                continue
            number = bisect.bisect_right(starts, hit[0]) - 1
            first = max(done, starts[number])
            while text[first] == "\n":
                first += 1
            last = ends[number]
            start, end = _around(text, hit[0], first, last)
            if self.required and last - first > PASSAGE_CHARS:
                start, end = _with_neighbours(text, (start, end), hits, first, last)
            end = max(end, hit[1])
            yield start, end, _between(hits, start, end)
            done = end

    def _note(self, where: tuple[Any, ...], hits: list[Hit], headings: _Headings) -> None:
        text = where[3]
        if text.endswith(("?", "？")) and _WORD.findall(text.lower()) == self.words:
            return  # It is the question itself.
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
        if len(self.found) >= 2 * MAX_PASSAGES:  # Those with the most terms stay.
            self.found = heapq.nlargest(MAX_PASSAGES, self.found, key=lambda each: each[:2])

    def best(self, k: int) -> Passages:
        """Return the best passages, the best first; equally good ones in the order of the texts."""
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
        headings = list(_HEADING.finditer(self._text))
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


def _between(hits: list[Hit], start: int, end: int) -> list[Hit]:
    return hits[bisect.bisect_left(hits, (start,)) : bisect.bisect_left(hits, (end,))]


def _stems(query: str) -> list[str]:
    """Return the distinct stems of a query; words that say nothing count if there are no others."""
    words = [word.lower() for word in _WORD.findall(query)]
    telling = [word for word in words if word not in IGNORED] or words
    stems: list[str] = []
    for word in telling:
        if word >= _WITHOUT_SPACES:
            stems += (word[n : n + 2] for n in range(max(1, len(word) - 1)))
        else:
            stems.append(stem(word))
    return list(dict.fromkeys(stems))


def _beginning(phrase: str) -> str:
    """Return at most the first words of a phrase, as they are written."""
    words = list(islice(_WORD.finditer(phrase), PHRASE_WORDS + 1))
    return phrase if len(words) <= PHRASE_WORDS else phrase[: words[PHRASE_WORDS - 1].end()]


def _verbatim(phrase: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![^\W_]){re.escape(phrase)}(?![^\W_])")


def _phrase(phrase: str) -> re.Pattern[str]:
    """Return a pattern that finds `red otter` as red-otter, and `kx4821` as kx-4821, too."""
    parts = _WORD.findall(_LETTERS_AND_NUMBER.sub(r"\1 \2", phrase))
    pattern = last = ""
    for part in parts:
        apart = last[-1:].isdigit() and part[0].isdigit()  # otherwise 12-34 would match 1234
        between = (r"[\W_]" if apart else r"[\W_]?") if last else ""
        pattern, last = pattern + between + re.escape(part), part
    before = r"(?<!\d[-_.])" if parts[0][0].isdigit() else ""  # otherwise 3.4 would match 2.3.4
    after = r"(?![-_.]\d)" if last[-1:].isdigit() else ""
    return re.compile(rf"(?<![^\W_]){before}{pattern}(?![^\W_]){after}")


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """Yield a text in pieces that end with a line, if lines are not too long."""
    start = 0
    while start < len(text):
        end = start + PIECE_CHARS
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or end
        yield start, text[start:end]
        start = end


def _lower(text: str) -> str:
    """Return a text in lower case, of the same length."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(low if len(low := char.lower()) == 1 else char for char in text)


def _paragraphs(text: str) -> tuple[list[int], list[int]]:
    """Return where paragraphs begin and end; a heading, or `as follows:`, belongs to the next."""
    starts, ends = [0], []
    for match in _BREAK.finditer(text):
        above = max(starts[-1], text.rfind("\n", starts[-1], match.start()) + 1)
        is_heading = text.startswith("#", above) and _HEADING.match(text, above)
        if not (is_heading or text.endswith(":", above, match.start())):
            starts.append(match.end())
            ends.append(match.start())
    return starts, [*ends, len(text.rstrip())]


def _around(text: str, at: int, first: int, last: int) -> tuple[int, int]:
    """Return the passage around a place in a paragraph: all of it, or the line if it is long.

    Lines that continue a sentence belong to the line above.
    """
    if last - first <= PASSAGE_CHARS:
        return first, last
    start, end = _line(text, at, first, last)
    while start > first and at - start < BEFORE_CHARS and _continues(text, start):
        start = _line(text, start - 1, first, last)[0]
    while end < last and end - start < PASSAGE_CHARS and _continues(text, end + 1):
        end = _line(text, end + 1, first, last)[1]
    if end - start > PASSAGE_CHARS:
        if start < at - BEFORE_CHARS:
            start = text.find(" ", at - BEFORE_CHARS, at) + 1 or at - BEFORE_CHARS
        end = min(end, start + PASSAGE_CHARS)
    return start, end


def _with_neighbours(
    text: str, span: tuple[int, int], hits: list[Hit], first: int, last: int
) -> tuple[int, int]:
    """Return a passage with the lines next to it that hold only terms which it lacks."""
    start, end = span
    held = {term for _, _, term in _between(hits, start, end)}
    near = []
    for at, _, term in _between(hits, *_lines_near(text, span, first, last)):
        if term not in held:
            apart = text.count("\n", at, start) + text.count("\n", end, at)
            near.append((apart, at, term))
    for _, at, term in sorted(near):
        if term in held:
            continue
        low, high = _line(text, at, first, last)
        beside = {other for _, _, other in _between(hits, low, high)}
        low, high = min(low, start), max(high, end)
        if beside.isdisjoint(held) and high - low <= PASSAGE_CHARS:
            start, end = low, high
            held.add(term)
    return start, end


def _lines_near(text: str, span: tuple[int, int], first: int, last: int) -> tuple[int, int]:
    """Return where the few lines before a passage begin, and where those after it end."""
    start, end = span
    lowest, highest = max(first, start - PASSAGE_CHARS), min(last, end + PASSAGE_CHARS)
    for _ in range(NEAR_LINES + 1):
        start = text.rfind("\n", lowest, start) if start > lowest else -1
        if start < 0:
            break
    for _ in range(NEAR_LINES + 1):
        end = text.find("\n", end, highest) + 1
        if not end:
            break
    return (start + 1 if start >= 0 else lowest), end or highest


def _line(text: str, at: int, first: int, last: int) -> tuple[int, int]:
    """Return the line around a place; of a very long one, the part that a passage may show."""
    lowest, highest = max(first, at - PASSAGE_CHARS), min(last, at + PASSAGE_CHARS)
    end = text.find("\n", at, highest)
    return text.rfind("\n", lowest, at) + 1 or lowest, highest if end < 0 else end


def _continues(text: str, start: int) -> bool:
    """Whether the line that begins here continues the line above, or answers it."""
    above = text[max(0, start - WRAPPED_CHARS - 1) : start - 1].rstrip()
    if above.endswith(("?", ":")) or above.rpartition(" ")[2].lower() in IGNORED:
        return True
    is_wrapped = "\n" not in above and above[-1:] not in {".", "!", ""}
    return is_wrapped and text[start : start + WRAPPED_CHARS].lstrip()[:1].islower()
