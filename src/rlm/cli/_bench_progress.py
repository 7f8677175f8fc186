"""How far a benchmark is: a bar for each task in a terminal, a line for each result elsewhere."""

import os
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rlm.bench.plan import Work
from rlm.bench.results import Outcome
from rlm.bench.sizes import show_size
from rlm.cli._border import say
from rlm.records.recorders.console import one_line

__all__ = ["Bars", "Lines", "Silence", "progress_of"]


class Silence:
    """Says nothing."""

    def __enter__(self) -> "Silence":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to put away."""

    def add(self, outcome: Outcome) -> None:
        """Hear of a result."""


class Lines(Silence):
    """One line a result, for logs."""

    def __init__(self, total: int) -> None:
        self._total, self._done = total, 0

    def add(self, outcome: Outcome) -> None:
        self._done += 1
        what = f"{outcome.task} {show_size(outcome.size)} {outcome.method} #{outcome.seed}"
        say(f"[{self._done}/{self._total}] {what}: {_result(outcome)}")


class Bars(Silence):
    """A bar for each task and one for all, with scores and money."""

    def __init__(self, totals: Counter[str]) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[told]}", markup=False),
            TimeRemainingColumn(),
            console=Console(stderr=True, highlight=False, markup=False, emoji=False),
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._bars: dict[str, Any] = {
            name: self._progress.add_task(one_line(name, 60), total=count, told="")
            for name, count in totals.items()
        }
        self._all = self._progress.add_task("all", total=totals.total(), told="")
        self._scores: dict[str, list[float]] = {name: [] for name in totals}
        self._failed, self._cost, self._is_cost_known = 0, 0.0, True

    def __enter__(self) -> "Bars":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def add(self, outcome: Outcome) -> None:
        scores = self._scores[outcome.task]
        if outcome.score is not None:
            scores.append(outcome.score)
        self._failed += not outcome.is_done
        self._cost += outcome.cost_usd or 0.0
        self._is_cost_known &= outcome.cost_usd is not None or outcome.status == "impossible"
        mean = f"score {100 * sum(scores) / len(scores):.0f}" if scores else ""
        self._progress.update(self._bars[outcome.task], advance=1, told=mean)
        money = f"${self._cost:.4f}" if self._is_cost_known else "cost unknown"
        failed = f", {self._failed} failed" if self._failed else ""
        self._progress.update(self._all, advance=1, told=money + failed)


def progress_of(works: Sequence[Work], *, quiet: bool) -> Silence:
    """Whatever fits where this runs."""
    totals: Counter[str] = Counter()
    for work in works:
        totals[work.task] += len(work.methods)
    if quiet or sys.stderr is None or not totals:
        return Silence()
    if sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return Bars(totals)
    return Lines(totals.total())


def _result(outcome: Outcome) -> str:
    if outcome.status == "failed":
        return f"failed: {outcome.error}"
    if outcome.status == "impossible":
        return f"not possible: {outcome.error}"
    money = "" if outcome.cost_usd is None else f", ${outcome.cost_usd:.4f}"
    return f"score {100 * (outcome.score or 0.0):.0f}{money}, {outcome.seconds:.1f} s"
