"""The time a cell may take, and how it is stopped when that is over.

The time stands still while calls from the cell are in flight.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol

__all__ = ["CellClock", "CellStopper", "Interruptible", "Vitals", "until_had"]

_INTERRUPTS = 3
_GRACE_SECONDS = 1.0
_LOOKS = 4
"""How often a worker is looked at in each grace."""

_CEILING_SECONDS = 30.0
"""From the first interrupt to the end of a cell at the latest, whatever its worker does."""


class Vitals(NamedTuple):
    """A worker as its kernel sees it. `asleep`: it waits for something other than a processor."""

    cpu_seconds: float
    asleep: bool


class Interruptible(Protocol):
    """A worker that can be interrupted."""

    def interrupt(self) -> None:
        """Send an interrupt, if it still runs."""

    async def settle(self) -> None:
        """Wait until every interrupt that was sent has arrived."""

    async def look(self) -> Vitals | None:
        """How it fares now; None if that can't be known."""


async def until_had(
    worker: Interruptible, seconds: float, progress: Callable[[], int] = lambda: 0
) -> None:
    """Wait until a worker has had that much time: on a processor, or asleep by its own choice.

    Time in which it waited for a processor does not count: that others keep the machine busy is no
    fault of the worker's. It begins anew when `progress` has changed.
    """
    tick, had = seconds / _LOOKS, 0.0
    before, reached = await worker.look(), progress()
    while had < 0.999 * seconds:  # Sums of fractions may miss the whole by a little.
        await asyncio.sleep(tick)
        now = await worker.look()
        if now is None or now.asleep:
            had += tick
        elif before is not None:
            had += min(tick, now.cpu_seconds - before.cpu_seconds)
        before = now
        if reached != (reached := progress()):
            had = 0.0


class CellStopper:
    """Interrupts a cell until it ends; `give_up` is told how it did not.

    An interrupt counts once it has arrived and the worker has had the time to act on it; `progress`
    is any number that changes while its answer comes in. The ceiling holds whatever it does.
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
        """Whether the last cell was stopped for the time it took."""

    def interrupt(self) -> None:
        """Interrupt a cell that is not wanted any more, once more if that does nothing."""
        self._worker.interrupt()
        if self._task is None:
            self._task = self._loop.create_task(self._interrupt_again())

    def time_is_up(self) -> None:
        """Interrupt a cell as often as it takes, and give it up in the end."""
        self.stop()
        self.time_was_up = True
        self._ceiling = self._loop.call_later(_CEILING_SECONDS, self._reach_ceiling)
        self._task = self._loop.create_task(self._interrupt_until_it_ends())

    def stop(self) -> None:
        """The cell has ended."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._ceiling is not None:
            self._ceiling.cancel()
            self._ceiling = None

    async def _interrupt_again(self) -> None:
        """A signal that comes just before a call blocks goes unnoticed; a second one does not."""
        await self._grace()
        self._worker.interrupt()
        self._task = None

    async def _interrupt_until_it_ends(self) -> None:
        for _ in range(_INTERRUPTS):
            self._worker.interrupt()
            await self._grace()
        self._give_up(f"ignored {_INTERRUPTS} interrupts")

    async def _grace(self) -> None:
        await self._worker.settle()
        await until_had(self._worker, _GRACE_SECONDS, self._progress)

    def _reach_ceiling(self) -> None:
        self._give_up(f"did not stop within {_CEILING_SECONDS:g} s of its first interrupt")


class CellClock:
    """Calls `time_is_up` once it is.

    Cells and calls come far more often than time runs out, so starting, pausing and stopping only
    move a deadline. One timer of the event loop stays set; when it rings too early it is set again.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        time_is_up: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._time_is_up = time_is_up
        self._timer: asyncio.TimerHandle | None = None
        self._deadline: float | None = None
        self._left_seconds: float | None = None

    def start(self, seconds: float, *, paused: bool) -> None:
        """Let the clock run for one cell, until `stop`."""
        self._left_seconds = seconds
        if not paused:
            self.resume()

    def pause(self) -> None:
        """Stand still; once the time is up it is too late for that."""
        if self._deadline is not None:
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
        else:
            self._deadline = None
            self._time_is_up()
