"""The time that a cell may take: its own limit, and what is left to its run."""

import asyncio

from msgspec.structs import replace

from rlm.errors import SessionError
from rlm.limits import Limits
from rlm.protocols import Session
from rlm.results import CellError, CellResult

__all__ = ["execute_in_time"]

OVERTIME_SECONDS = 5.0
"""How long past the work deadline an interrupted cell may take to unwind before it is killed."""


async def execute_in_time(
    session: Session, code: str, limits: Limits, seconds_left: float
) -> CellResult:
    """Run a cell; interrupt it when the time of its run is up, and say so in its error."""
    alarm = asyncio.create_task(_interrupt_later(session, seconds_left))
    try:
        async with asyncio.timeout(seconds_left + OVERTIME_SECONDS):
            result = await session.execute(code, timeout_seconds=limits.cell_seconds)
    except TimeoutError as error:
        raise SessionError("the cell exceeded its time limit") from error
    finally:
        was_ended = alarm.done()
        alarm.cancel()
    if not (was_ended and result.interrupted and result.error is not None):
        return result
    if result.error.type == "TimeoutError":  # Its own limit ended it at the same moment.
        return result
    return replace(result, error=_ended_by_run(result.error, limits))


def _ended_by_run(error: CellError, limits: Limits) -> CellError:
    """Return the error of a cell that the time limit of its run ended, or that of a run above."""
    limit = "" if limits.max_seconds is None else f" of {limits.max_seconds:g} s"
    message = f"the run's time limit{limit} ended the cell (max_seconds)"
    return CellError("TimeoutError", message, error.traceback)


async def _interrupt_later(session: Session, seconds: float) -> None:
    await asyncio.sleep(seconds)
    await session.interrupt()
