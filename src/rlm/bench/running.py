"""Run the trials of a benchmark side by side, and keep their journals."""

import asyncio
import hashlib
import itertools
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from rlm.api import RLM
from rlm.bench.plan import METHODS, Trial, Work
from rlm.bench.results import Outcome, Results
from rlm.bench.task import Labelling, Sample, Task
from rlm.bench.trial_runs import logger_in
from rlm.context import StoredContext, store_context
from rlm.engine.operators import OperatorCall
from rlm.engine.task import Task as RunTask
from rlm.errors import ConfigError, RLMError, UnknownPriceError
from rlm.events import CallEnded, Event
from rlm.limits import Amount, Budget
from rlm.messages import PICODOLLARS
from rlm.records.journal import ContextFolder, Places
from rlm.records.journal.archive import counted_in
from rlm.records.journal.metering import RunMeter
from rlm.results import RunResult

__all__ = ["Bench", "Tally", "TrialJournals", "journals_in"]


def journals_in(folder: Path) -> Places:
    """Return the folder of journals in a folder of results; the engine needs it."""
    return Places(folder / "journal")


class TrialJournals:
    """The journals of an open folder of results."""

    def __init__(self, results: Results, *, keeps_runs: bool = False) -> None:
        self.places = journals_in(results.folder)
        self._results, self._keeps_runs = results, keeps_runs

    def run_id(self, trial: Trial) -> str:
        """Return an id that changes with the trial or its settings, so that journals never mix."""
        settings = self._results.settings
        name = f"{settings.digest}|{settings.tasks.get(trial.task)}|{trial.key}"
        return f"trial-{hashlib.sha256(name.encode()).hexdigest()[:16]}"

    def paid_usd(self) -> float:
        """Return what continued trials have cost; remove leftovers of killed ones."""
        over = {each.run_id for each in self._results.outcomes.values() if not each.goes_on}
        paid = Amount()
        for run in self.places.listed():
            if run.run_id not in over:
                with suppress(ConfigError):  # reported when its trial continues
                    paid += counted_in(run.path)
            elif not self._keeps_runs:
                run.remove()
        return paid.picodollars / PICODOLLARS

    def end(self, outcome: Outcome) -> None:
        """Remove the journal of a trial whose costs are in its result."""
        is_kept = outcome.is_done and self._keeps_runs
        if not outcome.goes_on and not is_kept:
            self.places.remove(outcome.run_id)

    def drop_context(self, sha256: str) -> None:
        """Remove the context of a sample: it may be large and can be made again from its seed."""
        if not self._keeps_runs:
            ContextFolder(self.places.contexts).remove(sha256)

    def close(self) -> None:
        if not any(self.places.listed()):
            self.places.clear()


FAILURES_IN_A_ROW = 10
"""After this many, the samples are not to blame, and the rest is left for another time."""

KEPT_ANSWER_CHARS = 20_000
KEPT_ERROR_CHARS = 1_000
NO_MONEY = "the budget of this benchmark is used up (--budget-usd)"


class Tally(Struct):
    """Counts to report while trials run. `stopped` says why it ended early."""

    failed: int = 0
    running: int = 0
    stopped: str = ""


class _Meter(RunMeter):
    """The cost of a trial, of which the shared budget has counted what its journal holds."""

    def __init__(self, budget: Budget) -> None:
        super().__init__(budget, journaled=True, is_counted=True)
        self.has_begun = False

    def record(self, event: Event) -> None:
        self.has_begun = True


