"""Nobody takes all places: so many things at once for each principal, whoever else is waiting."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import ParamSpec, TypeVar

from rlm._util.limited import Stop
from rlm.gateway.detached import Detached

__all__ = ["Threads", "Turns"]

MOST_THREADS = 32
MOST_THREADS_EACH = 4

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


class Turns:
    """Places by owner; an owner that has all of its own waits for itself alone."""

    def __init__(self, most_each: int) -> None:
        self._most_each = most_each
        self._places: dict[str, asyncio.Semaphore] = {}
        self._users: dict[str, int] = {}

    @asynccontextmanager
    async def of(self, owner: str) -> AsyncGenerator[None, None]:
        """Hold one of an owner's places."""
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
    """Reading files blocks, so it is done in threads; a thread can't be stopped, only asked to end.

    A place is held until the thread is through, also if the client has gone: who cancels and asks
    again gets no more threads than who waits.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(MOST_THREADS, "rlm-gateway")
        self._turns = Turns(MOST_THREADS_EACH)
        self._detached = Detached()

    async def run(
        self,
        owner: str,
        work: Callable[_Given, _Found],
        *given: _Given.args,
        **named: _Given.kwargs,
    ) -> _Found:
        """What `work` returns."""
        return await self._detached.run(self._run(owner, lambda: work(*given, **named)))

    async def close(self) -> None:
        await self._detached.close()
        self._pool.shutdown(wait=False)

    async def _run(self, owner: str, work: Callable[[], _Found]) -> _Found:
        async with self._turns.of(owner):
            stop = Stop()
            loop = asyncio.get_running_loop()
            working = loop.run_in_executor(self._pool, lambda: stop.run(work))
            try:
                return await asyncio.shield(working)
            except asyncio.CancelledError:
                stop.set()
                await asyncio.wait([working])
                if not working.cancelled():
                    working.exception()  # Nobody is left to hear of it.
                raise
