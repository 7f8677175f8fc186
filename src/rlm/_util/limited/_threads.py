"""Run blocking work for a coroutine in a thread, which learns when the coroutine is cancelled."""

import asyncio
import contextvars
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

__all__ = ["Stop", "Unwanted", "calling_on_stop", "check_wanted", "in_thread"]

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


class Unwanted(Exception):
    """Raised inside blocking work whose result is no longer wanted."""


class Stop:
    """Asks blocking work to end; a thread can't be killed, but it can check."""

    def __init__(self) -> None:
        self.is_set = False
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []

    def set(self) -> None:
        """Ask the work to end, and interrupt what it waits for."""
        with self._lock:
            self.is_set = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def run(self, work: Callable[[], _Found]) -> _Found:
        """Do the work, which can check this object."""
        context = contextvars.copy_context()
        context.run(_current.set, self)
        return context.run(work)

    @contextmanager
    def calling(self, callback: Callable[[], object]) -> Generator[None, None, None]:
        """Call a function if this is set during the block."""
        with self._lock:
            if self.is_set:
                raise Unwanted
            self._callbacks.append(callback)
        try:
            yield
        finally:
            with self._lock:
                if callback in self._callbacks:
                    self._callbacks.remove(callback)


_current: contextvars.ContextVar[Stop | None] = contextvars.ContextVar("stop", default=None)


def check_wanted() -> None:
    """Raise Unwanted if the current work was asked to end; for long loops."""
    stop = _current.get()
    if stop is not None and stop.is_set:
        raise Unwanted


@contextmanager
def calling_on_stop(callback: Callable[[], object]) -> Generator[None, None, None]:
    """Call a function if the current work is asked to end."""
    stop = _current.get()
    if stop is None:
        yield
        return
    with stop.calling(callback):
        yield


async def in_thread(
    work: Callable[_Given, _Found], *given: _Given.args, **named: _Given.kwargs
) -> _Found:
    """Do blocking work in its own thread; cancelling asks it to end.

    Work that may take minutes would otherwise occupy one of the few threads of the loop.
    """
    stop, context = Stop(), contextvars.copy_context()
    done: Future[_Found] = Future()
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            done.set_result(stop.run(lambda: work(*given, **named)))
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            done.set_exception(error)

    threading.Thread(target=context.run, args=(run,), name="rlm-work", daemon=True).start()
    try:
        return await asyncio.wrap_future(done)
    except asyncio.CancelledError:
        stop.set()
        raise
