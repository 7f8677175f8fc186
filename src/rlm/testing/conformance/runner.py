"""Runs the rows of a suite: each bounded in time, none lost, whatever happens in it."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

from msgspec import Struct

from rlm.testing.conformance.report import Report, Row, Verdict

__all__ = ["MOST_SECONDS", "Finding", "OnRow", "Task", "chosen", "run_tasks"]

Finding = tuple[Verdict, str]
OnRow = Callable[[Row], None]
_AT_ONCE = 8


MOST_SECONDS = 60.0
"""For one row, where the environment does not ask for more patience."""


class Task(Struct, frozen=True):
    """One row to be. Neighbours that are marked `together` run side by side.

    `excuse`: why it can't be kept here, as the environment itself says; then it is not offered
    where it is not kept.
    """

    name: str
    group: str
    find: Callable[[], Awaitable[Finding]]
    together: bool = False
    most_seconds: float = MOST_SECONDS
    excuse: str | None = None


def chosen(tasks: Iterable[Task], only: str | None) -> list[Task]:
    """The tasks whose group or name contains a text, whatever its case."""
    wanted = (only or "").casefold()
    return [task for task in tasks if wanted in f"{task.group}: {task.name}".casefold()]


async def run_tasks(tasks: Sequence[Task], on_row: OnRow | None = None) -> Report:
    """Run them all; `on_row` is told of each row as soon as it is there."""
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
    """The border of the suite: whatever a row raises is what it found."""
    started = time.monotonic()
    verdict: Verdict = "failed"
    try:
        async with asyncio.timeout(task.most_seconds) as bound:
            verdict, detail = await task.find()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a broken row is failed, never lost
        late = isinstance(error, TimeoutError) and bound.expired()
        detail = (
            f"did not end within {task.most_seconds:g} s"
            if late
            else f"{type(error).__name__}: {error}"
        )
    if verdict == "failed" and task.excuse is not None:
        verdict, detail = "not offered", task.excuse
    return Row(task.name, task.group, verdict, detail, time.monotonic() - started)
