"""Work that is cancelled once and then left to tidy up, whoever it was done for.

The SDK cancels a request again at every wait, so what has to be ended with care (a process, a
sandbox, a run) is done in a task of its own, which hears of it once.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["Detached"]

_Result = TypeVar("_Result")


class Detached:
    """Tasks that outlive the request they were begun for; `close` waits for all of them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, _Result]) -> asyncio.Task[_Result]:
        """Begin, and let it go on by itself."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """The result; if the one who waits is cancelled, the work is, too, and tidies up."""
        task = self.start(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.cancel()
            task.add_done_callback(_forget)
            raise

    async def close(self) -> None:
        """End what is going on, and wait until it has ended.

        What has been told to end already is tidying up, and a second word would cut that short.
        """
        tasks = list(self._tasks)
        for task in tasks:
            if not task.cancelling():
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _forget(task: "asyncio.Task[Any]") -> None:
    """Nobody is left to hear of its error."""
    if not task.cancelled():
        task.exception()
