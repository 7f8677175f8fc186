"""One timer for many deadlines. Most are never reached, so they should cost next to nothing."""

import asyncio
import math
from collections.abc import Callable
from typing import Protocol

__all__ = ["Deadline", "Deadlines", "TimeLimit"]


class Deadline(Protocol):
    """Something that ends at a moment, unless it was over before."""

    deadline: float

    def expire(self) -> None: ...


class Deadlines:
    """Expires whatever is still here when its time has come. Belongs to one event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pending: dict[Deadline, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = math.inf

    def add(self, one: Deadline) -> None:
        self._pending[one] = None
        if one.deadline < self._rings_at:
            self._ring_at(one.deadline)

    def discard(self, one: Deadline) -> None:
        self._pending.pop(one, None)

    def _ring_at(self, moment: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = moment
        seconds = max(0.0, moment - self._clock())
        self._timer = asyncio.get_running_loop().call_later(seconds, self._ring)

    def _ring(self) -> None:
        now = self._clock()
        self._timer, self._rings_at = None, math.inf
        late = [one for one in self._pending if one.deadline <= now]
        for one in late:
            del self._pending[one]
        if self._pending:
            first = min(one.deadline for one in self._pending)
            if first < math.inf:
                self._ring_at(first)
        for one in late:
            one.expire()


class TimeLimit:
    """`with TimeLimit(deadlines, moment):` is `asyncio.timeout_at(moment)` on the shared timer."""

    __slots__ = ("_cancelling", "_deadlines", "_expired", "_task", "deadline")

    def __init__(self, deadlines: Deadlines, deadline: float) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.deadline = deadline
        self._deadlines = deadlines
        self._task = task
        self._cancelling = task.cancelling()
        self._expired = False

    def expire(self) -> None:
        self._expired = True
        self._task.cancel()

    def __enter__(self) -> None:
        self._deadlines.add(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        self._deadlines.discard(self)
        if not self._expired:
            return
        # If others cancelled the task as well, the cancellation is theirs.
        is_ours = self._task.uncancel() <= self._cancelling
        if is_ours and kind is asyncio.CancelledError:
            raise TimeoutError from error