class Bench:
    """One pass over what has no result yet. `on_outcome` is called with each, once it is on disk.

    The engine stores its journals where `journals_in` says; `keeps_runs` keeps those of finished
    trials.
    """

    def __init__(
        self,
        engine: RLM,
        tasks: Mapping[str, Task],
        results: Results,
        *,
        concurrency: int = 4,
        max_cost_usd: float | None = None,
        keeps_runs: bool = False,
        on_outcome: Callable[[Outcome], None] = lambda outcome: None,
    ) -> None:
        self.tally = Tally()
        self._engine, self._tasks, self._results = engine, tasks, results
        self._concurrency, self._max_cost_usd = concurrency, max_cost_usd
        self._on_outcome = on_outcome
        self._journals = TrialJournals(results, keeps_runs=keeps_runs)
        self._logger = logger_in(results.folder)
        self._failures = 0
        self._scratch = results.folder / ".contexts"
        self._numbers = itertools.count()

    async def run(self, works: Iterable[Work]) -> Tally:
        """Run all of it, or as much as the budget and the errors allow."""
        budget, left = self._shared_budget(), iter(works)
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir()
        try:
            if budget is not None:
                async with asyncio.TaskGroup() as group:
                    for _ in range(self._concurrency):
                        group.create_task(self._worker(left, budget))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._journals.close()
        return self.tally

    def _shared_budget(self) -> Budget | None:
        """Return what is left of the budget after earlier passes; None if nothing."""
        paid_usd = self._journals.paid_usd()
        if self._max_cost_usd is None:
            return Budget.shared()
        left = self._max_cost_usd - self._results.spent_usd - paid_usd
        if left <= 0:
            self.tally.stopped = NO_MONEY
            return None
        return Budget.shared(max_cost_usd=left)

    async def _worker(self, left: Iterator[Work], budget: Budget) -> None:
        while not self.tally.stopped and (work := next(left, None)) is not None:
            self.tally.running += 1
            try:
                await self._sample(work, budget)
            finally:
                self.tally.running -= 1

    async def _sample(self, work: Work, budget: Budget) -> None:
        """Make a sample once, try it by every method, and drop its context."""
        task = self._tasks[work.task]
        path = self._scratch / f"{next(self._numbers)}.txt"
        if task.in_threads:
            sample = await asyncio.to_thread(task.generate, work.seed, work.size)
        else:
            sample = task.generate(work.seed, work.size)
        try:
            stored = await asyncio.to_thread(_written, sample, path)
            for method in work.methods:
                if self.tally.stopped:
                    return
                outcome = await self._trial(work, method, task, sample, stored, budget)
                outcome = replace(outcome, ended=round(time.time(), 3))
                self._results.add(outcome)
                self._journals.end(outcome)
                self._on_outcome(outcome)
                self._count(outcome)
            self._journals.drop_context(stored.sha256)
        finally:
            path.unlink(missing_ok=True)

    def _count(self, outcome: Outcome) -> None:
        self._failures = 0 if outcome.is_done else self._failures + 1
        self.tally.failed += not outcome.is_done
        if self._failures >= FAILURES_IN_A_ROW and not self.tally.stopped:
            self.tally.stopped = f"{self._failures} failed in a row, the last with: {outcome.error}"

    async def _trial(
        self,
        work: Work,
        method: str,
        task: Task,
        sample: Sample,
        stored: StoredContext,
        budget: Budget,
    ) -> Outcome:
        meter, started = _Meter(budget), time.monotonic()
        base = self._base(work, method, stored, task.reference(sample.gold))
        try:
            result, answer = await self._run(base, task, sample, stored, meter)
        except asyncio.CancelledError:
            self._results.add(replace(base, error="interrupted"))
            raise
        except UnknownPriceError:
            raise
        except ConfigError as error:
            if METHODS[method] != "direct" or not meter.has_begun:
                raise
            reason = str(error)[:KEPT_ERROR_CHARS]
            return replace(base, status="impossible", score=0.0, error=reason, cost_usd=None)
        except RLMError as error:
            reason = self._failure_reason(error, meter)
            seconds = round(time.monotonic() - started, 3)
            return replace(base, error=reason, seconds=seconds)
        return self._judged(base, task, sample, replace(result, answer=answer), meter)

    async def _run(
        self, base: Outcome, task: Task, sample: Sample, stored: StoredContext, meter: _Meter
    ) -> tuple[RunResult, Any]:
        """Run the trial, or the rest of it; return the run and its answer."""
        strategy = METHODS[base.method]
        config = self._engine.config
        labelling = None
        run_task = RunTask(sample.query, stored)
        if strategy is not None:
            config = replace(config, strategy=strategy)
        elif (labelling := await asyncio.to_thread(task.labelling, sample)) is None:
            raise ConfigError(f"operators can't answer {base.task}")
        else:
            run_task = _operator_task(labelling)
        result = await self._engine.runner.answer(
            run_task,
            recorders=(meter, self._logger),
            run_id=base.run_id,
            config=config,
            budget=meter.ledger,
        )
        return result, result.answer if labelling is None else _from_labels(labelling, result)

    def _judged(
        self,
        base: Outcome,
        task: Task,
        sample: Sample,
        result: RunResult,
        meter: _Meter,
    ) -> Outcome:
        """Return the outcome of a run that has a result."""
        if meter.was_refused:
            self.tally.stopped = NO_MONEY
            if result.stop_reason == "limit":
                return replace(base, error=NO_MONEY)
        total = result.usage.total
        base = replace(
            base,
            answer=None if result.answer is None else str(result.answer)[:KEPT_ANSWER_CHARS],
            stop_reason=result.stop_reason,
            limit=result.limit,
            cost_usd=result.cost_usd,
            kept_usd=meter.kept.picodollars / PICODOLLARS,
            input_tokens=total.input_tokens,
            output_tokens=total.output_tokens,
            requests=total.requests,
            calls=sum(isinstance(event, CallEnded) for event in result.events),
            steps=result.steps,
            seconds=round(result.seconds, 3),
        )
        if meter.was_refused:  # whatever it answered: with a larger budget it might differ
            return replace(base, error=NO_MONEY)
        if result.stop_reason in {"error", "cancelled"}:
            reason = (result.detail or f"the run ended with {result.stop_reason}")[
                :KEPT_ERROR_CHARS
            ]
            return replace(base, error=reason)
        return replace(base, status="scored", score=_score(task, result.answer, sample.gold))

    def _failure_reason(self, error: RLMError, meter: _Meter) -> str:
        """Return why a trial failed; a call refused by the shared budget ends the benchmark."""
        if meter.was_refused:
            self.tally.stopped = NO_MONEY
            return NO_MONEY
        return f"{type(error).__name__}: {error}"[:KEPT_ERROR_CHARS]

    def _base(self, work: Work, method: str, stored: StoredContext, gold: str) -> Outcome:
        """Return what is known about a trial before it is tried; failed by default.

        What it costs until it has a result is in its journal.
        """
        settings = self._results.settings
        trial = Trial(work.task, work.size, work.seed, method)
        return Outcome(
            run_id=self._journals.run_id(trial),
            task=work.task,
            size=work.size,
            seed=work.seed,
            method=method,
            status="failed",
            score=None,
            gold=str(gold)[:KEPT_ANSWER_CHARS],
            cost_usd=0.0,
            context_chars=stored.size_bytes,
            model=settings.model,
            sub_model=settings.sub_model,
            engine=settings.engine,
            settings=settings.digest,
        )


def _written(sample: Sample, path: Path) -> StoredContext:
    """Write the context to a file piece by piece; sessions read it from there."""
    with path.open("w", encoding="utf-8", newline="") as file:
        file.writelines(sample.pieces())
    return store_context(path)


def _operator_task(labelling: Labelling) -> RunTask:
    options = {"labels": list(labelling.labels), "guide": labelling.guide}
    call = OperatorCall(name="classify", items=tuple(labelling.items), options=options)
    return RunTask(call.query, store_context(call.context), operator=call)


def _from_labels(labelling: Labelling, result: RunResult) -> str | None:
    """Return the answer that follows from the labels; None if there are none."""
    if result.answer_json is None:
        return None
    return labelling.answer(msgspec.json.decode(result.answer_json)["value"])


def _score(task: Task, answer: Any, gold: Any) -> float:
    score = 0.0 if answer is None else float(task.score(str(answer), gold))
    if not 0 <= score <= 1:
        raise ConfigError(f"{task.name}: score() returned {score!r}, which is not from 0 to 1")
    return score
