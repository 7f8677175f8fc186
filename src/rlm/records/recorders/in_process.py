"""Recorders that keep events, or hand them to callbacks or a queue."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rlm.events import BudgetChanged, CallEnded, CallStarted, Event, RunEnded, StepStarted
from rlm.messages import bare_name
from rlm.protocols import Recorder

__all__ = ["CallbackRecorder", "MemoryRecorder", "events_of"]


class MemoryRecorder:
    """The simplest recorder: it keeps every event."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def record(self, event: Event) -> None:
        self.events.append(event)


log = logging.getLogger("rlm")

PREVIEW_CHARS = 80


class CallbackRecorder:
    """Calls `on_iteration_*` for steps, and `on_subcall_*` for calls from cells.

    `as_reference`: as in the reference engine, report only child runs, and name models without
    their provider.
    """

    def __init__(
        self,
        on_iteration_start: Callable[[int, int], Any] | None = None,
        on_iteration_complete: Callable[[int, int, float], Any] | None = None,
        on_subcall_start: Callable[[int, str, str], Any] | None = None,
        on_subcall_complete: Callable[[int, str, float, str | None], Any] | None = None,
        *,
        as_reference: bool = False,
    ) -> None:
        self._as_reference = as_reference
        self._on_iteration_start = on_iteration_start
        self._on_iteration_complete = on_iteration_complete
        self._on_subcall_start = on_subcall_start
        self._on_subcall_complete = on_subcall_complete
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rlm-callbacks")
        self._step_started: dict[str, float] = {}

    def record(self, event: Event) -> None:
        if isinstance(event, StepStarted):
            self._step_started[event.run_id] = event.monotonic_time
            self._fire(self._on_iteration_start, event.depth, event.step)
        elif isinstance(event, (BudgetChanged, RunEnded)):
            self._complete_step(event)
        elif self._as_reference and getattr(event, "kind", "rlm") != "rlm":
            return
        elif isinstance(event, CallStarted):
            preview = event.prompt[:PREVIEW_CHARS]
            self._fire(self._on_subcall_start, event.depth + 1, self._name(event), preview)
        elif isinstance(event, CallEnded):
            facts = (event.depth + 1, self._name(event), event.seconds, event.error)
            self._fire(self._on_subcall_complete, *facts)

    async def finish(self) -> None:
        """Wait until every callback has returned, without using a thread that others may need."""
        await asyncio.wrap_future(self._thread.submit(int))
        self._thread.shutdown(wait=False)

    def _name(self, event: CallStarted | CallEnded) -> str:
        return bare_name(event.model) if self._as_reference else event.model

    def _complete_step(self, event: BudgetChanged | RunEnded) -> None:
        started = self._step_started.pop(event.run_id, None)
        if started is not None:
            seconds = event.monotonic_time - started
            self._fire(self._on_iteration_complete, event.depth, event.step, seconds)

    def _fire(self, callback: Callable[..., Any] | None, *facts: Any) -> None:
        if callback is not None:
            self._thread.submit(_call, callback, facts)


def _call(callback: Callable[..., Any], facts: tuple[Any, ...]) -> None:
    try:
        callback(*facts)
    except Exception:  # the plugin boundary: a callback is the caller's code
        log.exception("callback %r failed", callback)


MAX_WAITING = 1_000
"""How many events may wait for a slow reader before the run stops sending requests."""


async def events_of(
    start: Callable[[Recorder], Coroutine[Any, Any, object]],
) -> AsyncGenerator[Event, None]:
    """Start a run with a recorder, and yield every event while it runs.

    Leaving the loop cancels the run. What the run raises is raised after its last event. If the
    reader is far behind, the run waits before its next request.
    """
    queue = _QueueRecorder()
    run = asyncio.ensure_future(start(queue))
    run.add_done_callback(lambda _: queue.events.put_nowait(None))
    try:
        while (event := await queue.next()) is not None:
            yield event
        await run
    finally:
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)


class _QueueRecorder:
    wants_pieces = True

    def __init__(self) -> None:
        self.events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._room = asyncio.Event()

    def record(self, event: Event) -> None:
        self.events.put_nowait(event)

    async def catch_up(self) -> None:
        """Wait while too many events wait for the reader."""
        while self.events.qsize() >= MAX_WAITING:
            self._room.clear()
            await self._room.wait()

    async def next(self) -> Event | None:
        event = await self.events.get()
        if self.events.qsize() <= MAX_WAITING // 2:
            self._room.set()
        return event
