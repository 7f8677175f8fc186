"""The time a cell may take; it stands still while calls from the cell are in flight."""

import asyncio
from collections.abc import Callable

__all__ = ["CellClock"]

_INTERRUPTS = 3
_GRACE_SECONDS = 1.0


class CellClock:
    """Calls `interrupt` when the time is up, again after each grace, and at last `give_up`.

    Cells and calls come far more often than time runs out, so starting, pausing and stopping only
    move a deadline. One timer of the event loop stays set; when it rings too early it is set again.
    """

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
        self._deadline: float | None = None
        self._left_seconds: float | None = None
        self.interrupts_sent = 0

    def start(self, seconds: float, *, paused: bool) -> None:
        """Let the clock run for one cell, until `stop`."""
        self.interrupts_sent = 0
        self._left_seconds = seconds
        if not paused:
            self.resume()

    def pause(self) -> None:
        """Stand still; the interrupts that follow the end of the time can't be paused."""
        if self._deadline is not None and not self.interrupts_sent:
            self._left_seconds = max(0.0, self._deadline - self._loop.time())
            self._deadline = None

    def charge(self, seconds: float) -> None:
        """Take time off a clock that stands still."""
        if self._left_seconds is not None:
            self._left_seconds = max(0.0, self._left_seconds - seconds)

    def resume(self) -> None:
        """Go on with what is left, if a cell is running."""
        if self._left_seconds is not None:
            self._ring_at(self._loop.time() + self._left_seconds)
            self._left_seconds = None

    def stop(self) -> None:
        """Stop until the next cell starts."""
        self._deadline = self._left_seconds = None

    def close(self) -> None:
        """Stop for good."""
        self.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring_at(self, deadline: float) -> None:
        self._deadline = deadline
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._deadline is None:
            return
        if self._deadline > self._loop.time():
            self._ring_at(self._deadline)
        elif self.interrupts_sent == _INTERRUPTS:
            self._deadline = None
            self._give_up(self.interrupts_sent)
        else:
            self.interrupts_sent += 1
            self._ring_at(self._loop.time() + _GRACE_SECONDS)
            self._interrupt()
