"""The conformance suite: checks of what every environment promises.

`await check(environment)` returns a report with a row for each promise; `rlm env check NAME` prints
it. The checks are in the other modules of this package, one group each, and document what an
environment has to do. None of them depends on how an environment works inside.
"""

from rlm.protocols import Environment
from rlm.testing.conformance import (
    calls,
    cells,
    concurrency,
    contexts,
    finals,
    interrupts,
    limits,
    names,
    recovery,
    setup,
    snippets,
    texts,
    tools,
)
from rlm.testing.conformance.bench import Bench
from rlm.testing.conformance.checks import Check
from rlm.testing.conformance.runner import OnRow, Report, Row, Verdict, chosen, run_tasks

__all__ = ["CHECKS", "Report", "Row", "Verdict", "check"]

CHECKS: tuple[Check, ...] = tuple(
    each
    for group in (
        names.checks,
        cells.checks,
        finals.checks,
        calls.checks,
        tools.checks,
        setup.checks,
        concurrency.checks,
        contexts.checks,
        texts.checks,
        snippets.checks,
        limits.checks,
        interrupts.checks,
        recovery.checks,
    )
    for each in group.all
)


async def check(
    environment: Environment, *, only: str | None = None, on_row: OnRow | None = None
) -> Report:
    """Run every check whose group or name contains `only`; the environment stays open."""
    bench = Bench(environment)
    try:
        return await run_tasks(chosen((each.task(bench) for each in CHECKS), only), on_row)
    finally:
        await bench.drop_shared()
