"""The cases of `benchmarks/answers.py`, how one is measured, and what counts as a target met."""

import asyncio
import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from benchmarks.labelling.methods import BASELINES, METHODS
from rlm.bench.random_text import Dice, sentence
from rlm.testing import NoisyOracle
from rlm.testing.noisy_oracle import Noise

__all__ = [
    "RATES",
    "REPLIES",
    "Case",
    "Point",
    "all_cases",
    "curve_at",
    "distances",
    "measured",
    "points_of",
    "quick_cases",
    "samples",
]

ITEMS, SEEDS = 2_000, 10
QUICK_ITEMS, QUICK_SEEDS = 200, 2
MORE_SEEDS = 40
"""Other seeds with which cases that miss the curve are measured again."""
RATES = (0.02, 0.05, 0.1, 0.2)
LABEL_COUNTS = (2, 6, 20)
NOISES: tuple[Noise, ...] = get_args(Noise)


class Replies(NamedTuple):
    """How well-formed the replies are."""

    omission_rate: float
    drift_rate: float
    words: str


REPLIES = {
    "whole": Replies(0.0, 0.0, "whole replies"),
    "omissions": Replies(0.2, 0.0, "20 % of items left out"),
    "drift": Replies(0.0, 0.3, "30 % of replies in another form"),
}
_NAMES = (
    "billing question",
    "bug report",
    "feature request",
    "praise",
    "account access",
    "delivery problem",
    "refund request",
    "cancellation",
    "price question",
    "product advice",
    "data protection",
    "spam",
    "job application",
    "press inquiry",
    "partnership offer",
    "outage",
    "slow performance",
    "documentation gap",
    "translation error",
    "legal notice",
)


class Case(NamedTuple):
    """One kind of imperfect model, and how many labels there are."""

    noise: Noise
    labels: int
    replies: str
    rate: float

    @property
    def key(self) -> str:
        return f"{self.noise}, {self.labels} labels, {self.replies}, {100 * self.rate:g} %"


def all_cases() -> list[Case]:
    return [Case(*each) for each in itertools.product(NOISES, LABEL_COUNTS, REPLIES, RATES)]


def quick_cases() -> list[Case]:
    return [Case(*each) for each in itertools.product(NOISES, (6,), REPLIES, (0.1,))]


def samples(labels: int, count: int, seed: int) -> dict[str, str]:
    """Return different sentences with labels, all from the seed."""
    dice = Dice("labelled items", seed)
    names = _NAMES[:labels]
    found: dict[str, str] = {}
    while len(found) < count:
        found.setdefault(sentence(dice), dice.pick(names))
    return found


def measured(case: Case, method: str, seed: int, count: int) -> dict[str, Any]:
    """Return errors, missing labels, tokens and requests of one method on the items of a seed."""
    gold = samples(case.labels, count, seed)
    replies = REPLIES[case.replies]
    oracle = NoisyOracle(
        gold,
        error_rate=case.rate,
        noise=case.noise,
        omission_rate=replies.omission_rate,
        drift_rate=replies.drift_rate,
        seed=seed,
    )
    found = asyncio.run(METHODS[method](oracle, list(gold), _NAMES[: case.labels]))
    wrong = sum(one != other for one, other in zip(found.labels, gold.values(), strict=True))
    return {
        "error": wrong / count,
        "missing": found.labels.count(None),
        "tokens": found.tokens,
        "requests": found.requests,
    }


# -- what it means --------------------------------------------------------------------------------


class Point(NamedTuple):
    """A method on the plane: tokens as a multiple of one pass, and the share of wrong labels."""

    tokens: float
    error: float


Seeds = Mapping[str, Sequence[Mapping[str, Any]]]
"""Method → what was measured for each seed, of one case."""


def points_of(found: Seeds) -> dict[str, Point]:
    """Return the mean of each method over all seeds."""
    seeds = range(len(found["one pass"]))
    each = [_points(found, seed) for seed in seeds]
    return {
        method: Point(
            statistics.fmean(points[method].tokens for points in each),
            statistics.fmean(points[method].error for points in each),
        )
        for method in found
    }


def _points(found: Seeds, seed: int) -> dict[str, Point]:
    once = found["one pass"][seed]["tokens"]
    return {
        method: Point(rows[seed]["tokens"] / once, rows[seed]["error"])
        for method, rows in found.items()
    }


def curve_at(tokens: float, points: Sequence[Point]) -> float:
    """Return the error on straight lines between the points; level beyond both ends."""
    points = sorted(points)
    if tokens <= points[0].tokens:
        return points[0].error
    for left, right in itertools.pairwise(points):
        if tokens <= right.tokens:
            share = (tokens - left.tokens) / (right.tokens - left.tokens)
            return left.error + share * (right.error - left.error)
    return points[-1].error


def distances(found: Seeds, method: str) -> tuple[float, float]:
    """Return how far a method is above the curve of the baselines, and the standard error.

    The distance is taken for each seed, between methods on the same items and the same oracle.
    """
    above = list(_above(found, method))
    spread = statistics.stdev(above) / math.sqrt(len(above)) if len(above) > 1 else 0.0
    return statistics.fmean(above), spread


def _above(found: Seeds, method: str) -> Iterator[float]:
    for seed in range(len(found[method])):
        points = _points(found, seed)
        own = points[method]
        yield own.error - curve_at(own.tokens, [points[name] for name in BASELINES])
