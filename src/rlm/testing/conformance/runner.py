"""Runs the rows of a suite, each with a time limit, and reports every one."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Literal

from msgspec import Struct

__all__ = [
    "BAD_VERDICTS",
    "MAX_SECONDS",
    "Finding",
    "OnRow",
    "Report",
    "Row",
    "Task",
    "Verdict",
    "chosen",
    "run_tasks",
]

Verdict = Literal[
    "passed", "failed", "not offered", "stopped", "SUCCEEDED", "visible", "not applicable"
]
"""`passed`, `failed`, `not offered` are results of checks, the others of attacks; a row that could
not be judged is `failed` in both suites."""

BAD_VERDICTS: frozenset[Verdict] = frozenset({"failed", "SUCCEEDED"})


class Row(Struct, frozen=True):
    """The result of one check or attack: a verdict, and a line of detail."""

    name: str
    group: str
    verdict: Verdict
    detail: str
    seconds: float


class Report(Struct, frozen=True):
    """All rows, in the order of the suite."""

    rows: tuple[Row, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many times each verdict occurs."""
        return dict(Counter(row.verdict for row in self.rows))

    @property
    def ok(self) -> bool:
        """Whether there are rows and none of them is bad."""
        return bool(self.rows) and not self.bad

    @property
    def bad(self) -> tuple[Row, ...]:
        """The rows that need attention."""
        return tuple(row for row in self.rows if row.verdict in BAD_VERDICTS)


Finding = tuple[Verdict, str]
OnRow = Callable[[Row], None]
_AT_ONCE = 8


MAX_SECONDS = 60.0
"""The time limit of one row, unless the environment asks for more `patience`."""


class Task(Struct, frozen=True):
    """One row to run. Adjacent tasks marked `together` run concurrently.

    `excuse`: why the environment says it can't keep this promise; a failure is then "not offered".
    """

    name: str
    group: str
    find: Callable[[], Awaitable[Finding]]
    together: bool = False
    max_seconds: float = MAX_SECONDS
    excuse: str | None = None


def chosen(tasks: Iterable[Task], only: str | None) -> list[Task]:
    """Return the tasks whose group or name contains a text, ignoring case."""
    wanted = (only or "").casefold()
    return [task for task in tasks if wanted in f"{task.group}: {task.name}".casefold()]


async def run_tasks(tasks: Sequence[Task], on_row: OnRow | None = None) -> Report:
    """Run all tasks; `on_row` is called with each row when it is ready."""
    rows: list[Row] = []
    turns = asyncio.Semaphore(_AT_ONCE)

    async def run_one(task: Task) -> Row:
        async with turns:
            row = await _row(task)
        if on_row is not None:
            on_row(row)
        return row

    for together, some in itertools.groupby(tasks, key=lambda task: task.together):
        if together:
            rows += await asyncio.gather(*(run_one(task) for task in some))
        else:
            rows += [await run_one(task) for task in some]
    return Report(tuple(rows))


async def _row(task: Task) -> Row:
    """Run one task and catch everything it raises: the boundary of the suite."""
    started = time.monotonic()
    verdict: Verdict = "failed"
    try:
        async with asyncio.timeout(task.max_seconds) as bound:
            verdict, detail = await task.find()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a broken row is failed, never lost
        late = isinstance(error, TimeoutError) and bound.expired()
        detail = (
            f"did not end within {task.max_seconds:g} s"
            if late
            else f"{type(error).__name__}: {error}"
        )
    if verdict == "failed" and task.excuse is not None:
        verdict, detail = "not offered", task.excuse
    return Row(task.name, task.group, verdict, detail, time.monotonic() - started)
