"""Stragglers are asked a second time: the first reply wins, and both are paid. In virtual time."""

import asyncio
from typing import Any

import pytest

from rlm.calls.calls import Calls, Route
from rlm.calls.rate_limits import RateLimit
from rlm.calls.scheduler import Scheduler
from rlm.calls.scope import Scope, Tree
from rlm.errors import ModelError
from rlm.events import CallEnded
from rlm.limits import Budget, Limits
from rlm.messages import Message, ModelInfo, Reply, ReplyKey, Request, Usage
from rlm.records.recorders.in_process import MemoryRecorder
from tests.stores import MemoryStore
from tests.virtual_time import now, run

WORST = 5 + 16 + 100


class Provider:
    """Answers the nth request after `delays[n]` seconds, or fails with the error given there."""

    def __init__(self, *delays: float | tuple[float, BaseException]) -> None:
        self.delays = delays
        self.requests: list[tuple[float, Request]] = []
        self.cancelled = 0

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        number = len(self.requests)
        self.requests.append((now(), request))
        plan = self.delays[number]
        delay, error = plan if isinstance(plan, tuple) else (plan, None)
        try:
            await asyncio.sleep(delay)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if error is not None:
            raise error
        return Reply(text=f"reply {number}", usage=Usage(10, number + 1))

    def stream(self, request: Request, *, timeout_seconds: float) -> Any:
        raise NotImplementedError

    def info(self, model: str) -> ModelInfo:
        return ModelInfo()

    async def close(self) -> None:
        pass


class House:
    def __init__(
        self,
        provider: Provider,
        *,
        after: float | None = 10.0,
        limits: Limits | None = None,
        width: int = 64,
        store: MemoryStore | None = None,
    ) -> None:
        clock = asyncio.get_running_loop().time
        self.scheduler = Scheduler(width, {"m": RateLimit(100)}, clock=clock)
        route = Route(provider, "wire", ModelInfo(), "the provider", ("m",))
        self.calls = Calls(lambda _: route, self.scheduler, hedge_after_seconds=after)
        self.recorder = MemoryRecorder()
        self.budget = Budget(limits or Limits(max_tokens=10_000))
        self.scope = Scope(
            run_id="run", budget=self.budget, recorders=(self.recorder,), tree=Tree(16, store)
        )

    async def call(self) -> Reply:
        return await self.calls.counted_call(self.scope, request())

    def ended(self) -> CallEnded:
        return next(e for e in self.recorder.events if isinstance(e, CallEnded))

    def is_idle(self) -> bool:
        budget = self.budget
        return (
            budget.in_flight == budget.reserved.tokens == self.scheduler.lane("the provider").active
        ) and budget.in_flight == 0


def request() -> Request:
    return Request(model="m", messages=(Message("user", "hello"),), max_output_tokens=100)


def test_a_fast_reply_is_requested_only_once() -> None:
    async def main() -> None:
        provider = Provider(9.0)
        house = House(provider)
        assert (await house.call()).text == "reply 0"
        assert (len(provider.requests), house.budget.used.tokens) == (1, 11)

    run(main())


def test_a_straggler_that_loses_the_race_counts_as_billed() -> None:
    async def main() -> None:
        provider = Provider(500.0, 5.0)
        store = MemoryStore()
        house = House(provider, store=store)
        assert (await house.call()).text == "reply 1"
        assert [at for at, _ in provider.requests] == [0.0, 10.0]
        assert provider.requests[0][1] == provider.requests[1][1]
        assert (now(), provider.cancelled) == (15.0, 1)
        assert house.budget.used.tokens == WORST + 12
        assert house.ended().usage == Usage(10, 2, requests=1)
        assert [reply.text for reply in store.replies.values()] == ["reply 1"]
        assert house.is_idle()

    run(main())


def test_the_first_request_may_still_win_the_race() -> None:
    async def main() -> None:
        provider = Provider(12.0, 500.0)
        house = House(provider)
        assert (await house.call()).text == "reply 0"
        assert (now(), provider.cancelled) == (12.0, 1)
        assert house.budget.used.tokens == 11 + WORST
        assert house.is_idle()

    run(main())


def test_two_replies_that_arrive_together_are_both_billed_as_reported() -> None:
    async def main() -> None:
        house = House(Provider(15.0, 5.0))
        await house.call()
        assert house.budget.used.tokens == 11 + 12
        assert house.ended().usage == Usage(20, 3, requests=2)
        assert house.is_idle()

    run(main())


