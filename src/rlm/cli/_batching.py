"""Run `rlm batch`, and show progress: a bar in a terminal, else a line every few seconds."""

import asyncio
import sys
import time
from contextlib import AbstractContextManager, closing, redirect_stdout
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from rlm._util.text import counted
from rlm.api import RLM
from rlm.batch import BadRowsError, Batch, BatchFolder, Plan, Tally
from rlm.batch.outcomes import RowTable
from rlm.batch.rows import Source
from rlm.cli._asking import Options, Setting, make_rlm, prepare
from rlm.cli._errors import ANSWERED, CANCELLED, FAILED, LIMITED, PASSAGES, say, unknown_price
from rlm.cli._progress import Complaints
from rlm.cli._stopping import stoppable
from rlm.config import Strategy
from rlm.errors import UnknownPriceError
from rlm.limits import Budget, Limits
from rlm.messages import PICODOLLARS
from rlm.wiring.registry import AUTO, OFFLINE_MODEL

__all__ = ["BatchOptions", "answer_all", "progress_of"]

SECONDS_BETWEEN_LINES = 10.0


class Silent(AbstractContextManager["Silent"]):
    """Show nothing."""

    def __exit__(self, *_: object) -> None:
        return None

    def update(self, tally: Tally) -> None:
        return None


