"""The events of a run for somebody who waits for them."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from rlm.events import Event
from rlm.protocols import Recorder

__all__ = ["events_of"]


async def events_of(
    start: Callable[[Recorder], Coroutine[Any, Any, object]],
) -> AsyncGenerator[Event, None]:
    """Start a run with a recorder, and give every event while it goes on.

    Leaving the loop cancels the run. What the run raises is raised after its last event.
    """
    queue = _QueueRecorder()
    run = asyncio.ensure_future(start(queue))
    run.add_done_callback(lambda _: queue.events.put_nowait(None))
    try:
        while (event := await queue.events.get()) is not None:
            yield event
        await run
    finally:
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)


class _QueueRecorder:
    def __init__(self) -> None:
        self.events: asyncio.Queue[Event | None] = asyncio.Queue()

    def record(self, event: Event) -> None:
        self.events.put_nowait(event)
