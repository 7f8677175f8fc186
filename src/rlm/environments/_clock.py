"""The time a cell may take; it stands still while the cell waits for models or tools.

A cell decides what it asks and how often, so waiting is not free of charge: questions that the host
answers itself do not stop the clock, nor does a call before it has taken a moment, and behind it
all stands a ceiling in plain time.
"""

import asyncio
from collections.abc import Callable, Hashable

__all__ = ["WAITS_FOR", "CellClock"]

WAITS_FOR = frozenset({"llm", "rlm", "tool"})
"""Kinds of calls that stop the clock. All others are answered at once."""

_INTERRUPTS = 3
_GRACE_SECONDS = 1.0
_MOMENT_SECONDS = 0.01
"""The clock stands still when a call has taken this long. Calls that are refused, or answered
from a cache, take less: however many there are, side by side or in turn, they stop nothing."""
_CALL_SECONDS = 0.002
"""At most this is taken off for a call, so that a host that many of them keep busy, and which takes
a moment for each, is not kept busy for ever."""
_CEILING_FACTOR = 60
_LEAST_CEILING_SECONDS = 3_600.0


class CellClock:
    """Calls `interrupt` when the time is up, again after each grace, and at last `give_up`.

    Cells and calls come far more often than time runs out, so all that they do is to move a
    deadline. One timer of the event loop stays set; when it rings too early it is set again.
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
        self._ceiling: float | None = None
        self._waiting: dict[Hashable, float] = {}  # when each call began, the oldest first
        self._waits_count = False
        self._accounted_to = 0.0
        self._seconds = self._ceiling_seconds = 0.0
        self.interrupts_sent = 0
        self.ran_out_seconds = 0.0
        """The limit that ran out when the first interrupt was sent: the cell's, or the ceiling."""

    def start(self, seconds: float, *, waits_count: bool = False) -> None:
        """Let the clock run for one cell, until `stop`.

        Waits included, it gets sixty times its seconds, and at least an hour. `waits_count`: the
        clock does not stand still for calls.
        """
        now = self._loop.time()
        self.interrupts_sent = 0
        self._seconds = seconds
        self._ceiling_seconds = max(_LEAST_CEILING_SECONDS, _CEILING_FACTOR * seconds)
        self._waits_count = waits_count
        self._accounted_to = now
        self._ceiling = now + self._ceiling_seconds
        self._deadline = now + seconds
        self._ring_at(self._deadline)

    def begin_wait(self, call: Hashable) -> None:
        """A call is in flight from now on."""
        now = self._loop.time()
        self._account(now)
        self._waiting[call] = now

    def end_wait(self, call: Hashable) -> None:
        """It is not any more."""
        now = self._loop.time()
        self._account(now)
        self.charge(min(_CALL_SECONDS, now - self._waiting.pop(call)))

    def charge(self, seconds: float) -> None:
        """Take time off."""
        if self._deadline is not None:
            self._deadline -= 0.0 if self.interrupts_sent else seconds
            self._ring_at(self._deadline)

    def stop(self) -> None:
        """Stop until the next cell starts."""
        self._deadline = self._ceiling = None

    def close(self) -> None:
        """Stop for good."""
        self.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _account(self, now: float) -> None:
        """Put the deadline off by what the clock has stood still since the last time."""
        if self._deadline is not None and (stopped := self._standing_still_since()) is not None:
            since = max(self._accounted_to, stopped)
            if since < min(now, self._deadline):  # A time that was up stays up.
                self._deadline += now - since
        self._accounted_to = now

    def _standing_still_since(self) -> float | None:
        """When the oldest call had taken a moment; None if no call stops the clock."""
        if not self._waiting or self._waits_count or self.interrupts_sent:
            return None
        return next(iter(self._waiting.values())) + _MOMENT_SECONDS

    def _ring_at(self, moment: float) -> None:
        """Have the timer ring then, or sooner; one that is due must not be set anew."""
        if self._timer is not None:
            if self._timer.when() <= max(moment, self._loop.time()):
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(moment, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._deadline is None or self._ceiling is None:
            return
        now = self._loop.time()
        self._account(now)
        due = min(self._deadline, self._ceiling)
        if due > now:
            stopped = self._standing_still_since()
            self._ring_at(due if stopped is None or stopped > now else self._ceiling)
        elif self.interrupts_sent == _INTERRUPTS:
            self.stop()
            self._give_up(self.interrupts_sent)
        else:
            if not self.interrupts_sent:
                reached = due == self._ceiling
                self.ran_out_seconds = self._ceiling_seconds if reached else self._seconds
            self.interrupts_sent += 1
            self._deadline = self._ceiling = now + _GRACE_SECONDS
            self._ring_at(self._deadline)
            self._interrupt()
