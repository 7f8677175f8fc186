"""Limits the time of a cell, and stops it when the time is up.

The clock stops while the cell waits for models or tools. A cell decides what it asks and how often,
so it must not get unlimited time by asking: calls that the host answers itself do not stop the
clock, other calls stop it only after a moment, and there is a ceiling in real time.
"""

import asyncio
import math
from collections.abc import Callable, Hashable
from typing import Protocol

from msgspec import Struct, structs

from rlm.results import CellError, CellResult

__all__ = [
    "WAITS_FOR",
    "CellClock",
    "CellStopper",
    "Interruptible",
    "ProcessState",
    "timed_out",
    "until_had",
]

WAITS_FOR = frozenset({"data", "llm", "operator", "rlm", "tool"})
"""Kinds of calls that stop the clock. The host answers all others itself."""

_MOMENT_SECONDS = 0.01
"""The clock stops when a call has taken this long. Calls that are refused, or answered from a
cache, take less, so they never stop it, however many there are."""
_CALL_SECONDS = 0.002
"""Each call costs the cell at most this much time, so that a flood of calls can't keep the host
busy forever."""
_CEILING_FACTOR = 60
_MIN_CEILING_SECONDS = 3_600.0

_INTERRUPTS = 3
_GRACE_SECONDS = 1.0
_LOOKS = 4
"""How many times the state of a worker is read in each grace period."""

_STOPPING_SECONDS = 30.0
"""The longest time from the first interrupt to the end of a cell, whatever its worker does."""


class ProcessState(Struct, frozen=True, forbid_unknown_fields=True):
    """A worker as the kernel sees it. `asleep`: it waits for something other than a processor."""

    cpu_seconds: float
    asleep: bool


class Interruptible(Protocol):
    """A worker that can be interrupted."""

    def interrupt(self) -> None:
        """Send an interrupt, if the worker still runs."""

    async def signals_sent(self) -> None:
        """Wait until every signal has been delivered."""

    async def state(self) -> ProcessState | None:
        """Return the processor time and state of the worker, or None if they can't be known."""


async def until_had(
    worker: Interruptible, seconds: float, progress: Callable[[], int] = lambda: 0
) -> None:
    """Wait until a worker has had this much time, on a processor or asleep by choice.

    Time spent waiting for a processor does not count: a busy machine is not the worker's fault. The
    count starts again when `progress` changes.
    """
    tick, had = seconds / _LOOKS, 0.0
    before, reached = await worker.state(), progress()
    while had < 0.999 * seconds:  # Rounding errors add up.
        await asyncio.sleep(tick)
        now = await worker.state()
        if now is None or now.asleep:
            had += tick
        elif before is not None:
            had += min(tick, now.cpu_seconds - before.cpu_seconds)
        before = now
        if reached != (reached := progress()):
            had = 0.0