def test_a_second_request_that_does_not_fit_the_budget_is_not_sent() -> None:
    async def main() -> None:
        provider = Provider(50.0)
        house = House(provider, limits=Limits(max_tokens=2 * WORST - 1))
        assert (await house.call()).text == "reply 0"
        assert (len(provider.requests), house.budget.used.tokens) == (1, 11)

    run(main())


def test_a_second_request_is_sent_only_if_a_slot_is_free() -> None:
    async def main() -> None:
        provider = Provider(50.0)
        house = House(provider, width=1)
        assert (await house.call()).text == "reply 0"
        assert (len(provider.requests), house.budget.used.tokens) == (1, 11)
        assert house.is_idle()

    run(main())


def test_a_straggler_is_checked_again_until_a_slot_is_free() -> None:
    async def main() -> None:
        provider = Provider(500.0, 25.0, 1.0, 1.0)
        house = House(provider, width=2)
        replies = await asyncio.gather(house.call(), house.call())
        assert [reply.text for reply in replies] == ["reply 2", "reply 1"]
        assert [at for at, _ in provider.requests] == pytest.approx([0.0, 0.0, 30.0])
        assert house.is_idle()

    run(main())


def test_time_in_the_queue_does_not_make_a_straggler() -> None:
    async def main() -> None:
        provider = Provider(9.0, 9.0, 9.0)
        house = House(provider, width=1)
        await asyncio.gather(house.call(), house.call(), house.call())
        assert [at for at, _ in provider.requests] == pytest.approx([0.0, 9.0, 18.0])

    run(main())


def test_if_one_of_two_requests_fails_the_other_is_awaited() -> None:
    async def main(first: Any, second: Any, text: str, used: int) -> None:
        house = House(Provider(first, second))
        assert (await house.call()).text == text
        assert house.budget.used.tokens == used
        assert house.ended().retries == 0
        assert house.is_idle()

    refused, lost = ModelError("no"), ModelError("lost", ambiguous=True)
    run(main((12.0, refused), 5.0, "reply 1", 12))
    run(main((12.0, lost), 5.0, "reply 1", WORST + 12))
    run(main(20.0, (1.0, refused), "reply 0", 11))
    run(main(20.0, (1.0, lost), "reply 0", 11 + WORST))


def test_if_both_requests_fail_the_first_failure_is_raised_and_each_is_billed() -> None:
    async def main() -> None:
        lost = ModelError("lost", ambiguous=True)
        house = House(Provider((15.0, ModelError("no")), (1.0, lost)))
        with pytest.raises(ModelError, match=r"^no$"):
            await house.call()
        assert house.budget.used.tokens == WORST
        assert house.is_idle()

    run(main())


def test_a_retry_after_a_race_may_race_again() -> None:
    async def main() -> None:
        again = ModelError("again", retryable=True, retry_after_seconds=1.0)
        provider = Provider((15.0, again), (9.0, again), 500.0, 5.0)
        house = House(provider)
        assert (await house.call()).text == "reply 3"
        assert [at for at, _ in provider.requests] == pytest.approx([0.0, 10.0, 20.0, 30.0])
        assert house.is_idle()

    run(main())


@pytest.mark.parametrize("moment", [5.0, 10.0, 12.0, 15.0])
def test_cancelling_a_call_cancels_all_its_requests_and_counts_them_as_billed(
    moment: float,
) -> None:
    async def main() -> None:
        provider = Provider(500.0, 500.0)
        house = House(provider)
        task = asyncio.create_task(house.call())
        await asyncio.sleep(moment)
        sent = len(provider.requests)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert provider.cancelled == len(provider.requests) == sent
        assert house.budget.used.tokens == sent * WORST
        assert house.is_idle()

    run(main())


def test_requests_of_the_engine_itself_are_never_hedged() -> None:
    async def main() -> None:
        provider = Provider(500.0)
        house = House(provider)
        await house.calls.run_request(house.scope, request(), purpose="step")
        assert len(provider.requests) == 1

    run(main())


def test_both_requests_are_billed_if_the_store_fails() -> None:
    class Broken(MemoryStore):
        async def put(self, key: ReplyKey, reply: Reply) -> None:
            raise OSError("disk full")

    async def main() -> None:
        house = House(Provider(15.0, 5.0), store=Broken())
        with pytest.raises(OSError, match="disk full"):
            await house.call()
        assert house.budget.used.tokens == 2 * WORST
        assert house.is_idle()

    run(main())
