"""Run the engine from blocking code, on an event loop in a background thread.

It also works inside a running loop (a notebook), in threads, in tools of a run and after a fork.
"""

import asyncio
import concurrent.futures
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Generic, NamedTuple, TypeVar, cast

from rlm.errors import PortalError

__all__ = [
    "MAX_NESTED_TOOLS",
    "Inside",
    "Portal",
    "ToolCall",
    "existing_portal",
    "inside",
    "portal",
]

LAST_SECONDS = 2.0
"""How long the end of the program waits for connections to close."""

SLICE_SECONDS = 0.5
"""How long a blocking call waits before it lets Python's signal handlers run."""

MAX_NESTED_TOOLS = 8
"""How many tools may wait for one another's blocking calls; each level has its own threads."""

T = TypeVar("T")


class ToolCall:
    """One call of a tool, which may itself make blocking calls and wait for them.

    `on_wait` is called with True when the first of them begins, and with False when the last has
    ended, in any thread.
    """

    def __init__(self, on_wait: Callable[[bool], None]) -> None:
        self._on_wait = on_wait
        self._lock = threading.Lock()
        self._waiting: set[concurrent.futures.Future[Any]] = set()
        self._is_over = False

    def begin(self, future: "concurrent.futures.Future[Any]") -> None:
        """Note a blocking call; cancel it at once if the tool call has ended."""
        with self._lock:
            is_first = not self._waiting
            self._waiting.add(future)
            is_over = self._is_over
        if is_over:
            future.cancel()
            raise PortalError(
                "the tool that made this blocking call was cancelled or has timed out"
            )
        if is_first:
            self._on_wait(True)

    def end(self, future: "concurrent.futures.Future[Any]") -> None:
        with self._lock:
            self._waiting.discard(future)
            is_last = not self._waiting and not self._is_over
        if is_last:
            self._on_wait(False)

    def cancel(self) -> None:
        """Cancel what the tool waits for and refuse further calls: nobody awaits its result."""
        with self._lock:
            self._is_over = True
            waiting = list(self._waiting)
        for future in waiting:
            future.cancel()


class Inside(NamedTuple):
    """Where code runs: in which run, and below which tools and turns.

    `loop` is that of the run, `tools` counts the tools above, `call` is the lowest of them, and
    `turns` are the conversations that wait for this run.
    """

    loop: asyncio.AbstractEventLoop | None = None
    tools: int = 0
    call: ToolCall | None = None
    turns: tuple[object, ...] = ()


inside: ContextVar[Inside] = ContextVar("inside", default=Inside())  # noqa: B039 - it is frozen
"""Set in every task and thread that works for a run."""


