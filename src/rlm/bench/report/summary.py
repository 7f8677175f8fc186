"""Outcomes in figures: by model, task, method and size."""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rlm.bench.plan import METHODS
from rlm.bench.results import Outcome

__all__ = ["Figures", "Place", "figures", "interval", "pooled_task", "summarise"]

Z = 1.96
"""For 95 of 100."""


class Place(NamedTuple):
    """Which trials figures are about."""

    task: str
    model: str
    method: str
    size: int


class Figures(NamedTuple):
    """Of the trials at one place. What nobody knows is None.

    `score` is a mean in percent, `low` and `high` its interval; `cost_range` are the quartiles.
    """

    samples: int
    impossible: int
    failed: int
    score: float | None
    low: float
    high: float
    cost_usd: float | None
    cost_range: tuple[float, float] | None
    tokens: float | None
    token_range: tuple[float, float] | None
    steps: float | None
    calls: float | None
    seconds: float | None


def interval(mean: float, count: int) -> tuple[float, float]:
    """Wilson's interval around a mean of scores from 0 to 1, at 95 percent.

    It is made for right and wrong. Of all scores with the same mean, right and wrong vary the most:
    so for scores between them it is on the safe side. It is never empty, as few samples are.
    """
    square = Z * Z / count
    middle = (mean + square / 2) / (1 + square)
    spread = math.sqrt(mean * (1 - mean) / count + square / (4 * count)) * Z / (1 + square)
    return max(0.0, min(mean, middle - spread)), min(1.0, max(mean, middle + spread))


def pooled_task(spec: str) -> str:
    """The task without its variant; its options stay."""
    name, _, options = spec.partition(",")
    return name.partition("/")[0] + (f",{options}" if options else "")


def summarise(outcomes: Iterable[Outcome], *, pooled: bool) -> dict[Place, Figures]:
    """Figures of each place, in the order of tasks, models, methods and sizes."""
    groups: dict[Place, list[Outcome]] = defaultdict(list)
    for each in outcomes:
        task = pooled_task(each.task) if pooled else each.task
        groups[Place(task, _models(each), each.method, each.size)].append(each)
    order = {method: number for number, method in enumerate(METHODS)}
    places = sorted(
        groups, key=lambda place: (place.task, place.model, order[place.method], place.size)
    )
    return {place: figures(groups[place]) for place in places}


def figures(outcomes: Sequence[Outcome]) -> Figures:
    done = [each for each in outcomes if each.is_done]
    ran = [each for each in done if each.status == "scored"]
    scores = [each.score or 0.0 for each in done]
    mean = statistics.fmean(scores) if scores else None
    low, high = interval(mean, len(scores)) if mean is not None else (0.0, 1.0)
    costs = [each.cost_usd for each in ran]
    known = [cost for cost in costs if cost is not None]
    tokens = [float(each.input_tokens + each.output_tokens) for each in ran]
    return Figures(
        samples=len(done),
        impossible=len(done) - len(ran),
        failed=len(outcomes) - len(done),
        score=None if mean is None else 100 * mean,
        low=100 * low,
        high=100 * high,
        cost_usd=_mean(known) if len(known) == len(costs) else None,
        cost_range=_quartiles(known) if len(known) == len(costs) else None,
        tokens=_mean(tokens),
        token_range=_quartiles(tokens),
        steps=_mean([float(each.steps) for each in ran]),
        calls=_mean([float(each.calls) for each in ran]),
        seconds=_mean([each.seconds for each in ran]),
    )


def _models(outcome: Outcome) -> str:
    same = outcome.sub_model in {"", outcome.model}
    return outcome.model if same else f"{outcome.model} + {outcome.sub_model}"


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _quartiles(values: Sequence[float]) -> tuple[float, float] | None:
    if not values:
        return None
    if len(values) == 1:
        return values[0], values[0]
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, third
