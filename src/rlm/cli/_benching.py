"""Run `rlm bench`, and show its progress."""

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

import rlm
from rlm._util.text import cost_words, counted, dollars
from rlm.api import RLM
from rlm.bench.plan import (
    METHODS,
    Settings,
    Work,
    check_methods,
    check_sizes,
    parse_sizes,
    show_size,
    size_chars,
    works,
)
from rlm.bench.registry import find_tasks, known_tasks, write_dataset
from rlm.bench.report import write_report
from rlm.bench.results import Outcome, Results
from rlm.bench.running import Bench, Tally, journals_in
from rlm.bench.task import Task
from rlm.cli import _asking as asking
from rlm.cli._bench_table import show_results
from rlm.cli._errors import ANSWERED, CANCELLED, FAILED, LIMITED, say
from rlm.cli._options import misused
from rlm.cli._output import show_table
from rlm.cli._progress import Complaints
from rlm.cli._stopping import stoppable
from rlm.errors import UnknownPriceError
from rlm.prompts import call_chars
from rlm.records.recorders.console import one_line

__all__ = [
    "Bars",
    "Lines",
    "Options",
    "Silence",
    "progress_of",
    "run_bench",
    "show_tasks",
    "write_samples",
]


class Silence:
    """Show nothing."""

    def __enter__(self) -> "Silence":
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def add(self, outcome: Outcome) -> None:
        """Count a result."""


class Lines(Silence):
    """Print one line per result, for logs."""

    def __init__(self, total: int) -> None:
        self._total, self._done = total, 0

    def add(self, outcome: Outcome) -> None:
        self._done += 1
        what = f"{outcome.task} {show_size(outcome.size)} {outcome.method} #{outcome.seed}"
        say(f"[{self._done}/{self._total}] {what}: {_result(outcome)}")


class Bars(Silence):
    """Show one bar per task and one for all, with scores and cost."""

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
            TextColumn("{task.fields[note]}", markup=False),
            TimeRemainingColumn(),
            console=Console(stderr=True, highlight=False, markup=False, emoji=False),
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._bars: dict[str, Any] = {
            name: self._progress.add_task(one_line(name, 60), total=count, note="")
            for name, count in totals.items()
        }
        self._all = self._progress.add_task("all", total=totals.total(), note="")
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
        self._progress.update(self._bars[outcome.task], advance=1, note=mean)
        money = cost_words(self._cost if self._is_cost_known else None)
        failed = f", {self._failed} failed" if self._failed else ""
        self._progress.update(self._all, advance=1, note=money + failed)


def progress_of(works: Sequence[Work], *, quiet: bool) -> Silence:
    """Return the kind of progress that suits standard error."""
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
    money = "" if outcome.cost_usd is None else f", {dollars(outcome.cost_usd)}"
    return f"score {100 * (outcome.score or 0.0):.0f}{money}, {outcome.seconds:.1f} s"


class Options(Struct, frozen=True, kw_only=True):
    """The options of `rlm bench run`."""

    tasks: tuple[str, ...]
    model: str | None
    sub_model: str | None
    sizes: str
    count: int
    seed: int
    methods: str
    concurrency: int
    budget_usd: float | None
    price: tuple[float, float] | None
    environment: str
    environment_options: tuple[tuple[str, Any], ...]
    max_steps: int | None
    max_depth: int | None
    max_tokens: int | None
    timeout: float | None
    out: Path
    keep_runs: bool
    quiet: bool

    def of_one_run(self) -> asking.Options:
        """Return the options of one run, as for `rlm ask`."""
        return asking.Options(
            files=(),
            model=self.model,
            sub_model=self.sub_model,
            environment=self.environment,
            environment_options=self.environment_options,
            strategy="rlm",
            max_steps=self.max_steps,
            max_depth=self.max_depth,
            budget_usd=None,
            price=self.price,
            max_tokens=self.max_tokens,
            timeout=self.timeout,
            as_json=False,
            schema=None,
            log_dir=None,
            journal=False,
            view=False,
            quiet=self.quiet,
            verbose=False,
        )

    @property
    def limits(self) -> dict[str, Any]:
        """Return the limits of one run that were given."""
        given = {
            "max_steps": self.max_steps,
            "max_depth": self.max_depth,
            "max_tokens": self.max_tokens,
            "max_seconds": self.timeout,
        }
        return {name: value for name, value in given.items() if value is not None}


def show_tasks(*, as_json: bool) -> None:
    """Print one line per task, or all tasks as JSON."""
    tasks = known_tasks().values()
    if as_json:
        keys = ("name", "variants", "about", "scoring", "smallest", "version")
        click.echo(json.dumps([{key: getattr(task, key) for key in keys} for task in tasks]))
        return
    rows = [(task.name, ", ".join(task.variants) or "", task.scoring, task.about) for task in tasks]
    show_table(("task", "variants", "score", "what"), rows, name=3, right=-1)


def write_samples(
    specs: Iterable[str], sizes: str, count: int, seed: int, out: Path, *, quiet: bool
) -> None:
    """Run `rlm bench generate`."""
    tasks = _tasks(specs)
    chosen = _sizes(sizes, tasks)

    def tell(name: str) -> None:
        if not quiet:
            say(f"Wrote {name}")

    written = write_dataset(tasks, chosen, range(seed, seed + count), out, tell)
    if not quiet:
        say(f"{counted(written, 'sample')} in {out}")


