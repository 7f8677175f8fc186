"""What a tree of runs used, by model and by depth. The rows of a table add up to the whole."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from rlm.viewer.index import ModelUse, RunIndex

__all__ = ["by_depth", "by_model"]

MAX_ROWS = 100
OTHERS = "others"
K = TypeVar("K", str, int)


def by_model(runs: Iterable[RunIndex]) -> list[dict[str, Any]]:
    """Return a row for each model, the most used first; those beyond a limit share one row."""
    rows = _grouped(runs, lambda model, _: model)
    ordered = sorted(rows.items(), key=lambda each: -each[1].used.tokens)
    listed = [_row("model", name, use) for name, use in ordered[:MAX_ROWS]]
    return [*listed, *_others("model", [use for _, use in ordered[MAX_ROWS:]])]


def by_depth(runs: list[RunIndex]) -> list[dict[str, Any]]:
    """Return a row for each depth, with the number of its runs."""
    rows = _grouped(runs, lambda _, depth: depth)
    counts = Counter(run.opening.depth for run in runs)
    return [
        {**_row("depth", depth, rows.get(depth, ModelUse())), "runs": counts[depth]}
        for depth in sorted(counts)[:MAX_ROWS]
    ]


def _grouped(runs: Iterable[RunIndex], key: Callable[[str, int], K]) -> dict[K, ModelUse]:
    rows: dict[K, ModelUse] = {}
    for run in runs:
        for model, use in list(run.models.items()):
            rows.setdefault(key(model, run.opening.depth), ModelUse()).include(use)
    return rows


def _others(name: str, uses: list[ModelUse]) -> list[dict[str, Any]]:
    whole = ModelUse()
    for use in uses:
        whole.include(use)
    return [_row(name, OTHERS, whole)] if uses else []


def _row(name: str, value: str | int, use: ModelUse) -> dict[str, Any]:
    return {
        name: value,
        "requests": use.requests,
        "input_tokens": use.input_tokens,
        "output_tokens": use.output_tokens,
        "tokens": use.used.tokens,
        "cost_usd": use.used.cost,
    }
