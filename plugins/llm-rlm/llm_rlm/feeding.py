"""Carries the events of a run from the engine's thread to whoever consumes a response.

When the consumer goes away (Ctrl-C, a cancelled task), the run is cancelled, and waited for.
"""

import asyncio
import concurrent.futures
import contextlib
import queue
from collections.abc import AsyncGenerator, Callable, Generator
from typing import TYPE_CHECKING, Any

import llm

from llm_rlm.failing import as_llm_error

if TYPE_CHECKING:
    from llm_rlm.runs import Turn
    from rlm import RunResult
    from rlm.events import Event

__all__ = ["Ended", "events_awaited", "events_blocking"]

UNWIND_SECONDS = 10.0

Future = concurrent.futures.Future["RunResult"]


class _Recorder:
    """Hands every event on."""

    def __init__(self, put: Callable[[Any], None]) -> None:
        self._put = put

    def record(self, event: "Event") -> None:
        """The Recorder protocol."""
        self._put(event)


class Ended:
    """Comes after the last event: the run's result, or what it raised."""

    def __init__(self, future: Future) -> None:
        self._future = future

    def result(self) -> "RunResult":
        """The result; errors of the engine's become llm's, which its command shows in a line."""
        from rlm.errors import RLMError

        try:
            return self._future.result()
        except RLMError as error:
            raise as_llm_error(error) from error


def events_blocking(turn: "Turn") -> "Generator[Event, None, RunResult]":
    """Every event of a run; returns its result."""
    _refuse_in_a_run()
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    future = _start(turn, inbox.put)
    has_ended = False
    try:
        while (event := inbox.get()) is not None:
            yield event
        has_ended = True
    finally:
        if not has_ended:
            future.cancel()
            _wait_for_end(inbox)
    return Ended(future).result()


async def events_awaited(turn: "Turn") -> "AsyncGenerator[Event | Ended, None]":
    """Every event of a run, then its end, for an event loop that is not the engine's."""
    loop = asyncio.get_running_loop()
    inbox: asyncio.Queue[Any] = asyncio.Queue()
    future = _start(turn, lambda event: _put_from_elsewhere(loop, inbox, event))
    has_ended = False
    try:
        while (event := await inbox.get()) is not None:
            yield event
        has_ended = True
    finally:
        if not has_ended:
            future.cancel()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(UNWIND_SECONDS):
                    while await inbox.get() is not None:
                        pass
    await asyncio.wait([asyncio.wrap_future(future)])
    yield Ended(future)


def _start(turn: "Turn", put: Callable[[Any], None]) -> Future:
    """Begin a run on the engine's thread; None is put when it has unwound, however it ended."""
    from rlm.portal import portal

    async def whole() -> "RunResult":
        try:
            return await turn.run(_Recorder(put))
        finally:
            put(None)

    return asyncio.run_coroutine_threadsafe(whole(), portal().loop)


def _refuse_in_a_run() -> None:
    """Blocking the engine's own thread would be waiting for itself."""
    from rlm.portal import portal

    try:
        is_engines = asyncio.get_running_loop() is portal().loop
    except RuntimeError:
        return
    if is_engines:
        raise llm.ModelError("a run can't block on another: use llm.get_async_model(…) in it")


def _wait_for_end(inbox: "queue.SimpleQueue[Any]") -> None:
    with contextlib.suppress(queue.Empty):
        while inbox.get(timeout=UNWIND_SECONDS) is not None:
            pass


def _put_from_elsewhere(
    loop: asyncio.AbstractEventLoop, inbox: "asyncio.Queue[Any]", event: Any
) -> None:
    with contextlib.suppress(RuntimeError):  # The loop was closed: nobody listens any longer.
        loop.call_soon_threadsafe(inbox.put_nowait, event)
