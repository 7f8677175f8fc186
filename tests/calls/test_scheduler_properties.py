"""No slot is lost or given twice, whatever a crowd of requests does. In virtual time."""

import asyncio
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rlm.calls.rate_limits import RateLimit
from rlm.calls.scheduler import FIRST_WINDOW, Scheduler, Slot
from rlm.errors import ModelError
from tests.virtual_time import now, run

BUSY = ModelError("busy", status=429, retryable=True)


class Watched(Scheduler):
    """Records which request gets a slot, identified by its number of tokens, when it is given."""

    def __init__(self, width: int, **rate_limits: RateLimit) -> None:
        super().__init__(width, rate_limits, clock=asyncio.get_running_loop().time)
        self.granted: dict[object, list[int]] = {}

    def _take(self, queue: Any, now: float, tokens: int) -> Slot:
        self.granted.setdefault(queue, []).append(tokens)
        return super()._take(queue, now, tokens)


class Crowd:
    """Requests that come, wait, succeed, fail and are cancelled at random, and a count of them."""

    def __init__(self, seed: int, width: int) -> None:
        self.rng = random.Random(seed)
        self.width = width
        self.scheduler = Watched(width, slow=RateLimit(20, 100))
        self.held: dict[str, int] = {"a": 0, "b": 0, "c": 0}

    async def visit(self, number: int) -> None:
        rng = self.rng
        lane = rng.choice("abc")
        names = ("slow",) if rng.random() < 0.3 else ()
        deadline = now() + rng.choice([0.5, 5.0, 1_000.0])
        slot = self.scheduler.free_slot(
            lane, names=names, tokens=number
        ) or await self.scheduler.slot(lane, "m", names=names, tokens=number, deadline=deadline)
        self.held[lane] += 1
        self.check()
        try:
            await asyncio.sleep(rng.choice([0.0, 0.0, 0.3, 2.0]))
        except asyncio.CancelledError:
            self.held[lane] -= 1
            slot.abandoned()
            raise
        self.held[lane] -= 1
        self.end(slot, number)

    def end(self, slot: Slot, tokens: int) -> None:
        draw = self.rng.random()
        if draw < 0.6:
            slot.succeeded(tokens // 2)
        elif draw < 0.8:
            slot.failed(BUSY)
        elif draw < 0.9:
            seconds = self.rng.choice([0.1, 3.0])
            slot.failed(ModelError("wait", retryable=True, retry_after_seconds=seconds))
        else:
            slot.failed(ModelError("cut off", ambiguous=True, timed_out=True))

    def check(self) -> None:
        """A slot counts from when it is granted; its task may not have resumed yet."""
        lanes = {name: self.scheduler.lane(name) for name in self.held}
        assert sum(lane.active for lane in lanes.values()) <= self.width
        for name, lane in lanes.items():
            assert lane.active >= self.held[name]
            assert 1 <= lane.width <= self.width


@given(st.integers(0, 2**32), st.integers(1, 24), st.integers(1, 60))
def test_no_slot_is_lost_or_given_twice_whatever_is_cancelled(
    seed: int, width: int, visitors: int
) -> None:
    async def main() -> Crowd:
        crowd = Crowd(seed, width)
        tasks = []
        for number in range(visitors):
            tasks.append(asyncio.create_task(crowd.visit(number)))
            if crowd.rng.random() < 0.4:
                await asyncio.sleep(crowd.rng.choice([0.0, 0.0, 0.3, 1.0]))
            if crowd.rng.random() < 0.3:
                crowd.rng.choice(tasks).cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)  # a lost wake-up would hang
        for result in results:
            if isinstance(result, BaseException):
                assert isinstance(result, ModelError | asyncio.CancelledError), result
        assert not any(crowd.scheduler.lane(name).active for name in crowd.held)
        fresh = [await crowd.scheduler.slot("fresh", "m") for _ in range(min(width, FIRST_WINDOW))]
        assert len(fresh) == min(width, FIRST_WINDOW)  # every slot is free again
        return crowd

    crowd = run(main())
    for order in crowd.scheduler.granted.values():
        assert order == sorted(order)  # in the order they came
