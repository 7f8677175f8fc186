"""Finds the passages of a text that a question is about. This file runs INSIDE the sandbox.

The offline model sends this source in a cell, after those of `offline_text` and `offline_plan`.
A plan, made from the question on the host, names the keys that must occur and the words that
should: a passage counts when its keys match, and the rarer its other words, the higher it ranks.
"""

import math
import re
import sys
from collections.abc import Callable, Container, Iterator
from itertools import chain, islice
from typing import TypedDict

from rlm.clients.offline_plan import HEADS, Hit, Key, Plan
from rlm.clients.offline_text import (
    CLIP_CHARS,
    MARGIN_CHARS,
    RECORD_CHARS,
    WORD,
    Units,
    as_text,
    folded,
    stem,
)

__all__ = ["MARK", "TASK_MARK", "conclude", "report", "search", "task_of"]

MOST_ANCHORS = 5_000
MOST_POSITIONS = 20_000
ENOUGH_COVERAGE = 0.5
SUPPORTING_COVERAGE = 0.3
LOOSE_COVERAGE = 0.5
PROMISING_SHARE = 0.6
ABSENT_WEIGHT = 0.5
RELATED_SHARE = 0.5
CHARS_A_UNIT = 80
TASK_CHARS = 3_000
MARK, TASK_MARK = "offline-search:", "offline-task:"

ANSWER = re.compile(r"\s*(?:a|answer|reply)[ \t]*[:.)-].{1,400}", re.IGNORECASE)
ASSIGNED = re.compile(r"\s*(?:->|=>|[:=→]|(?:is|was|are|means|equals)\b)")
VALUE_NEXT = re.compile(r"[^\",;|\n]{0,60}?\d")
"""What says something of a name right after it: an assignment, or a value in the same field."""

VALUE = re.compile(r"\w*\d\w*|\b[A-Z]{2,}[A-Z-]{2,}\b")


class Span(TypedDict):
    """Where a key or a word stands; `exact` if it is written as the question writes it."""

    start: int
    end: int
    exact: bool


