"""Blocking libraries off the event loop: a few threads, and what they say as a stream.

A thread can't be killed. One whose caller gave up keeps its place until its function returns, so a
library that hangs holds at most as many threads as there are places; further calls wait for one,
each for no longer than its own time limit. The threads are daemons: they never keep Python alive.
"""

import asyncio
import contextlib
import contextvars
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Generic, TypeVar, cast

from rlm.errors import ModelError

__all__ = ["Flow", "Threads", "each_within", "last_of"]

T = TypeVar("T")


class Flow:
    """What a blocking function is handed: where its pieces go, and whether anybody still waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.given_up = False
        self._loop = loop
        self._said: asyncio.Queue[tuple[bool, object]] = asyncio.Queue()

    def send(self, piece: object) -> bool:
        """Hand over a piece, from the thread; False if nobody waits for it any more."""
        self.put(False, piece)
        return not self.given_up

    def put(self, is_last: bool, value: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits
            self._loop.call_soon_threadsafe(self._said.put_nowait, (is_last, value))

    async def get(self) -> tuple[bool, object]:
        return await self._said.get()


class _Failed:
    """What a function raised in its thread, on its way to the loop."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Threads(Generic[T]):
    """Runs functions in threads of their own, `most` at a time; T is what they return."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._waiting: deque[tuple[Flow, Callable[[], None]]] = deque()
        self._running: set[Flow] = set()
        self._lock = threading.Lock()

    @property
    def abandoned(self) -> int:
        """How many threads still work for callers that have given up."""
        with self._lock:
            return sum(flow.given_up for flow in self._running)

    async def stream(self, work: Callable[[Flow], T]) -> AsyncGenerator[str | T, None]:
        """Every piece the function sends, and at the end what it returns."""
        flow = Flow(asyncio.get_running_loop())
        context = contextvars.copy_context()
        self._submit(flow, lambda: flow.put(True, context.run(_outcome, work, flow)))
        try:
            is_last = False
            while not is_last:
                is_last, value = await flow.get()
                if isinstance(value, _Failed):
                    raise value.error
                yield cast("str | T", value)
        finally:
            flow.given_up = True

    def give_up_all(self) -> None:
        """Tell every function that nobody waits for it any more."""
        with self._lock:
            for flow in (*self._running, *(flow for flow, _ in self._waiting)):
                flow.given_up = True

    async def ended(self, timeout_seconds: float) -> bool:
        """Wait until no thread runs; False if some still do when the time is over."""
        deadline = time.monotonic() + timeout_seconds
        while self._running:
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(0.01)
        return True

    def _submit(self, flow: Flow, job: Callable[[], None]) -> None:
        with self._lock:
            self._waiting.append((flow, job))
            if len(self._running) >= self._most:
                return
            first = self._next()
        if first is not None:
            threading.Thread(target=self._work, args=first, name=self._name, daemon=True).start()

    def _work(self, flow: Flow, job: Callable[[], None]) -> None:
        """One thread's life: its job, then whatever waits; it ends when nothing does."""
        upcoming: tuple[Flow, Callable[[], None]] | None = (flow, job)
        while upcoming is not None:
            flow, job = upcoming
            job()
            with self._lock:
                self._running.discard(flow)
                upcoming = self._next()

    def _next(self) -> tuple[Flow, Callable[[], None]] | None:
        """The next job that somebody still waits for. To be called with the lock held."""
        while self._waiting:
            flow, job = self._waiting.popleft()
            if not flow.given_up:
                self._running.add(flow)
                return flow, job
        return None


def _outcome(work: Callable[[Flow], object], flow: Flow) -> object:
    """What the function returns, or what it raised: raised again by who waits for it.

    What would end a loop or a generator, not a call (SystemExit, StopIteration …), is wrapped.
    """
    try:
        return work(flow)
    except BaseException as error:  # noqa: BLE001 - the plugin border
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            return _Failed(error)
        return _Failed(RuntimeError(f"{type(error).__name__}: {error}"))


async def each_within(
    pieces: AsyncGenerator[T, None],
    seconds: float,
    model: str,
    explain: Callable[[], str] = str,
) -> AsyncGenerator[T, None]:
    """The pieces as they come, all of them within so many seconds; else a ModelError.

    The clock is set for each wait alone: one that ran on while the consumer works would cancel it.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    async with contextlib.aclosing(pieces):
        while True:
            clock = asyncio.timeout_at(deadline)
            try:
                async with clock:
                    piece = await anext(pieces)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if not clock.expired():
                    raise
                raise ModelError(
                    f"{model} did not answer within {seconds:g} s{explain()}",
                    retryable=True,
                    ambiguous=True,
                ) from None
            yield piece


async def last_of(pieces: AsyncIterator[T]) -> T:
    """The last piece of a stream that has one."""
    last = await anext(pieces)
    async for last in pieces:  # noqa: B007 - only the last one matters
        pass
    return last