class CellStopper:
    """Interrupts a cell until it ends; calls `give_up` with the reason if it does not.

    An interrupt counts once it was delivered and the worker has had time to act on it. `progress`
    returns a number that changes while the answer arrives. The ceiling applies in any case.
    """

    def __init__(
        self, worker: Interruptible, progress: Callable[[], int], give_up: Callable[[str], None]
    ) -> None:
        self._worker = worker
        self._progress = progress
        self._give_up = give_up
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._ceiling: asyncio.TimerHandle | None = None
        self.time_was_up = False
        """Whether the last cell was stopped because its time was up."""

    def interrupt(self) -> None:
        """Interrupt a cell that is no longer wanted, and once more if it continues."""
        self._worker.interrupt()
        if self._task is None:
            self._task = self._loop.create_task(self._interrupt_again())

    def time_is_up(self) -> None:
        """Interrupt a cell several times, and give up if it does not end."""
        self.stop()
        self.time_was_up = True
        self._ceiling = self._loop.call_later(_STOPPING_SECONDS, self._reach_ceiling)
        self._task = self._loop.create_task(self._interrupt_until_it_ends())

    def stop(self) -> None:
        """Stop interrupting: the cell has ended."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._ceiling is not None:
            self._ceiling.cancel()
            self._ceiling = None

    async def _interrupt_again(self) -> None:
        """Interrupt again: a signal that arrives just before a call blocks goes unnoticed."""
        await self._grace()
        self._worker.interrupt()
        self._task = None

    async def _interrupt_until_it_ends(self) -> None:
        for _ in range(_INTERRUPTS):
            self._worker.interrupt()
            await self._grace()
        self._give_up(f"ignored {_INTERRUPTS} interrupts")

    async def _grace(self) -> None:
        await self._worker.signals_sent()
        await until_had(self._worker, _GRACE_SECONDS, self._progress)

    def _reach_ceiling(self) -> None:
        self._give_up(f"did not stop within {_STOPPING_SECONDS:g} s of the first interrupt")


_LATE_SECONDS = 0.02
"""How late a timer may fire. Each call takes a little time from its cell, and setting a timer
again for each would cost more than the rest of the clock."""


class CellClock:
    """The clock of a cell; calls `time_is_up` when its time is up.

    Cells and calls are far more frequent than timeouts, so they only move a deadline. One timer of
    the event loop stays set; when it fires too early, it is set again.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        time_is_up: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._time_is_up = time_is_up
        self._timer: asyncio.TimerHandle | None = None
        self._rings_by = math.inf  # The timer is early enough for every later moment.
        self._deadline: float | None = None
        self._ceiling: float | None = None
        self._waiting: dict[Hashable, float] = {}  # when each call began, the oldest first
        self._waits_count = False
        self._accounted_to = 0.0
        self._seconds = self._ceiling_seconds = 0.0
        self.ran_out_seconds = 0.0
        """The limit that ran out when the time was up: the cell's, or the ceiling."""

    def start(self, seconds: float, *, waits_count: bool = False) -> None:
        """Start the clock for one cell, until `stop`.

        Including waits, a cell gets sixty times its seconds, and at least an hour. With
        `waits_count`, calls do not stop the clock.
        """
        now = self._loop.time()
        self._seconds = seconds
        self._ceiling_seconds = max(_MIN_CEILING_SECONDS, _CEILING_FACTOR * seconds)
        self._waits_count = waits_count
        self._accounted_to = now
        self._ceiling = now + self._ceiling_seconds
        self._deadline = now + seconds
        self._ring_at(self._deadline)

    def begin_wait(self, call: Hashable) -> None:
        """Note that a call has begun."""
        self._waiting[call] = self._loop.time()

    def end_wait(self, call: Hashable) -> None:
        """Note that a call has ended."""
        if (began := self._waiting.get(call)) is not None:
            now = self._loop.time()
            self._account(now)
            del self._waiting[call]
            self.charge(min(_CALL_SECONDS, now - began))

    def charge(self, seconds: float) -> None:
        """Take time from the cell."""
        if self._deadline is not None:
            self._deadline -= seconds
            if self._deadline < self._rings_by:
                self._ring_at(self._deadline)

    def stop(self) -> None:
        """Stop until the next cell starts."""
        self._deadline = self._ceiling = None

    def close(self) -> None:
        """Stop for good."""
        self.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._rings_by = None, math.inf

    def _account(self, now: float) -> None:
        """Move the deadline by the time the clock was stopped since this was last called."""
        if self._deadline is not None and (stopped := self._standing_still_since()) is not None:
            since = max(self._accounted_to, stopped)
            if since < min(now, self._deadline):  # A deadline that has passed stays passed.
                self._deadline += now - since
        self._accounted_to = now

    def _standing_still_since(self) -> float | None:
        """Return when the oldest call stopped the clock, or will; None if no call does."""
        if not self._waiting or self._waits_count:
            return None
        return next(iter(self._waiting.values())) + _MOMENT_SECONDS

    def _ring_at(self, moment: float) -> None:
        """Make sure the timer fires by then, or hardly later; leave a timer that is due."""
        if self._timer is not None:
            if self._rings_by <= moment or self._rings_by <= self._loop.time():
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(moment, self._ring)
        self._rings_by = moment - _LATE_SECONDS

    def _ring(self) -> None:
        self._timer, self._rings_by = None, math.inf
        if self._deadline is None or self._ceiling is None:
            return
        now = self._loop.time()
        self._account(now)
        due = min(self._deadline, self._ceiling)
        if due > now:
            stopped = self._standing_still_since()
            self._ring_at(due if stopped is None or stopped > now else self._ceiling)
        else:
            reached = due == self._ceiling
            self.ran_out_seconds = self._ceiling_seconds if reached else self._seconds
            self.stop()
            self._time_is_up()


def timed_out(result: CellResult, timeout_seconds: float) -> CellResult:
    """Return the result of a cell that was stopped, with the timeout as its error."""
    message = f"cell stopped after {timeout_seconds:g} s"
    where = result.error.traceback if result.error is not None else ""
    return structs.replace(result, error=CellError("TimeoutError", message, where))