class Search:
    """One question over one text."""

    def __init__(self, plan: Plan, text: str) -> None:
        self.plan = plan
        self.text = text
        self.low = folded(text)
        self.units = Units(text)
        self._counted: dict[str, float] = {}
        self.known = {*plan["terms"], *(r for related in plan["terms"].values() for r in related)}
        self.in_question = set(WORD.findall(plan["question"].lower()))
        self.weights = {word: self._weight(word) for word in plan["terms"]}

    def _weight(self, word: str) -> float:
        """Between 0 and 1: the rarer in this text, the more a word tells."""
        if word not in self._counted:
            units = len(self.low) / CHARS_A_UNIT + 2
            often = self.low.count(word)
            rarity = math.log1p(units / (often + 1)) / math.log1p(units)
            self._counted[word] = rarity if often else ABSENT_WEIGHT
        return self._counted[word]

    # -- where to look -----------------------------------------------------------------------

    def hits(self) -> list[Hit]:
        return _best(self._by_keys(self.plan["keys"]) if self.plan["keys"] else self._by_words())

    def _by_keys(self, keys: list[Key]) -> list[Hit]:
        """Every place where all keys stand together, seen from the rarest of them."""
        places = [(self._anchors(key), key) for key in keys]
        places.sort(key=lambda place: len(place[0]))
        spans, rarest = places[0]
        others = [key for _, key in places[1:]]
        trusted = not rarest["weak"] or self._is_telling(rarest, len(spans))
        found = []
        for span in spans:
            start, end = self.units.around(span["start"], span["end"])
            low, high = max(0, start - MARGIN_CHARS), end + MARGIN_CHARS
            if all(any(self._spans(key, low, high)) for key in others):
                together = sum(any(self._spans(key, start, end)) for key in others)
                certain = span["exact"] and trusted
                found.append(self._hit(start, end, span, together + span["exact"], certain))
        return found

    def _is_telling(self, key: Key, count: int) -> bool:
        """Whether a phrase holds a word that occurs nowhere else; chance would not do that."""
        words = key["words"]
        return len(words) > 1 and any(self.low.count(word) == count for word in words)

    def _by_words(self) -> list[Hit]:
        """Units that hold most of the question's weight, seen from its rarest words."""
        found: dict[int, Hit] = {}
        for word in sorted(self.plan["terms"], key=self.low.count):
            for at in self._positions(word):
                near = self.low[max(0, at - CLIP_CHARS) : at + CLIP_CHARS]
                if self._coverage(near) < ENOUGH_COVERAGE * PROMISING_SHARE:
                    continue  # a cheap look, which spares most places the exact one
                start, end = self.units.around(at, at + len(word))
                if start not in found:
                    held = {stem(each) for each in WORD.findall(self.low[start:end])}
                    coverage = self._coverage(held)
                    enough = len(held & self.weights.keys()) >= min(2, len(self.weights))
                    span = Span(start=at, end=at + len(word), exact=True)
                    hit = self._hit(start, end, span, coverage, certain=False)
                    found[start] = {**hit, "sure": enough and coverage >= ENOUGH_COVERAGE}
        return list(found.values())

    def _coverage(self, held: Container[str]) -> float:
        total = sum(self.weights.values()) or 1.0
        return sum(weight for word, weight in self.weights.items() if word in held) / total

    def _positions(self, word: str) -> Iterator[int]:
        """Where words begin with this one, as far as they are worth looking at."""
        at = self.low.find(word)
        for _ in range(MOST_POSITIONS):
            if at < 0:
                return
            if not self.low[at - 1 : at].isalnum():
                yield at
            at = self.low.find(word, at + len(word))

    def _anchors(self, key: Key) -> list[Span]:
        """Where a key stands; of too many places, those near the question's rarest other word."""
        spans = list(islice(self._spans(key), MOST_ANCHORS))
        terms = sorted(filter(self.low.count, self.plan["terms"]), key=self.low.count)
        if len(spans) < MOST_ANCHORS or not terms:
            return spans
        near: dict[int, Span] = {}
        for at in self._positions(terms[0]):
            found = self._spans(key, max(0, at - MARGIN_CHARS), at + MARGIN_CHARS)
            near.update((span["start"], span) for span in found)
            if len(near) > MOST_ANCHORS:
                break
        return list(near.values()) or spans

    # -- what matches ------------------------------------------------------------------------

    def _spans(self, key: Key, start: int = 0, end: int = sys.maxsize) -> Iterator[Span]:
        """Where a key stands, in the whole text or a part of it."""
        pattern = re.compile(key["pattern"])
        for match in pattern.finditer(self.low, start, end):
            if self._stands_alone(key, match.start(), match.end()):
                raw = self.text[match.start() : match.end()]
                same = " ".join(raw.split()) == key["form"]
                exact = same or not re.search(r"\s", raw)
                yield Span(start=match.start(), end=match.end(), exact=exact)

    def _stands_alone(self, key: Key, start: int, end: int) -> bool:
        """Whether this is the key itself, not a part of a longer name or another kind of thing."""
        before, after = self.low[max(0, start - 24) : start], self.low[end : end + 24]
        if before[-1:].isalnum() or after[:1].isalnum():
            return False
        if re.match(r"\.\d", after) or re.search(r"\d\.$", before):
            return False
        head = re.search(r"([^\W\d_]+)[\s_-]$", before)
        if head and key["head"] and head[1] in HEADS and head[1] != key["head"]:
            return False
        joined = re.search(r"([^\W_]+)[-_]$", before), re.match(r"[-_]([^\W_]+)", after)
        allowed = self.known | {key["head"]}
        return all(m is None or m[1] in HEADS or {m[1], stem(m[1])} & allowed for m in joined)

    def _support(self, start: int, end: int, span: Span) -> tuple[float, bool]:
        """Weight of the question's other words in a unit, and whether it holds a wanted value."""
        held = {stem(word) for word in WORD.findall(self.low[start:end])}
        weight = 0.0
        for term, related in self.plan["terms"].items():
            if term in held:
                weight += self.weights[term]
            else:
                near = [self._weight(word) for word in held.intersection(related)]
                weight += RELATED_SHARE * min(self.weights[term], max(near, default=0.0))
        if not self.plan["wants_value"]:
            return weight, False
        rest = self.text[start : span["start"]] + " " + self.text[span["end"] : end]
        return weight, any(value.lower() not in self.in_question for value in VALUE.findall(rest))

    def _hit(self, start: int, end: int, span: Span, base: float, certain: bool) -> Hit:
        weight, value = self._support(start, end, span)
        asked = sum(self.weights[term] for term in self.plan["terms"])
        told = value and (span["exact"] or VALUE_NEXT.match(self.text, span["end"], end))
        told = told or ASSIGNED.match(self.low, span["end"], end)
        needed = SUPPORTING_COVERAGE if span["exact"] else LOOSE_COVERAGE
        sure = certain or bool(told) or weight > asked * needed
        if self._is_question(start, end):
            answer = ANSWER.match(self.text, end)
            sure, end = answer is not None, answer.end() if answer else end
        elif not (weight or value) or self.text[start:end].rstrip().endswith(":"):
            start, end = self._widened(start, end)
        return Hit(
            score=round(base + weight + value, 3),
            sure=sure,
            start=start,
            sentence=" ".join(self.text[start:end].split()),
            passage=self.units.passage(start, end),
        )

    def _is_question(self, start: int, end: int) -> bool:
        """Whether a unit repeats the question itself; then all depends on an answer after it."""
        question = self.plan["question"].lower().rstrip("?!. ")
        return question.count(" ") > 2 and question in " ".join(self.low[start:end].split())

    def _widened(self, start: int, end: int) -> tuple[int, int]:
        """A unit that only names the key, with the nearest one that says something about it."""
        for low, high in chain(self.units.following(end), self.units.preceding(start)):
            weight, value = self._support(low, high, Span(start=low, end=low, exact=True))
            if weight or value:
                return min(start, low), max(end, high)
        return start, end


