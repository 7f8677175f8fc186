"""Ask rows concurrently, each as a separate run, all within one budget.

A row is done when its outcome is in the table. A row that was interrupted, by a kill or by the end
of the budget, is resumed from its journal: what it has paid for is not paid for again.
"""

import asyncio
from bisect import insort
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from rlm._util.limited import in_thread
from rlm._util.text import counted
from rlm.api import RLM
from rlm.batch import outcomes
from rlm.batch.folder import OrderedAnswers
from rlm.batch.outcomes import Entry, RowTable
from rlm.batch.progress import NotebookBar, notebook_bar
from rlm.batch.rows import BadRowsError, Row, RowError, RowPosition, Source
from rlm.context import ContextValue, StoredContext, store_context
from rlm.data import Place
from rlm.errors import ConfigError, UnknownPriceError
from rlm.limits import Amount, Budget
from rlm.records.journal import Places
from rlm.records.journal.archive import counted_in
from rlm.records.journal.metering import RunMeter
from rlm.results import RunResult

__all__ = ["Batch", "Plan", "Tally"]

SHARED_CONTEXTS = 8
"""How many contexts of files are kept for the next rows, which often use the same one."""


TOLD_PROBLEMS, TOLD_FAILURES = 10, 5
"""How many of the rows that can't be asked, and of those that failed, are named."""


class Plan(Struct, frozen=True, kw_only=True):
    """How to ask rows. `failures_in_a_row` end a batch: the rows themselves can't be the cause.

    `skips_bad_rows`: rows that can't be asked fail alone, and do not keep a batch from starting.
    """

    concurrency: int = 16
    tries: int = 2
    failures_in_a_row: int = 25
    keeps_runs: bool = False
    skips_bad_rows: bool = False
    response_model: Any = None


class Tally(Struct):
    """The progress of a batch. `stopped` says why it ended early.

    `exhausted` names the limit of the batch's budget that ended it, such as `cost_usd`. `failures`
    are the lines and errors of the first rows that failed, in the order of the file.
    """

    total: int = 0
    answered: int = 0
    failed: int = 0
    running: int = 0
    done_now: int = 0
    stopped: str = ""
    exhausted: str | None = None
    failures: list[tuple[int, str]] = field(default_factory=list)


