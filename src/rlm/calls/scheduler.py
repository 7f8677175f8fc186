"""Which requests are on the wire, and which wait: places, rate limits, pauses, retries.

A place is held by a request while it is on the wire, never by a run or by a waiting retry, so
runs that wait for their children can't starve them. Each server has a lane that learns how many
requests it takes. Requests to one server are served in the order they came; servers take
turns.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence

from msgspec import Struct

from rlm.calls.pacing import Charge, Deadlines, Lane, RateGate, RateLimit
from rlm.errors import ModelError

__all__ = ["Place", "Scheduler"]

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 20.0
LONGEST_PAUSE_SECONDS = 600.0
"""A server that asks for more is asked again after this: it may have changed its mind."""


class Place(Struct, gc=False):
    """The right to be on the wire. It ends once, in one of three ways; every one frees it."""

    scheduler: "Scheduler"
    lane: Lane
    epoch: int
    charges: Sequence[tuple[RateGate, Charge]] = ()
    open: bool = True

    def succeeded(self, tokens: int | None = None) -> None:
        """A reply came. `tokens` is what it used, if the provider said so."""
        if self.open:
            self.lane.grow(self.epoch)
            if tokens is not None and self.charges:
                self._correct(tokens)
            self._end()

    def failed(self, error: ModelError) -> None:
        """An error came. The lane slows down if there was too much to do, or if it was told to."""
        if self.open:
            if error.overloaded:
                self.lane.shrink(self.epoch)
            if error.retryable and error.retry_after_seconds:
                self.scheduler._pause(self.lane, error)
            if not error.ambiguous:
                self._correct(0)
            self._end()

    def abandoned(self) -> None:
        """Nobody waits for the reply any more. That says nothing about the server."""
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
        self.future: asyncio.Future[Place] = asyncio.get_running_loop().create_future()
        self.model = model
        self.tokens = tokens
        self.deadline = deadline

    def expire(self) -> None:
        self.fail("no place was free in that time (max_concurrent_calls, rate limits)")

    def fail(self, why: str) -> None:
        if not self.future.done():
            self.future.set_exception(_no_time(self.model, why))


class _Queue:
    """Requests that go to one server under the same rate limits, in the order they came."""

    __slots__ = ("gates", "lane", "waiters")

    def __init__(self, lane: Lane, gates: tuple[RateGate, ...]) -> None:
        self.lane = lane
        self.gates = gates
        self.waiters: deque[_Waiter] = deque()

    def head(self, now: float) -> _Waiter | None:
        """Whose turn it is; those who gave up, and those who would wait in vain, are let go."""
        while self.waiters:
            waiter = self.waiters[0]
            for gate in self.gates:
                if gate.earliest(now, waiter.tokens) >= waiter.deadline:
                    waiter.fail(f"the rate limit of {gate.name} has no room in that time")
            if not waiter.future.done():
                return waiter
            self.waiters.popleft()
        return None

    def opens_at(self, now: float, tokens: int) -> float:
        """When the first of the queue may go, as far as time decides; else infinity."""
        if self.lane.active >= self.lane.width:
            return math.inf
        opens = self.lane.opens_at(now)
        for gate in self.gates:
            opens = max(opens, gate.ready_at(now, tokens))
        return opens


class Scheduler:
    """All places of one event loop: so many in all, and in each lane what its server takes."""

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
        self._turns: deque[_Queue] = deque()
        self._alarm: asyncio.TimerHandle | None = None
        self.deadlines = Deadlines(clock)

    def free_place(
        self, lane: Hashable, *, names: tuple[str, ...] = (), tokens: int = 0
    ) -> Place | None:
        """A place at once, if there is one and nobody waits for it; arguments as for `place`."""
        queue = self._queues.get((lane, names)) or self._new_queue(lane, names)
        own = queue.lane
        if queue.waiters or self._active >= self._most or own.active >= own.width:
            return None
        if not (queue.gates or own.paused_until):
            return self._take(queue, 0.0, tokens)
        now = self.clock()
        return self._take(queue, now, tokens) if queue.opens_at(now, tokens) <= now else None

    async def place(
        self,
        lane: Hashable,
        model: str,
        *,
        names: tuple[str, ...] = (),
        tokens: int = 0,
        deadline: float = math.inf,
    ) -> Place:
        """Wait for a place for exactly one request, at most until `deadline`.

        `names` are those its rate limits may be found under; `tokens` is the most it can use.
        """
        queue = self._queues.get((lane, names)) or self._new_queue(lane, names)
        waiter = _Waiter(model, tokens, deadline)
        self._line_up(queue, waiter)
        future = waiter.future
        try:
            return await future
        except BaseException:
            if future.done() and not future.cancelled() and future.exception() is None:
                future.result().abandoned()  # granted and cancelled in the same moment
            else:
                self._admit()  # somebody behind may fit where this one did not
            raise
        finally:
            self.deadlines.discard(waiter)

    def lane(self, key: Hashable) -> Lane:
        """What is known of a server; a new lane if nothing is."""
        known = self._lanes.get(key)
        if known is None:
            known = self._lanes[key] = Lane(self._most)
        return known

    def wait_before_retry(self, attempt: int, error: ModelError) -> float:
        """What the server asked for, else exponential with full jitter."""
        if error.retry_after_seconds is not None:
            return error.retry_after_seconds
        import random  # Few programs have to wait.

        return random.uniform(0, min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2**attempt))

    # -- waiting -----------------------------------------------------------------------------

    def _line_up(self, queue: _Queue, waiter: _Waiter) -> None:
        if waiter.deadline <= queue.lane.paused_until:
            raise _no_time(waiter.model, queue.lane.pause_reason)
        queue.waiters.append(waiter)
        if len(queue.waiters) == 1:  # else somebody is before it, and can't go either
            self._turns.append(queue)
            self._admit()
        if not waiter.future.done():
            self.deadlines.add(waiter)

    def _admit(self) -> None:
        """Let in everybody who may go now. Afterwards, nobody waits without a reason."""
        now = self.clock()
        next_opening = math.inf
        closed = 0
        while self._active < self._most and closed < len(self._turns):
            queue = self._turns[0]
            waiter = queue.head(now)
            if waiter is None:
                self._turns.popleft()
                continue
            self._turns.rotate(-1)
            opens_at = queue.opens_at(now, waiter.tokens)
            if opens_at > now:
                next_opening = min(next_opening, opens_at)
                closed += 1
                continue
            queue.waiters.popleft()
            waiter.future.set_result(self._take(queue, now, waiter.tokens))
            if not queue.waiters:
                self._turns.pop()
            closed = 0
        if self._alarm is not None or next_opening < math.inf:
            self._wake_at(next_opening, now)

    def _take(self, queue: _Queue, now: float, tokens: int) -> Place:
        lane = queue.lane
        charges = [(gate, gate.take(now, tokens)) for gate in queue.gates] if queue.gates else ()
        lane.active += 1
        self._active += 1
        return Place(self, lane, lane.epoch, charges)

    def _free(self, lane: Lane) -> None:
        lane.active -= 1
        self._active -= 1
        if self._turns:
            self._admit()

    def _pause(self, lane: Lane, error: ModelError) -> None:
        """Everybody in the lane waits as long as the server asked; whoever can't is told so."""
        now = self.clock()
        seconds = min(error.retry_after_seconds or 0.0, LONGEST_PAUSE_SECONDS)
        lane.pause(now + seconds, f"the server asked for a pause of {seconds:g} s ({error})")
        for queue in self._turns:
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
    """Nothing was sent, so nothing is billed; another try would have no more time."""
    return ModelError(f"{model}: no time is left to ask (call_seconds, max_seconds): {why}")
