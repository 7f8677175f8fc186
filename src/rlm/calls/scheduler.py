"""Decide which requests are sent and which wait: slots, rate limits, pauses, retries.

A request holds a slot while it is on the wire; a run or a waiting retry never does, so runs that
wait for their children can't starve them. Requests to one server are served in order of arrival,
and servers alternate.

Each server has a lane that learns how many concurrent requests it takes: the number grows while it
is used up and requests succeed, and halves when the server says that it is overloaded. How long
replies take says nothing, because outputs differ in length.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from rlm.calls.rate_limits import Charge, RateGate, RateLimit
from rlm.errors import ModelError

__all__ = ["Deadlines", "Lane", "Scheduler", "Slot", "TimeLimit"]

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 20.0
LONGEST_PAUSE_SECONDS = 600.0
"""A server that asks for a longer pause is asked again after this time."""

FIRST_WINDOW = 64
"""Most servers take this many; others refuse some requests, which are sent again later."""


class Lane:
    """One server: how many requests it may have at once, how many it has, and any pause.

    An epoch lasts from one halving to the next. Only requests sent in the current epoch count, so
    a hundred refusals of requests sent together halve the number once.
    """

    __slots__ = (
        *("_most", "_searching", "_window", "active", "epoch"),
        *("pause_reason", "paused_until", "width"),
    )

    def __init__(self, most: int) -> None:
        self._most = most
        self._window: float = min(FIRST_WINDOW, most)
        self._searching = True
        self.width = int(self._window)
        self.epoch = 0
        self.active = 0
        self.paused_until = 0.0
        self.pause_reason = ""

    def grow(self, epoch: int) -> None:
        """Grow by one after a success; after the first halving, by one per round of successes."""
        if self.active >= self.width and epoch == self.epoch:
            more = 1.0 if self._searching else 1.0 / self._window
            self._set_window(min(self._most, self._window + more))

    def shrink(self, epoch: int) -> None:
        """Halve the number after a refusal, once for all requests sent before."""
        if epoch == self.epoch:
            self._set_window(max(1.0, self._window / 2))
            self._searching = False
            self.epoch += 1

    def pause(self, until: float, reason: str) -> None:
        """Admit no request before `until`. A shorter pause does not end a longer one."""
        if until > self.paused_until:
            self.paused_until = until
            self.pause_reason = reason

    def opens_at(self, now: float) -> float:
        """When the next request may be sent, unless the lane is full."""
        if self.paused_until <= now:
            self.paused_until = 0.0
        return max(now, self.paused_until)

    def _set_window(self, window: float) -> None:
        self._window = window
        self.width = int(window)


class Deadline(Protocol):
    """Something that expires at a given time unless it is discarded before."""

    deadline: float

    def expire(self) -> None: ...


class Deadlines:
    """A timer that expires whatever is pending at its deadline. Belongs to one event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pending: dict[Deadline, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._fires_at = math.inf

    def add(self, one: Deadline) -> None:
        self._pending[one] = None
        if one.deadline < self._fires_at:
            self._fire_at(one.deadline)

    def discard(self, one: Deadline) -> None:
        self._pending.pop(one, None)

    def _fire_at(self, moment: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._fires_at = moment
        seconds = max(0.0, moment - self._clock())
        self._timer = asyncio.get_running_loop().call_later(seconds, self._fire)

    def _fire(self) -> None:
        now = self._clock()
        self._timer, self._fires_at = None, math.inf
        late = [one for one in self._pending if one.deadline <= now]
        for one in late:
            del self._pending[one]
        if self._pending:
            first = min(one.deadline for one in self._pending)
            if first < math.inf:
                self._fire_at(first)
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
        # If other code also cancelled the task, the cancellation is not ours.
        is_ours = self._task.uncancel() <= self._cancelling
        if is_ours and kind is asyncio.CancelledError:
            raise TimeoutError from error


class Slot(Struct, gc=False):
    """Permission to have one request on the wire. It ends once, in one of three ways."""

    scheduler: "Scheduler"
    lane: Lane
    epoch: int
    charges: Sequence[tuple[RateGate, Charge]] = ()
    open: bool = True

    def succeeded(self, tokens: int | None = None) -> None:
        """Report a reply. `tokens` is what it used, if the provider reported it."""
        if self.open:
            self.lane.grow(self.epoch)
            if tokens is not None and self.charges:
                self._correct(tokens)
            self._end()

    def failed(self, error: ModelError) -> None:
        """Report an error. The lane slows down if the server is overloaded or asks for it."""
        if self.open:
            if error.overloaded:
                self.lane.shrink(self.epoch)
            if error.retryable and error.retry_after_seconds:
                self.scheduler._pause(self.lane, error)
            if not error.ambiguous:
                self._correct(0)
            self._end()

    def abandoned(self) -> None:
        """Report that the reply is no longer wanted, which says nothing about the server."""
        if self.open:
            self._end()

    def _correct(self, tokens: int) -> None:
        for gate, charge in self.charges:
            gate.correct(charge, tokens)

    def _end(self) -> None:
        self.open = False
        self.scheduler._free(self.lane)


class _Waiter:
    __slots__ = ("deadline", "future", "model", "tokens")

    def __init__(self, model: str, tokens: int, deadline: float) -> None:
        self.future: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
        self.model = model
        self.tokens = tokens
        self.deadline = deadline

    def expire(self) -> None:
        self.fail("no slot was free in that time (max_concurrent_calls, rate limits)")

    def fail(self, why: str) -> None:
        if not self.future.done():
            self.future.set_exception(_no_time(self.model, why))


class _Queue:
    """Requests that go to one server under the same rate limits, in order of arrival."""

    __slots__ = ("gates", "lane", "waiters")

    def __init__(self, lane: Lane, gates: tuple[RateGate, ...]) -> None:
        self.lane = lane
        self.gates = gates
        self.waiters: deque[_Waiter] = deque()

    def head(self, now: float) -> _Waiter | None:
        """Return the next waiter; remove those that gave up or would wait in vain."""
        while self.waiters:
            waiter = self.waiters[0]
            for gate in self.gates:
                if gate.earliest(now, waiter.tokens) >= waiter.deadline:
                    waiter.fail(f"the rate limit of {gate.name} left no room in that time")
            if not waiter.future.done():
                return waiter
            self.waiters.popleft()
        return None

    def opens_at(self, now: float, tokens: int) -> float:
        """When the first request may be sent; infinity if that depends on a free slot."""
        if self.lane.active >= self.lane.width:
            return math.inf
        opens = self.lane.opens_at(now)
        for gate in self.gates:
            opens = max(opens, gate.ready_at(now, tokens))
        return opens


class Scheduler:
    """All slots of one event loop: `max_concurrent_calls`, and per lane what the server takes."""

    def __init__(
        self,
        max_concurrent_calls: int,
        rate_limits: Mapping[str, RateLimit] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.clock = clock
        self._most = max_concurrent_calls
        self._active = 0
        self._lanes: dict[Hashable, Lane] = {}
        self._gates = {name: RateGate(name, limit) for name, limit in (rate_limits or {}).items()}
        self._queues: dict[tuple[Hashable, tuple[str, ...]], _Queue] = {}
        self._waiting: deque[_Queue] = deque()
        self._alarm: asyncio.TimerHandle | None = None
        self.deadlines = Deadlines(clock)

    def free_slot(
        self, lane: Hashable, *, names: tuple[str, ...] = (), tokens: int = 0
    ) -> Slot | None:
        """Return a slot if one is free and no request waits for it; arguments as for `slot`."""
        queue = self._queues.get((lane, names)) or self._new_queue(lane, names)
        own = queue.lane
        if queue.waiters or self._active >= self._most or own.active >= own.width:
            return None
        if not (queue.gates or own.paused_until):
            return self._take(queue, 0.0, tokens)
        now = self.clock()
        return self._take(queue, now, tokens) if queue.opens_at(now, tokens) <= now else None

    async def slot(
        self,
        lane: Hashable,
        model: str,
        *,
        names: tuple[str, ...] = (),
        tokens: int = 0,
        deadline: float = math.inf,
    ) -> Slot:
        """Wait for a slot for one request, at most until `deadline`.

        Its rate limits are found under `names`; `tokens` is the most it can use.
        """
        queue = self._queues.get((lane, names)) or self._new_queue(lane, names)
        waiter = _Waiter(model, tokens, deadline)
        self._enqueue(queue, waiter)
        future = waiter.future
        try:
            return await future
        except BaseException:
            if future.done() and not future.cancelled() and future.exception() is None:
                future.result().abandoned()  # granted and cancelled at the same moment
            else:
                self._admit()  # a request behind may fit where this one did not
            raise
        finally:
            self.deadlines.discard(waiter)

    def lane(self, key: Hashable) -> Lane:
        """Return the lane of a server; make one if it is new."""
        known = self._lanes.get(key)
        if known is None:
            known = self._lanes[key] = Lane(self._most)
        return known

    def wait_before_retry(self, attempt: int, error: ModelError) -> float:
        """Return the pause the server asked for, else exponential backoff with full jitter."""
        if error.retry_after_seconds is not None:
            return error.retry_after_seconds
        import random  # Imported late: few programs have to wait.

        return random.uniform(0, min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2**attempt))

    # -- waiting -----------------------------------------------------------------------------

    def _enqueue(self, queue: _Queue, waiter: _Waiter) -> None:
        if waiter.deadline <= queue.lane.paused_until:
            raise _no_time(waiter.model, queue.lane.pause_reason)
        queue.waiters.append(waiter)
        if len(queue.waiters) == 1:  # else the one before it can't go either
            self._waiting.append(queue)
            self._admit()
        if not waiter.future.done():
            self.deadlines.add(waiter)

    def _admit(self) -> None:
        """Grant slots to all requests that may go now."""
        now = self.clock()
        next_opening = math.inf
        closed = 0
        while self._active < self._most and closed < len(self._waiting):
            queue = self._waiting[0]
            waiter = queue.head(now)
            if waiter is None:
                self._waiting.popleft()
                continue
            self._waiting.rotate(-1)
            opens_at = queue.opens_at(now, waiter.tokens)
            if opens_at > now:
                next_opening = min(next_opening, opens_at)
                closed += 1
                continue
            queue.waiters.popleft()
            waiter.future.set_result(self._take(queue, now, waiter.tokens))
            if not queue.waiters:
                self._waiting.pop()
            closed = 0
        if self._alarm is not None or next_opening < math.inf:
            self._wake_at(next_opening, now)

    def _take(self, queue: _Queue, now: float, tokens: int) -> Slot:
        lane = queue.lane
        charges = [(gate, gate.take(now, tokens)) for gate in queue.gates] if queue.gates else ()
        lane.active += 1
        self._active += 1
        return Slot(self, lane, lane.epoch, charges)

    def _free(self, lane: Lane) -> None:
        lane.active -= 1
        self._active -= 1
        if self._waiting:
            self._admit()

    def _pause(self, lane: Lane, error: ModelError) -> None:
        """Pause the lane as long as the server asked; fail the requests that can't wait."""
        now = self.clock()
        seconds = min(error.retry_after_seconds or 0.0, LONGEST_PAUSE_SECONDS)
        lane.pause(now + seconds, f"the server asked for a {seconds:g} s pause ({error})")
        for queue in self._waiting:
            for waiter in queue.waiters if queue.lane is lane else ():
                if waiter.deadline <= lane.paused_until:
                    waiter.fail(lane.pause_reason)

    def _wake_at(self, moment: float, now: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if moment < math.inf:
            self._alarm = asyncio.get_running_loop().call_later(moment - now, self._admit)

    def _new_queue(self, lane: Hashable, names: tuple[str, ...]) -> _Queue:
        gates = tuple(self._gates[name] for name in names if name in self._gates)
        key = lane, names if gates else ()
        queue = self._queues.get(key) or _Queue(self.lane(lane), gates)
        self._queues[key] = self._queues[lane, names] = queue
        return queue


def _no_time(model: str, why: str) -> ModelError:
    """The error for a request that was not sent, so nothing is billed."""
    return ModelError(
        f"{model}: no time left to send the request (call_seconds, max_seconds): {why}"
    )
