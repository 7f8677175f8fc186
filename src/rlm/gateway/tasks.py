"""Work that outlives a cancelled request, limited per principal."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, ParamSpec, TypeVar

from rlm._util.limited import Stop

__all__ = ["BackgroundTasks", "OwnerLimits", "Threads"]

_Result = TypeVar("_Result")


class BackgroundTasks:
    """Tasks that outlive the request they were started for; `close` waits for all of them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, _Result]) -> asyncio.Task[_Result]:
        """Start a task that runs independently."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Wait for work; if the waiting request is cancelled, cancel the work, which cleans up."""
        task = self.start(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.cancel()
            task.add_done_callback(_forget)
            raise

    async def close(self) -> None:
        """Cancel all tasks, and wait until they have ended.

        A task that is already being cancelled is cleaning up, which a second cancellation would
        interrupt.
        """
        tasks = list(self._tasks)
        for task in tasks:
            if not task.cancelling():
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _forget(task: "asyncio.Task[Any]") -> None:
    """Retrieve the exception of a task that no request waits for."""
    if not task.cancelled():
        task.exception()


MAX_THREADS = 32
MAX_THREADS_EACH = 4

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


class OwnerLimits:
    """A number of slots per owner; an owner that has used all of them waits only for itself."""

    def __init__(self, max_each: int) -> None:
        self._most_each = max_each
        self._places: dict[str, asyncio.Semaphore] = {}
        self._users: dict[str, int] = {}

    @asynccontextmanager
    async def slot(self, owner: str) -> AsyncGenerator[None, None]:
        """Hold one of an owner's slots."""
        places = self._places.setdefault(owner, asyncio.Semaphore(self._most_each))
        self._users[owner] = self._users.get(owner, 0) + 1
        try:
            async with places:
                yield
        finally:
            self._users[owner] -= 1
            if not self._users[owner]:
                del self._users[owner], self._places[owner]


class Threads:
    """Threads for reading files. A thread can't be stopped, only asked to end.

    Its slot is held until the thread has ended, even if the client is gone: cancelling and asking
    again gets no more threads than waiting.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(MAX_THREADS, "rlm-gateway")
        self._limits = OwnerLimits(MAX_THREADS_EACH)
        self._tasks = BackgroundTasks()

    async def run(
        self,
        owner: str,
        work: Callable[_Given, _Found],
        *given: _Given.args,
        **named: _Given.kwargs,
    ) -> _Found:
        """Return the result of `work`."""
        return await self._tasks.run(self._run(owner, lambda: work(*given, **named)))

    async def close(self) -> None:
        await self._tasks.close()
        self._pool.shutdown(wait=False)

    async def _run(self, owner: str, work: Callable[[], _Found]) -> _Found:
        async with self._limits.slot(owner):
            stop = Stop()
            loop = asyncio.get_running_loop()
            working = loop.run_in_executor(self._pool, lambda: stop.run(work))
            try:
                return await asyncio.shield(working)
            except asyncio.CancelledError:
                stop.set()
                await asyncio.wait([working])
                if not working.cancelled():
                    working.exception()  # No request is waiting for it any more.
                raise
