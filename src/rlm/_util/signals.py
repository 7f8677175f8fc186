"""Listen for signals in an event loop, even where asyncio can't: on Windows."""

import asyncio
import signal
from collections.abc import Callable, Iterable

__all__ = ["listen", "stop_listening"]


def listen(numbers: Iterable[signal.Signals], then: Callable[[], object]) -> None:
    """Call `then` in the running event loop at each of these signals."""
    loop = asyncio.get_running_loop()
    for number in numbers:
        try:
            loop.add_signal_handler(number, then)
        except NotImplementedError:
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(then))


def stop_listening(numbers: Iterable[signal.Signals]) -> None:
    """Restore the default behaviour of these signals."""
    loop = asyncio.get_running_loop()
    for number in numbers:
        try:
            loop.remove_signal_handler(number)
        except NotImplementedError:
            usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, usual)