def run_bench(options: Options) -> int:
    """Run what is missing, write a report, and return the exit code."""
    with closing(Complaints()) as complaints:
        complaints.listen()
        code = _run_missing(options)
        for text in complaints.texts:
            say(text)
        return code


def _run_missing(options: Options) -> int:
    tasks, methods = _tasks(options.tasks), _methods(options)
    sizes = _sizes(options.sizes, tasks)
    with misused("--method"):
        check_methods(tasks, methods)
    one = options.of_one_run()
    made_of = asking.prepare(one)._replace(journal=journals_in(options.out).root)
    engine = asking.make_rlm(one, made_of, [])
    seeds = range(options.seed, options.seed + options.count)
    with Results.opened(options.out, _settings(options, engine, tasks)) as results:
        left = list(works(list(tasks), sizes, seeds, methods, results.done()))
        todo = sum(len(work.methods) for work in left)
        total = len(tasks) * len(sizes) * len(seeds) * len(methods)
        if not options.quiet and todo < total:
            say(f"{total - todo:,} of {counted(total, 'result')} found in {options.out}.")
        if not options.quiet and todo:
            say(_plan(left, engine))
        with progress_of(left, quiet=options.quiet) as progress:
            bench = Bench(
                engine,
                tasks,
                results,
                concurrency=options.concurrency,
                max_cost_usd=options.budget_usd,
                keeps_runs=options.keep_runs,
                on_outcome=progress.add,
            )
            code = _run(engine, bench, left, options)
        if results.outcomes:
            show_results(results.outcomes.values())
            click.echo(str(write_report([options.out], options.out)))
    return code


QUICK_COUNT = 2
RLM_REQUESTS = 5
"""A typical run of the loop: a few steps, and calls of its cells. Hard questions take far more."""

OPERATOR_CHARS = 5_000
"""About how much of a context an operator covers with a request: a few dozen lines."""


def _plan(left: Sequence[Work], engine: RLM) -> str:
    """Say how many runs will be made, and about how many requests they will send."""
    chars = call_chars(engine.runner.resources.info(engine.config.sub_model))
    runs = requests = 0
    for work in left:
        pieces = -(-size_chars(work.size) // chars)
        each = {"rlm": RLM_REQUESTS, "plain": 1, "mapreduce": pieces + (pieces > 1)}
        each["operators"] = -(-size_chars(work.size) // OPERATOR_CHARS)
        runs += len(work.methods)
        requests += sum(each[method] for method in work.methods)
    about = f"about {counted(requests, 'request')} to models"
    return f"{counted(runs, 'run')} planned, {about}. For fewer, pass a smaller --n."


def _run(engine: RLM, bench: Bench, left: list[Any], options: Options) -> int:
    """Run the remaining trials until they are done, stopped or cancelled."""

    async def whole() -> Tally:
        try:
            return await stoppable(bench.run(left))
        finally:
            await engine.aclose()

    try:
        tally = asyncio.run(whole())
    except (asyncio.CancelledError, KeyboardInterrupt):
        say("Cancelled. Finished results are kept: run the same command again to continue.")
        return CANCELLED
    except UnknownPriceError as error:
        raise click.ClickException(
            f"--budget-usd is set, but a price is unknown: {error}; pass --price IN,OUT "
            "(US dollars per million tokens)"
        ) from error
    if tally.stopped:
        is_limit = "--budget-usd" in tally.stopped
        larger = " with a larger one" if is_limit else ""
        say(f"Stopped early: {tally.stopped}. Run the same command again{larger} to continue.")
        return LIMITED if is_limit else FAILED
    if tally.failed:
        say(f"{tally.failed:,} failed: run the same command again to retry them.")
        return FAILED
    return ANSWERED


def _tasks(specs: Iterable[str]) -> dict[str, Task]:
    return {name: task for spec in specs for name, task in find_tasks(spec).items()}


def _sizes(text: str, tasks: dict[str, Task]) -> tuple[int, ...]:
    with misused("--size"):
        sizes = parse_sizes(text)
        check_sizes(tasks, sizes)
    return sizes


def _methods(options: Options) -> list[str]:
    named = list(dict.fromkeys(part.strip() for part in options.methods.split(",") if part.strip()))
    if unknown := [name for name in named if name not in METHODS]:
        raise click.BadParameter(
            f"{unknown[0]!r} is not one of {', '.join(METHODS)}", param_hint="'--method'"
        )
    if not named:
        raise click.BadParameter("name at least one method", param_hint="'--method'")
    return named


def _settings(options: Options, engine: RLM, tasks: dict[str, Task]) -> Settings:
    return Settings(
        engine=rlm.__version__,
        model=engine.config.model,
        sub_model=engine.config.sub_model,
        environment=engine.runner.resources.environment.name,
        environment_options=dict(options.environment_options),
        limits=options.limits,
        tasks={spec: task.identity() for spec, task in tasks.items()},
    )