class Lines(Silent):
    """Progress for logs: at most one line every few seconds, and one at the end."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._began = time.monotonic()
        self._said_at = self._began
        self._tally = Tally()

    def __exit__(self, *exception: object) -> None:
        if exception[:1] == (None,):  # An error says more than figures.
            self._show(self._words())

    def update(self, tally: Tally) -> None:
        self._tally = tally
        if time.monotonic() - self._said_at >= SECONDS_BETWEEN_LINES:
            self._said_at = time.monotonic()
            self._show(self._words())

    def _show(self, text: str) -> None:
        say(text)

    def _words(self) -> str:
        """Return rows done, rate, cost, and the time left."""
        tally, seconds = self._tally, time.monotonic() - self._began
        done = tally.answered + tally.failed
        words = [f"{done:,}/{tally.total:,} rows"]
        rate = tally.done_now / seconds if seconds else 0.0
        if tally.done_now:
            words.append(f"{rate:,.1f} rows/s" if rate >= 1 else f"{rate * 60:,.1f} rows/min")
        words.append(f"{counted(self._budget.used.tokens, 'token')}")
        if self._budget.used.picodollars:
            words.append(f"${self._budget.used.picodollars / PICODOLLARS:,.4f}")
        if tally.failed:
            words.append(f"{tally.failed:,} failed")
        if rate and done < tally.total:
            words.append(f"{duration((tally.total - done) / rate)} left")
        else:
            words.append(duration(seconds))
        return " · ".join(words)


class Bar(Lines):
    """Progress for terminals: a bar with the same text, drawn in place."""

    def __init__(self, budget: Budget) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.progress_bar import ProgressBar

        super().__init__(budget)
        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._bar = ProgressBar(total=1, width=max(8, self._console.width // 6))
        self._live = Live(
            get_renderable=self._drawn,
            console=self._console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> "Bar":
        self._live.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._live.__exit__(*exception)
        super().__exit__(*exception)

    def update(self, tally: Tally) -> None:
        self._tally = tally

    def _drawn(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        tally = self._tally
        self._bar.update(completed=tally.answered + tally.failed, total=max(1, tally.total))
        words = f"{self._words()} · {tally.running} running"
        table = Table.grid(padding=(0, 1))
        # Room for the ^C that a terminal shows: a second line would stay behind.
        table.width = max(1, self._console.width - 4)
        table.add_row(self._bar, Text(words, no_wrap=True, overflow="ellipsis"))
        return table


def progress_of(budget: Budget, *, quiet: bool) -> Silent:
    """Return the kind of progress that suits standard error."""
    if quiet or sys.stderr is None:
        return Silent()
    return Bar(budget) if sys.stderr.isatty() else Lines(budget)


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes:02}m"
    return f"{minutes}m {rest:02}s" if minutes else f"{rest}s"


RAY = "ray"

BUDGET_OPTIONS = {"cost_usd": "--budget-usd", "tokens": "--max-tokens"}
"""By limit: the option that sets it for all rows together."""


class BatchOptions(Struct, frozen=True, kw_only=True):
    """The options of the command line, without the file of rows."""

    out: Path | None
    concurrency: int
    model: str | None
    sub_model: str | None
    environment: str
    environment_options: tuple[tuple[str, Any], ...]
    setup_code: str | None
    on: str | None
    strategy: Strategy | None
    max_steps: int | None
    max_depth: int | None
    budget_usd: float | None
    max_tokens: int | None
    row_budget_usd: float | None
    row_max_tokens: int | None
    row_timeout: float | None
    price: tuple[float, float] | None
    schema: Path | None
    tries: int
    failures_in_a_row: int
    skip_bad_rows: bool
    keep_runs: bool
    overwrite: bool
    quiet: bool

    def of_one_row(self) -> Options:
        """Return the options of one row, as for `rlm ask`."""
        environment, settings = self._where()
        return Options(
            files=(),
            model=self.model,
            sub_model=self.sub_model,
            environment=environment,
            environment_options=settings,
            setup_code=self.setup_code,
            strategy=self.strategy,
            max_steps=self.max_steps,
            max_depth=self.max_depth,
            budget_usd=self.row_budget_usd,
            price=self.price,
            max_tokens=self.row_max_tokens,
            timeout=self.row_timeout,
            as_json=False,
            schema=self.schema,
            log_dir=None,
            journal=False,
            view=False,
            quiet=self.quiet,
            verbose=False,
            # Every row may have a request in flight, whatever the default for one run.
            max_concurrent_calls=max(self.concurrency, Limits().max_concurrent_calls),
        )

    def _where(self) -> tuple[str, tuple[tuple[str, Any], ...]]:
        if self.on is None:
            return self.environment, self.environment_options
        if self.on != RAY and not self.on.startswith(f"{RAY}://"):
            raise click.UsageError(f"--on {self.on}: give ray or ray://ADDRESS")
        if self.environment != AUTO:
            raise click.UsageError("--on cannot be combined with --environment")
        address = () if self.on == RAY else (("address", self.on),)
        return RAY, (*address, *self.environment_options)


def answer_all(tasks: Path, options: BatchOptions) -> int:
    """Answer all rows, report the outcome, and return the exit code."""
    tasks.stat()  # A missing file gets the same advice as in other commands.
    source, row_options = Source(tasks), options.of_one_row()
    if next(source.positions(), None) is None:
        raise click.ClickException(f"{tasks} has no rows: write one JSON object on each line")
    folder = BatchFolder(options.out or tasks.with_name(f"{tasks.stem}.answers.jsonl"))
    with closing(Complaints()) as complaints:
        complaints.listen()
        made_of = prepare(row_options)._replace(journal=folder.journals.root)
        engine = make_rlm(row_options, made_of, [])
        with folder.opened(overwrite=options.overwrite) as table, engine:
            table.check_settings(_settings(made_of, options))
            try:
                tally, interrupted = _run(engine, source, table, folder, options, made_of.schema)
            except UnknownPriceError as error:
                raise unknown_price(made_of.choice.names) from error
            except BadRowsError as error:
                return _tell_bad_rows(error)
            if tally.answered == tally.total and not options.keep_runs:
                folder.journals.clear()
            for text in complaints.texts:
                say(text)
            code = _tell(tally, folder.out, options, interrupted=interrupted)
            if code == ANSWERED and made_of.choice.model == OFFLINE_MODEL:
                if not options.quiet:
                    say(
                        "No language model is configured: the answers are passages found by search."
                    )
                return PASSAGES
            return code


def _settings(made_of: Setting, options: BatchOptions) -> dict[str, Any]:
    """Return the settings that change an answer when they change."""
    return {
        "model": made_of.choice.model,
        "sub_model": made_of.choice.sub_model or made_of.choice.model,
        "strategy": options.strategy,
        "schema": made_of.schema,
        "max_depth": options.max_depth,
    }


def _run(
    engine: RLM,
    source: Source,
    table: RowTable,
    folder: BatchFolder,
    options: BatchOptions,
    schema: Any,
) -> tuple[Tally, bool]:
    """Run the batch on its own event loop; Ctrl-C releases all runs, to be continued later."""
    plan = Plan(
        concurrency=options.concurrency,
        tries=options.tries,
        failures_in_a_row=options.failures_in_a_row,
        keeps_runs=options.keep_runs,
        skips_bad_rows=options.skip_bad_rows,
        response_model=schema,
    )

    async def run() -> tuple[Tally, bool]:
        budget = Budget.shared(max_tokens=options.max_tokens, max_cost_usd=options.budget_usd)
        with folder.answers(table) as answers, progress_of(budget, quiet=options.quiet) as shown:
            batch = Batch(
                engine, source, table, answers, budget, plan, folder.journals, shown.update
            )
            try:
                await stoppable(batch.run())
            except asyncio.CancelledError:
                return batch.tally, True
            finally:
                await engine.aclose()
            return batch.tally, False

    with redirect_stdout(sys.stderr):  # Libraries write there too; Ray does when a node is lost.
        return asyncio.run(run())


def _tell(tally: Tally, out: Path, options: BatchOptions, *, interrupted: bool) -> int:
    click.echo(str(out))
    if tally.failed and not options.quiet:
        _tell_failures(tally)
    if interrupted or tally.stopped:
        why = "Cancelled" if interrupted else f"Stopped: {tally.stopped}"
        done = f"{tally.answered:,} of {counted(tally.total, 'row')} answered"
        option = BUDGET_OPTIONS.get(tally.exhausted or "")
        larger = f" with a larger {option}" if option else ""
        say(f"{why}; {done}. Run the same command again{larger} to continue.")
    if interrupted:
        return CANCELLED
    if tally.stopped and not tally.failed:
        return LIMITED
    return ANSWERED if tally.answered == tally.total else FAILED


def _tell_failures(tally: Tally) -> None:
    say(
        f"{counted(tally.failed, 'row')} failed; correct those that are wrong, and run the same "
        "command again to retry:"
    )
    for line, error in tally.failures:
        say(f"line {line}: {error.removeprefix(f'line {line}: ')}")
    if more := tally.failed - len(tally.failures):
        say(f"… and {more:,} more; the file of answers contains their errors")


def _tell_bad_rows(error: BadRowsError) -> int:
    say(f"Error: {error.heading}:")
    for problem in error.problems:
        say(problem)
    if more := error.count - len(error.problems):
        say(f"… and {more:,} more")
    return say("Correct them, or pass --skip-bad-rows to answer the others.", FAILED)
