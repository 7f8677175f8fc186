"""The time a cell may take; it stands still while calls from the cell are in flight."""

import asyncio
import contextlib
from collections.abc import Callable, Generator

__all__ = ["CellClock"]

_INTERRUPTS = 3
_GRACE_SECONDS = 1.0


class CellClock:
    """Calls `interrupt` when the time is up, again after each grace, and at last `give_up`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        interrupt: Callable[[], None],
        give_up: Callable[[int], None],
    ) -> None:
        self._loop = loop
        self._interrupt = interrupt
        self._give_up = give_up
        self._timer: asyncio.TimerHandle | None = None
        self._left_seconds: float | None = None
        self.interrupts_sent = 0

    @contextlib.contextmanager
    def running(self, seconds: float, *, paused: bool) -> Generator[None, None, None]:
        """Let the clock run for one cell."""
        self.interrupts_sent = 0
        self._left_seconds = seconds
        if not paused:
            self.resume()
        try:
            yield
        finally:
            self.stop()

    def pause(self) -> None:
        """Stand still; the interrupts that follow the end of the time can't be paused."""
        if self._timer is not None and not self.interrupts_sent:
            self._left_seconds = max(0.0, self._timer.when() - self._loop.time())
            self._timer.cancel()
            self._timer = None

    def charge(self, seconds: float) -> None:
        """Take time off a clock that stands still."""
        if self._left_seconds is not None and self._timer is None:
            self._left_seconds = max(0.0, self._left_seconds - seconds)

    def resume(self) -> None:
        """Go on with what is left, if a cell is running."""
        if self._left_seconds is not None and self._timer is None:
            self._timer = self._loop.call_later(self._left_seconds, self._ring)

    def stop(self) -> None:
        """Stop for good."""
        self._left_seconds = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        if self.interrupts_sent == _INTERRUPTS:
            self._timer = None
            self._give_up(self.interrupts_sent)
            return
        self.interrupts_sent += 1
        self._timer = self._loop.call_later(_GRACE_SECONDS, self._ring)
        self._interrupt()
