"""Pass the events of a run from the engine's thread to the consumer of a response.

If the consumer stops (Ctrl-C, a cancelled task), the run is cancelled and awaited.
"""

import asyncio
import concurrent.futures
import contextlib
import queue
from collections.abc import AsyncGenerator, Callable, Generator
from typing import TYPE_CHECKING, Any

import llm

from llm_rlm.common import as_llm_error

if TYPE_CHECKING:
    from llm_rlm.chats import Turn
    from rlm import RunResult
    from rlm.events import Event

__all__ = ["Ended", "events_awaited", "events_blocking"]

UNWIND_SECONDS = 10.0

Future = concurrent.futures.Future["RunResult"]


class _Recorder:
    """A recorder that passes every event to a function."""

    def __init__(self, put: Callable[[Any], None]) -> None:
        self._put = put

    def record(self, event: "Event") -> None:
        """Implement the Recorder protocol."""
        self._put(event)


class Ended:
    """Follows the last event: the run's result, or its exception."""

    def __init__(self, future: Future) -> None:
        self._future = future

    def result(self) -> "RunResult":
        """Return the result; raise errors of the engine as errors of llm."""
        from rlm.errors import RLMError

        try:
            return self._future.result()
        except RLMError as error:
            raise as_llm_error(error) from error


def events_blocking(turn: "Turn") -> "Generator[Event, None, RunResult]":
    """Yield every event of a run; return its result."""
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
    """Yield every event of a run, then its end, on an event loop other than the engine's."""
    loop = asyncio.get_running_loop()
    inbox: asyncio.Queue[Any] = asyncio.Queue()
    future = _start(turn, lambda event: _put_threadsafe(loop, inbox, event))
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
    """Start a run on the engine's thread; put None when it has ended, for any reason."""
    from rlm.portal import portal

    async def whole() -> "RunResult":
        try:
            return await turn.run(_Recorder(put))
        finally:
            put(None)

    return asyncio.run_coroutine_threadsafe(whole(), portal().loop)


def _refuse_in_a_run() -> None:
    """Raise an error on the engine's own thread, where a blocking call would deadlock."""
    from rlm.portal import portal

    try:
        is_engines = asyncio.get_running_loop() is portal().loop
    except RuntimeError:
        return
    if is_engines:
        raise llm.ModelError("a run cannot block on another run: use llm.get_async_model(…) in it")


def _wait_for_end(inbox: "queue.SimpleQueue[Any]") -> None:
    with contextlib.suppress(queue.Empty):
        while inbox.get(timeout=UNWIND_SECONDS) is not None:
            pass


def _put_threadsafe(
    loop: asyncio.AbstractEventLoop, inbox: "asyncio.Queue[Any]", event: Any
) -> None:
    with contextlib.suppress(RuntimeError):  # The loop is closed, so there is no consumer.
        loop.call_soon_threadsafe(inbox.put_nowait, event)