class Batch:
    """One pass over the rows that have no answer yet."""

    def __init__(
        self,
        engine: RLM,
        source: Source,
        table: RowTable,
        answers: OrderedAnswers,
        budget: Budget,
        plan: Plan,
        journals: Places | None = None,
        changed: Callable[[Tally], None] | None = None,
    ) -> None:
        """`changed` is called at every change; without it, a notebook shows a bar."""
        self.tally = Tally()
        engine.runner.group = {"kind": "batch", "name": source.path.name}
        self._engine, self._source, self._table = engine, source, table
        self._answers, self._budget, self._plan = answers, budget, plan
        self._journals, self._told = journals, changed
        self._bar: NotebookBar | None = None
        self._folder = source.path.absolute().parent
        self._contexts: OrderedDict[tuple[str, ...], asyncio.Task[StoredContext]] = OrderedDict()
        self._width = plan.concurrency
        self._again: deque[RowPosition] = deque()
        self._tries: Counter[int] = Counter()
        self._begun: set[int] = set()
        self._failures = 0
        self._problem: ConfigError | None = None
        self._left: Iterator[RowPosition] = iter(())

    async def run(self) -> Tally:
        """Ask every row that has no answer; rows that failed are asked again after all others."""
        self._bar = notebook_bar(self._budget) if self._told is None else None
        self._survey()
        self._budget.charge(self._table.used() + self._journaled())
        self._left = self._unanswered()
        try:
            while not self.tally.stopped:
                async with asyncio.TaskGroup() as group:
                    for number in range(self._width):
                        group.create_task(self._work(number))
                if not self._again:
                    break
            if self._problem is not None:
                raise self._problem
        finally:
            for each in self._contexts.values():
                each.cancel()
            if self._bar is not None:
                self._bar.end(self.tally)
        return self.tally

    def _changed(self, tally: Tally) -> None:
        if self._told is not None:
            self._told(tally)
        elif self._bar is not None:
            self._bar.update(tally)

    def _survey(self) -> None:
        """Count the rows, and check all of them before the first is asked and paid for."""
        problems, bad = list[str](), 0
        for position in self._source.positions():
            self.tally.total += 1
            entry = self._table.get(position.number)
            if entry is not None and entry.status == "answered":
                self.tally.answered += 1
                if entry.digest != position.digest:
                    raise ConfigError(
                        f"line {position.line} of {self._source.path} was answered, and has "
                        "changed since: choose another --out, or restore the line"
                    )
            elif not self._plan.skips_bad_rows and (problem := self._source.problem(position)):
                bad += 1
                problems += [problem] if len(problems) < TOLD_PROBLEMS else []
        if bad:
            raise BadRowsError(self._source.path, self.tally.total, bad, problems)
        self._changed(self.tally)

    def _journaled(self) -> Amount:
        """Return what rows without an answer have cost, as far as their journals say.

        It counts from the start, for the limits of all other rows too.
        """
        used = Amount()
        listed = () if self._journals is None else self._journals.listed()
        paths = {run.run_id: run.path for run in listed}
        for position in self._unanswered() if paths else ():
            run_id = _run_id(position, self._before(position).attempts)
            if (path := paths.get(run_id)) is not None:
                with suppress(ConfigError):  # reported when the row is asked
                    used += counted_in(path)
                    self._begun.add(position.number)
        return used

    def _unanswered(self) -> Iterator[RowPosition]:
        for position in self._source.positions():
            entry = self._table.get(position.number)
            if entry is None or entry.status == "again":
                yield position

    async def _work(self, number: int) -> None:
        """Ask row after row; when the budget gets tight, only the first worker continues."""
        while number < self._width and not self.tally.stopped:
            position = next(self._left, None) or (self._again.popleft() if self._again else None)
            if position is None:
                return
            self.tally.running += 1
            try:
                was_alone = self._width == 1
                if (limit := await self._ask(position)) is not None:
                    self._refused(position, limit, was_alone)
                    return
            finally:
                self.tally.running -= 1
                self._changed(self.tally)

    def _refused(self, position: RowPosition, limit: str, was_alone: bool) -> None:
        """Try a refused row again, alone: other rows may hold budget that they will not use."""
        self._again.appendleft(position)
        if was_alone:
            budget = self._shown_budget(limit)
            self.tally.stopped = f"the budget of the batch{budget} does not allow another row"
            self.tally.exhausted = limit
        self._width = 1

    def _shown_budget(self, limit: str) -> str:
        limits = self._budget.limits
        if limit == "tokens" and limits.max_tokens is not None:
            return f", {counted(limits.max_tokens, 'token')},"
        if limit == "cost_usd" and limits.max_cost_usd is not None:
            return f", ${limits.max_cost_usd:,},"
        return ""

    async def _ask(self, position: RowPosition) -> str | None:
        """Ask one row once; return the limit of the batch's budget that had no room for it."""
        row, known, meter = None, self._before(position), self._meter(position)
        self._tries[position.number] += 1
        try:
            row = self._source.row(position)
            result = await self._run_of(position, row, known.attempts, meter)
        except asyncio.CancelledError:
            entry = self._broken_off(position, row, "it was cut off", known, meter)
            self._table.put(position.number, entry)
            raise
        except UnknownPriceError as error:
            self._problem, self.tally.stopped = error, str(error)  # the same for every row
            return None
        except Exception as error:  # noqa: BLE001 - one row's failure is not the batch's
            entry = self._broken_off(position, row, _message(error), known, meter)
            self._fail(position, entry, _message(error), final=isinstance(error, RowError))
            return None
        finally:
            self._begun.add(position.number)
        return self._take(position, row, result, known, meter)

    def _take(
        self, position: RowPosition, row: Row, result: RunResult, known: Entry, meter: RunMeter
    ) -> str | None:
        """Store the outcome of a row whose run has ended; return as `_ask` does."""
        used = known.used + meter.spent
        if result.stop_reason == "limit" and meter.was_refused:
            self._tries[position.number] -= 1
            line = outcomes.ended(position, row, result, known.attempts, used, lacked_budget=True)
            left = known.used + meter.unjournaled
            entry = Entry(position.digest, "again", known.attempts, left, line)
            self._table.put(position.number, entry)
            return result.limit
        attempts = known.attempts + 1
        line = outcomes.ended(
            position, row, result, attempts, used, lacked_budget=meter.was_refused
        )
        entry = Entry(position.digest, "answered", attempts, used, line)
        if result.stop_reason == "error":
            self._fail(position, entry, outcomes.error_of(result))
            return None
        self._table.put(position.number, entry)
        self._end(position, known.attempts)
        self.tally.answered += 1
        self._failures = 0
        return None

    def _meter(self, position: RowPosition) -> RunMeter:
        is_counted = position.number in self._begun
        return RunMeter(self._budget, journaled=self._journals is not None, is_counted=is_counted)

    def _broken_off(
        self, position: RowPosition, row: Row | None, error: str, known: Entry, meter: RunMeter
    ) -> Entry:
        """Return the entry of a row whose run has no result; it will be resumed.

        `used` leaves out what the journal holds, and the line does not: an execution that ends
        before it recalls all of that has used no less than the line said before.
        """
        now, told = known.used + meter.spent, known.told
        used = Amount(0, max(now.tokens, told.tokens), max(now.picodollars, told.picodollars))
        run_id = None
        if row is not None and self._journals is not None:
            run_id = _run_id(position, known.attempts)
        line = outcomes.broken_off(position, row, error, known.attempts, used, meter, run_id)
        left = known.used + meter.unjournaled
        return Entry(position.digest, "again", known.attempts, left, line)

    def _before(self, position: RowPosition) -> Entry:
        """Return what is stored about a row, or the entry of one that was never asked."""
        never_asked = Entry(position.digest, "again", 0, Amount(), "{}")
        return self._table.get(position.number) or never_asked

    async def _run_of(
        self, position: RowPosition, row: Row, attempts: int, meter: RunMeter
    ) -> RunResult:
        try:
            context = await self._context(row.context_in(self._folder))
        except RowError as error:
            reason = row.with_own_names(str(error), self._folder)
            known = self._source.problem(position)  # in the words used before the batch began
            raise RowError(known or f"line {position.line}: context_file {reason}") from error
        run_id = _run_id(position, attempts) if self._journals is not None else None
        return await self._engine.aask(
            row.query,
            context,
            response_model=self._plan.response_model,
            run_id=run_id,
            budget=meter.ledger,
        )

    async def _context(self, value: ContextValue) -> Any:
        """Return a context; files are read once for rows that name the same ones."""
        files = value if isinstance(value, list) else [value]
        if not all(isinstance(each, Path | Place) for each in files):
            return value
        names = tuple(each.url if isinstance(each, Place) else str(each) for each in files)
        task = self._contexts.get(names)
        if task is None:
            task = asyncio.create_task(in_thread(store_context, value))
            self._contexts[names] = task
            if len(self._contexts) > SHARED_CONTEXTS:
                self._contexts.popitem(last=False)
        self._contexts.move_to_end(names)
        try:
            return await asyncio.shield(task)
        except (ConfigError, OSError) as error:
            self._contexts.pop(names, None)
            raise RowError(str(error)) from error

    def _fail(
        self, position: RowPosition, entry: Entry, error: str, *, final: bool = False
    ) -> None:
        """Store a failure; the row is asked again later, or given up for now."""
        gives_up = final or self._tries[position.number] >= self._plan.tries
        self._table.put(position.number, replace(entry, status="failed" if gives_up else "again"))
        if not gives_up:
            self._again.append(position)
            return
        self.tally.failed += 1
        insort(self.tally.failures, (position.line, error))
        del self.tally.failures[TOLD_FAILURES:]
        self._end(position)
        self._failures += not final
        if self._failures == self._plan.failures_in_a_row:
            self.tally.stopped = (
                f"{self._failures:,} consecutive rows failed, the last with: {error}"
            )

    def _end(self, position: RowPosition, attempt: int | None = None) -> None:
        """Write finished answers, and remove the journal of a run that has answered."""
        self.tally.done_now += 1
        self._tries.pop(position.number, None)
        self._begun.discard(position.number)
        self._answers.advance()
        if attempt is not None and self._journals is not None and not self._plan.keeps_runs:
            self._journals.remove(_run_id(position, attempt))


def _run_id(position: RowPosition, attempt: int) -> str:
    return f"row-{position.number:07}-{position.digest}-{attempt}"


def _message(error: Exception) -> str:
    return str(error) or type(error).__name__
