"""Run the functions of tools in their own threads, so that a hanging tool blocks no other."""

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from typing import Any

from rlm.errors import ToolError

__all__ = ["MAX_LATE", "Raised", "in_thread"]

MAX_LATE = 256
"""How many threads may still run although no caller awaits them; then calls are refused.

A thread can't be stopped. Code in a cell may start a slow tool, end, and start it again.
"""

_late: set[threading.Thread] = set()


class Raised(Exception):
    """What a function raised in its thread."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


async def in_thread(work: Callable[[], Any]) -> Any:
    """Run a function in its own thread, with this task's context variables.

    Not `asyncio.to_thread`: Python waits for the threads of its pool, so one hanging tool would
    keep the program from ending.
    """
    if len(_late) >= MAX_LATE and _still_late() >= MAX_LATE:
        raise ToolError(
            f"{MAX_LATE} earlier tool calls are still running after their callers have gone; try "
            "again when some have ended"
        )
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: tuple[Any, BaseException | None]) -> None:
        if outcome.done():
            _discard(result)
        else:
            outcome.set_result(result)

    def body() -> None:
        result = context.run(_outcome, work)
        try:
            loop.call_soon_threadsafe(settle, result)
        except RuntimeError:  # The loop was closed; nobody waits any more.
            _discard(result)

    thread = threading.Thread(target=body, name="rlm-tool", daemon=True)
    thread.start()
    try:
        value, error = await outcome
    except asyncio.CancelledError:
        if outcome.done() and not outcome.cancelled():  # Both happened at the same moment.
            _discard(outcome.result())
        else:
            _late.add(thread)
        raise
    if error is not None:
        raise error if isinstance(error, ToolError) else Raised(error)
    return value


def _still_late() -> int:
    """Forget the threads that have ended; return how many still run without a caller."""
    for thread in tuple(_late):
        if not thread.is_alive():
            _late.discard(thread)
    return len(_late)


def _discard(result: tuple[Any, BaseException | None]) -> None:
    """Close a result that no caller awaits; Python warns about coroutines never awaited."""
    value, _ = result
    pending = value[1] if isinstance(value, tuple) else None
    if inspect.iscoroutine(pending):
        pending.close()


def _outcome(work: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return work(), None
    except BaseException as error:  # noqa: BLE001 - the plugin boundary: it is raised by who waits
        return None, error