def _best(hits: list[Hit], most: int = 5) -> list[Hit]:
    """The best hits, one per place: certain ones first, then by score, then by position."""
    ranked = sorted(hits, key=lambda hit: (not hit["sure"], -hit["score"], hit["start"]))
    by_place: dict[int, Hit] = {}
    for hit in ranked:
        by_place.setdefault(hit["start"], hit)
    return list(by_place.values())[:most]


def search(plan: Plan, context: object) -> list[Hit]:
    """The best passages of a context for a plan, best first."""
    return Search(plan, as_text(context)).hits()


def report(plan: Plan, context: object) -> list[Hit]:
    """Search, and print what a reader of the output needs to go on."""
    hits = search(plan, context)
    print(MARK, len(hits), "passages,", sum(hit["sure"] for hit in hits), "that qualify")
    for number, hit in enumerate(hits, 1):
        print(f"[{number}] score {hit['score']:.2f} at {hit['start']}, sure: {hit['sure']}")
        print(">", hit["sentence"][:RECORD_CHARS])
    return hits


def conclude(
    plan: Plan,
    hits: list[Hit],
    ask: Callable[[str], str],
    start_child: "Callable[[str, str], str] | None" = None,
) -> str:
    """Let a model read the best passage; without one that answers, say that nothing was found.

    Where child runs are allowed, one of them reads it first.
    """
    for hit in [hit for hit in hits if hit["sure"]][:1]:
        question, passage = plan["question"], hit["passage"]
        reply = start_child(question, passage).strip() if start_child else ""
        if not _answers(reply):
            reply = ask(f"Question: {question}\n\nPassage: {passage}").strip()
        if _answers(reply):
            return reply
    return (
        f"Not found: no passage of the context answers {plan['question']!r} "
        "(searched by the offline extractive stand-in, which is not a language model)."
    )


def _answers(reply: str) -> bool:
    return bool(reply) and "NOT FOUND" not in reply.upper()[:40]


def task_of(context: object) -> None:
    """Print the beginning and the end of a context that is itself the task."""
    text = as_text(context)
    whole = len(text) <= 2 * TASK_CHARS
    print(TASK_MARK)
    print(text if whole else f"{text[:TASK_CHARS]}\n…\n{text[-TASK_CHARS:]}")
