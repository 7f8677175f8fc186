"""Results of one or two folders as plain values, for the viewer: samples and figures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlm.bench.plan import show_size
from rlm.bench.report.writing import Figures, Place, last_of, summarise
from rlm.bench.results import LOCK, Outcome, read_settings
from rlm.records.journal.database import Lock

__all__ = ["results_of", "without_shared_runs"]

MAX_SAMPLES = 5_000
MAX_CHARS = 1_000


def results_of(folders: Sequence[Path]) -> dict[str, Any]:
    """Return the samples of folders, and figures by task, size and method; newest last."""
    about, figures, samples = [], list[dict[str, Any]](), list[dict[str, Any]]()
    for number, folder in enumerate(folders):
        outcomes = last_of(folder)
        about.append(_about(folder, outcomes))
        figures += [
            _figures(number, place, each)
            for place, each in summarise(outcomes, pooled=False).items()
        ]
        samples += [_sample(number, each) for each in outcomes]
    return {
        "kind": "bench",
        "folders": about,
        "figures": figures,
        "samples": without_shared_runs(samples[:MAX_SAMPLES]),
        "left_out": max(0, len(samples) - MAX_SAMPLES),
    }


def without_shared_runs(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Remove the ids of runs that both folders have: a link could lead to the wrong one."""
    folders: dict[str, set[int]] = {}
    for each in samples:
        folders.setdefault(each["run_id"], set()).add(each["folder"])
    return [
        each if len(folders[each["run_id"]]) == 1 else {**each, "run_id": ""} for each in samples
    ]


def _about(folder: Path, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    settings = read_settings(folder)
    costs = [each.cost_usd for each in outcomes if each.cost_usd is not None]
    return {
        "name": folder.resolve().name,
        "model": settings.model[:MAX_CHARS],
        "sub_model": settings.sub_model[:MAX_CHARS],
        "engine": settings.engine[:MAX_CHARS],
        "live": Lock(folder / LOCK).is_taken(),
        "cost_usd": sum(costs) if costs else None,
    }


def _figures(folder: int, place: Place, each: Figures) -> dict[str, Any]:
    return {
        "folder": folder,
        "task": place.task[:MAX_CHARS],
        "size": place.size,
        "size_words": show_size(place.size),
        "method": place.method,
        "samples": each.samples,
        "impossible": each.impossible,
        "failed": each.failed,
        "hits": each.hits,
        "score": each.score,
        "low": each.low,
        "high": each.high,
        "cost_usd": each.cost_usd,
        "tokens": each.tokens,
        "calls": each.calls,
        "seconds": each.seconds,
    }


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}…"


def _sample(folder: int, each: Outcome) -> dict[str, Any]:
    return {
        "folder": folder,
        "key": each.key[:MAX_CHARS],
        "task": each.task[:MAX_CHARS],
        "size": each.size,
        "size_words": show_size(each.size),
        "method": each.method,
        "name": f"#{each.seed}",
        "status": each.status,
        "score": each.score,
        "answer": _cut(each.answer),
        "gold": _cut(each.gold),
        "error": _cut(each.error),
        "cost_usd": each.cost_usd,
        "tokens": each.input_tokens + each.output_tokens,
        "seconds": each.seconds,
        "run_id": each.run_id[:MAX_CHARS],
    }
