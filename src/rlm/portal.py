"""The sync door: one background thread with an event loop, on which blocking calls run the engine.

It also works inside a running loop (a notebook), in threads, and after a fork.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from rlm.errors import PortalError

__all__ = ["Portal", "portal"]

T = TypeVar("T")


class Portal:
    """A loop on a daemon thread, started on first use."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._started = threading.Event()
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
        """A forked child has the object but not the thread."""
        return self._pid == os.getpid() and self._thread.is_alive()

    def call(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the portal and wait for it. Ctrl-C cancels it before it is raised."""
        if threading.current_thread() is self._thread:
            raise PortalError(
                "a blocking rlm call was made from the engine's own thread (from an async tool or "
                "callback): use the async form there, `await rlm.aask(...)`"
            )
        future = asyncio.run_coroutine_threadsafe(function(), self.loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise


_lock = threading.Lock()
_portal: Portal | None = None


def portal() -> Portal:
    """The process's portal, made anew if a fork left it behind."""
    global _portal
    with _lock:
        if _portal is None or not _portal.usable:
            _portal = Portal()
        return _portal


def _forget_after_fork() -> None:
    global _lock, _portal
    _lock, _portal = threading.Lock(), None


os.register_at_fork(after_in_child=_forget_after_fork)