class Portal:
    """An event loop on a daemon thread, started on first use."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._started = threading.Event()
        self._closing: list[concurrent.futures.Future[None]] = []
        self._iterated: set[AsyncGenerator[Any, None]] = set()
        self._thread = threading.Thread(target=self._serve, name="rlm-portal", daemon=True)
        self._thread.start()
        self._started.wait()

    def _serve(self) -> None:
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(self._started.set)
        self.loop.run_forever()

    @property
    def usable(self) -> bool:
        """Whether the thread is running here: a forked child has the object without the thread."""
        return self._pid == os.getpid() and self._thread.is_alive()

    def call(
        self,
        function: Callable[[], Coroutine[Any, Any, T]],
        on_interrupt: Callable[[], None] | None = None,
    ) -> T:
        """Run a coroutine on the portal and wait for it.

        Ctrl-C cancels it; with `on_interrupt`, the first Ctrl-C calls that instead and keeps
        waiting.
        """
        here = inside.get()
        self._check(here)
        work = _Work(self.loop, function())
        try:
            if here.call is not None:
                here.call.begin(work.future)
            return work.wait(on_interrupt)
        finally:
            work.close()
            if here.call is not None:
                here.call.end(work.future)

    def iterate(self, function: Callable[[], AsyncGenerator[T, None]]) -> Generator[T, None, None]:
        """Yield what an async generator on the portal yields; leaving closes it.

        Leaving waits until the async generator is closed, where that is possible: not on the
        portal's own thread, where the garbage collector may run this, and not at exit.
        """
        items, end = function(), object()
        # If both became garbage together, the collector might close `items` first.
        self._iterated.add(items)

        async def one() -> T | object:
            return await anext(items, end)

        try:
            while (item := self.call(one)) is not end:
                yield cast("T", item)
        finally:
            self._iterated.discard(items)
            if not self.usable or sys.is_finalizing():
                pass
            elif threading.current_thread() is self._thread:
                self.close_later(items.aclose)
            else:
                self.call(items.aclose)

    def _check(self, here: Inside) -> None:
        """Refuse a call that would wait for itself: from the loop that serves it, or too deep."""
        loop = asyncio._get_running_loop()
        in_run = loop is not None and loop is here.loop
        if in_run or threading.current_thread() is self._thread:
            raise PortalError(
                "a blocking rlm call was made on the event loop of a run (from an async tool or a "
                "recorder): use the async form there, `await rlm.aask(...)`"
            )
        if here.tools > MAX_NESTED_TOOLS:
            raise PortalError(
                f"blocking rlm calls are nested more than {MAX_NESTED_TOOLS} tools deep: a tool "
                "seems to ask a run that calls the same tool again"
            )

    def close_later(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Close later what the program did not close; at exit the portal waits for it."""
        if self.usable:
            self._closing.append(asyncio.run_coroutine_threadsafe(function(), self.loop))

    def wait_for_closing(self) -> None:
        if self._closing and self.usable:
            concurrent.futures.wait(self._closing, timeout=LAST_SECONDS)


class _Work(Generic[T]):
    """A coroutine that a blocking call waits for.

    Ctrl-C can interrupt the call between any two of its steps, for example before it waits. So what
    is waited for exists before the coroutine begins, and can be cancelled whether it has or not.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> None:
        self._loop = loop
        self._coroutine = coroutine
        self._task: asyncio.Task[T] | None = None
        self.future: concurrent.futures.Future[T] = concurrent.futures.Future()

    def wait(self, on_interrupt: Callable[[], None] | None) -> T:
        """Begin the work and return its result; the first Ctrl-C may only ask it to end."""
        try:
            try:
                self._loop.call_soon_threadsafe(self._begin)
                return self._result()
            except KeyboardInterrupt:
                if on_interrupt is None or self._task is None:
                    raise
            on_interrupt()
            return self._result()
        except KeyboardInterrupt:
            self.future.cancel()
            raise

    def _result(self) -> T:
        """Wait in slices.

        If a signal came just before a wait, or in another thread, Python handles it only after it.
        """
        while not self.future.done():
            with suppress(TimeoutError):
                return self.future.result(SLICE_SECONDS)
        return self.future.result()

    def close(self) -> None:
        """Cancel the coroutine unless it has ended, even if it has not begun."""
        self.future.cancel()
        if self._task is None:
            self._loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        if self._task is not None:
            return
        if self.future.done():
            self._coroutine.close()
            return
        self._task = self._loop.create_task(self._coroutine)
        self._task.add_done_callback(self._ended)
        self.future.add_done_callback(self._cancel)

    def _ended(self, task: "asyncio.Task[T]") -> None:
        if task.cancelled():
            self.future.cancel()
        if not self.future.set_running_or_notify_cancel():
            return
        if (error := task.exception()) is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(task.result())

    def _cancel(self, future: "concurrent.futures.Future[T]") -> None:
        """End the task if the future was cancelled, which can happen in any thread."""
        if future.cancelled() and self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)


_lock = threading.Lock()
_portal: Portal | None = None


def portal() -> Portal:
    """Return the portal of this process; after a fork, make a new one."""
    global _portal
    with _lock:
        if _portal is None or not _portal.usable:
            _portal = Portal()
        return _portal


def existing_portal() -> Portal | None:
    """Return the portal if there is one, for callers that only have something to close."""
    return _portal if _portal is not None and _portal.usable else None


def _forget_after_fork() -> None:
    global _lock, _portal
    _lock, _portal = threading.Lock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
