"""Let SIGTERM and SIGHUP end a command as Ctrl-C does, with an exit code of their own."""

import signal
import threading
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import contextmanager
from typing import Any, TypeVar

__all__ = ["CANCELLED", "exit_code_of", "is_terminated", "on_stop", "stoppable", "terminable"]

CANCELLED = 130
"""The exit code after Ctrl-C: 128, and the number of its signal."""

OTHERS = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
)  # Windows has no SIGHUP.
STOPPING = (signal.SIGINT, *OTHERS)
SLICE_SECONDS = 0.5

T = TypeVar("T")

_received: list[int] = []


def exit_code_of(code: int) -> int:
    """Return the exit code of a command: one that was cancelled names the signal that did it."""
    return 128 + _received[-1] if code == CANCELLED and _received else code


def is_terminated() -> bool:
    """Return whether SIGTERM or SIGHUP arrived: the whole command is to end, not only a run."""
    return any(number in OTHERS for number in _received)


@contextmanager
def terminable() -> Generator[None, None, None]:
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt, as Ctrl-C does."""
    _received.clear()
    with _handled(OTHERS, _interrupt):
        yield


@contextmanager
def on_stop(then: Callable[[int], object]) -> Generator[None, None, None]:
    """Call `then` with the number of each signal that asks the command to stop."""
    with _handled(STOPPING, then):
        yield


async def stoppable(work: Coroutine[Any, Any, T]) -> T:
    """Await work that a signal cancels."""
    import asyncio  # imported here, to keep --help light

    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    with on_stop(lambda _: loop.call_soon_threadsafe(task.cancel)):
        try:
            while not task.done():  # Slices let Python handle a signal that came before the wait.
                await asyncio.wait({task}, timeout=SLICE_SECONDS)
        finally:
            task.cancel()
        return await task


def _interrupt(_: int) -> None:
    raise KeyboardInterrupt


@contextmanager
def _handled(numbers: Iterable[int], then: Callable[[int], object]) -> Generator[None, None, None]:
    def handle(number: int, _: object) -> None:
        _received.append(number)
        then(number)

    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in numbers}
    # What was started in the background ignores Ctrl-C, what nohup started ignores SIGHUP.
    before = {number: old for number, old in before.items() if old is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, old in before.items():
            if signal.getsignal(number) is handle:  # A server that has ended ignores SIGTERM.
                signal.signal(number, old)
