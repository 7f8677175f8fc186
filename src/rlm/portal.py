"""Run the engine from blocking code, on an event loop in a background thread.

It also works inside a running loop (a notebook), in threads, and after a fork.
"""

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

from rlm.errors import PortalError

__all__ = ["Portal", "existing_portal", "in_a_run", "portal"]

LAST_SECONDS = 2.0
"""How long the end of the program waits for connections to close."""

T = TypeVar("T")

in_a_run: ContextVar[bool] = ContextVar("in_a_run", default=False)
"""Set during a run, and so in every task and thread that works for it."""


class Portal:
    """An event loop on a daemon thread, started on first use."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._started = threading.Event()
        self._closing: list[concurrent.futures.Future[None]] = []
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
        if threading.current_thread() is self._thread or in_a_run.get():
            raise PortalError(
                "a blocking rlm call was made from inside a run (from a tool or a recorder): "
                "use an async tool and the async form there, `await rlm.aask(...)`"
            )
        future = asyncio.run_coroutine_threadsafe(function(), self.loop)
        try:
            return _waited_for(future, on_interrupt)
        except KeyboardInterrupt:
            future.cancel()
            raise

    def close_later(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Close something later that the program did not close; at exit the portal waits for it."""
        if self.usable:
            self._closing.append(asyncio.run_coroutine_threadsafe(function(), self.loop))

    def wait_for_closing(self) -> None:
        if self._closing and self.usable:
            concurrent.futures.wait(self._closing, timeout=LAST_SECONDS)


def _waited_for(
    future: "concurrent.futures.Future[T]", on_interrupt: Callable[[], None] | None
) -> T:
    try:
        return future.result()
    except KeyboardInterrupt:
        if on_interrupt is None:
            raise
    on_interrupt()
    return future.result()


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


os.register_at_fork(after_in_child=_forget_after_fork)
