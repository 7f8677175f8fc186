"""Slots on the wire: which request gets one, which waits, which is refused. In virtual time."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from rlm.api import RLM
from rlm.calls.rate_limits import RateLimit
from rlm.calls.scheduler import FIRST_WINDOW, LONGEST_PAUSE_SECONDS, Scheduler, Slot
from rlm.errors import ConfigError, ModelError
from rlm.testing.scripted import ScriptedClient
from tests.virtual_time import now, run

BUSY = ModelError("busy", status=429, retryable=True)


def told_to_wait(seconds: float) -> ModelError:
    return ModelError("slow down", status=429, retryable=True, retry_after_seconds=seconds)


def new_scheduler(width: int = 64, **rate_limits: RateLimit) -> Scheduler:
    return Scheduler(width, rate_limits, clock=asyncio.get_running_loop().time)


async def has_slot(waiting: Awaitable[Slot]) -> bool:
    """Let all tasks run as far as they can; return whether this one has its slot."""
    for _ in range(5):
        await asyncio.sleep(0)
    return asyncio.ensure_future(waiting).done()


# -- width and order ------------------------------------------------------------------------------


def test_a_lane_starts_narrow_and_widens_while_requests_succeed() -> None:
    async def main() -> list[int]:
        scheduler = new_scheduler()
        lane = scheduler.lane("a")
        flying = 0
        seen: list[int] = []

        async def one() -> None:
            nonlocal flying
            slot = await scheduler.slot("a", "m")
            flying += 1
            seen.append(flying)
            await asyncio.sleep(1)
            flying -= 1
            slot.succeeded()

        await asyncio.gather(*(one() for _ in range(300)))
        assert lane.active == 0
        return seen

    seen = run(main())
    assert seen[:FIRST_WINDOW] == list(range(1, FIRST_WINDOW + 1))
    assert max(seen) == 64


@pytest.mark.parametrize("status", [408, 429, 503, 504, 529, None])
def test_an_overloaded_server_halves_its_lane(status: int | None) -> None:
    async def main() -> int:
        scheduler = new_scheduler()
        slots = [await scheduler.slot("a", "m") for _ in range(FIRST_WINDOW)]
        error = ModelError("no", status=status, timed_out=status is None)
        for slot in slots:
            slot.failed(error)
        return scheduler.lane("a").width

    assert run(main()) == FIRST_WINDOW // 2


@pytest.mark.parametrize("status", [400, 401, 404, 409, 500, 502])
def test_other_errors_do_not_change_the_width_of_a_lane(status: int) -> None:
    async def main() -> int:
        scheduler = new_scheduler()
        (await scheduler.slot("a", "m")).failed(ModelError("no", status=status))
        return scheduler.lane("a").width

    assert run(main()) == FIRST_WINDOW


def test_slow_replies_do_not_change_the_width_of_a_lane() -> None:
    async def main() -> int:
        scheduler = new_scheduler()
        for _ in range(3):
            slot = await scheduler.slot("a", "m")
            await asyncio.sleep(500)
            slot.succeeded()
        return scheduler.lane("a").width

    assert run(main()) == FIRST_WINDOW


def test_slots_are_given_in_order_of_arrival() -> None:
    async def main() -> list[int]:
        scheduler = new_scheduler(1)
        order: list[int] = []

        async def one(number: int) -> None:
            slot = await scheduler.slot("a", "m")
            order.append(number)
            await asyncio.sleep(0)
            slot.succeeded()

        await asyncio.gather(*(one(number) for number in range(50)))
        return order

    assert run(main()) == list(range(50))


def test_lanes_take_turns_so_a_long_queue_does_not_starve_a_short_one() -> None:
    async def main() -> list[str]:
        scheduler = new_scheduler(1)
        first = await scheduler.slot("a", "m")
        order: list[str] = []

        async def one(lane: str) -> None:
            slot = await scheduler.slot(lane, "m")
            order.append(lane)
            slot.succeeded()

        tasks = [asyncio.create_task(one("a")) for _ in range(100)]
        await asyncio.sleep(0)
        tasks += [asyncio.create_task(one("b")) for _ in range(2)]
        await asyncio.sleep(0)
        first.succeeded()
        await asyncio.gather(*tasks)
        return order

    order = run(main())
    assert order[:5] == ["a", "b", "a", "b", "a"]
    assert len(order) == 102


def test_a_full_lane_does_not_take_slots_from_other_lanes() -> None:
    async def main() -> None:
        scheduler = new_scheduler(2 * FIRST_WINDOW)
        for _ in range(FIRST_WINDOW):
            await scheduler.slot("a", "m")
        waiting = asyncio.create_task(scheduler.slot("a", "m"))
        assert not await has_slot(waiting)
        assert scheduler.free_slot("a") is None
        assert scheduler.free_slot("b") is not None
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    run(main())


def test_a_slot_that_is_ended_twice_is_freed_once() -> None:
    async def main() -> None:
        scheduler = new_scheduler(1)
        slot = await scheduler.slot("a", "m")
        slot.abandoned()
        slot.succeeded()
        slot.failed(BUSY)
        assert scheduler.lane("a").active == 0
        await scheduler.slot("a", "m")
        assert scheduler.free_slot("a") is None

    run(main())


# -- requests without a slot in time ---------------------------------------------------------------


def test_a_request_that_waits_too_long_for_a_slot_gets_an_error() -> None:
    async def main() -> float:
        scheduler = new_scheduler(1)
        await scheduler.slot("a", "m")
        with pytest.raises(ModelError, match=r"m: no time left.*no slot was free") as caught:
            await scheduler.slot("a", "m", deadline=30.0)
        assert not caught.value.retryable
        assert not caught.value.ambiguous
        return now()

    assert run(main()) == pytest.approx(30.0)


def test_a_pause_requested_by_a_server_holds_for_its_lane_only() -> None:
    async def main() -> list[tuple[str, float]]:
        scheduler = new_scheduler()
        first = await scheduler.slot("a", "m")
        first.failed(told_to_wait(30.0))
        times: list[tuple[str, float]] = []

        async def one(lane: str) -> None:
            slot = await scheduler.slot(lane, "m")
            times.append((lane, now()))
            slot.succeeded()

        await asyncio.gather(*(one(lane) for lane in "aaba"))
        await one("a")  # and afterwards everything is as before
        return times

    times = run(main())
    assert [lane for lane, _ in times] == ["b", "a", "a", "a", "a"]
    assert [at for _, at in times] == pytest.approx([0.0, 30.0, 30.0, 30.0, 30.0])


def test_a_call_that_cannot_wait_for_the_end_of_a_pause_fails_at_once() -> None:
    async def main() -> None:
        scheduler = new_scheduler(1)
        first = await scheduler.slot("a", "m")
        hasty = asyncio.create_task(scheduler.slot("a", "m", deadline=20.0))
        patient = asyncio.create_task(scheduler.slot("a", "m", deadline=90.0))
        await asyncio.sleep(1)
        first.failed(told_to_wait(30.0))
        with pytest.raises(ModelError, match=r"asked for a 30 s pause.*slow down"):
            await hasty
        with pytest.raises(ModelError, match="asked for a 30 s pause"):
            await scheduler.slot("a", "m", deadline=31.0)
        assert now() == 1.0
        await patient
        assert now() == pytest.approx(31.0)

    run(main())


def test_a_requested_pause_is_capped() -> None:
    async def main() -> float:
        scheduler = new_scheduler()
        (await scheduler.slot("a", "m")).failed(told_to_wait(1e9))
        await scheduler.slot("a", "m")
        return now()

    assert run(main()) == pytest.approx(LONGEST_PAUSE_SECONDS)


# -- rate limits ----------------------------------------------------------------------------------


async def times_of(scheduler: Scheduler, count: int, tokens: int = 0) -> list[float]:
    times: list[float] = []

    async def one() -> None:
        slot = await scheduler.slot("a", "p/m", names=("p/m", "p"), tokens=tokens)
        times.append(now())
        slot.succeeded()

    await asyncio.gather(*(one() for _ in range(count)))
    return times


def test_requests_per_minute_are_limited() -> None:
    async def main() -> list[float]:
        return await times_of(new_scheduler(p=RateLimit(requests_per_minute=3)), 8)

    assert run(main()) == pytest.approx([0, 0, 0, 60, 60, 60, 120, 120])


def test_unreported_usage_counts_at_the_bound_in_the_token_rate_limit() -> None:
    async def main() -> list[float]:
        return await times_of(new_scheduler(p=RateLimit(tokens_per_minute=1_000)), 5, tokens=400)

    assert run(main()) == pytest.approx([0, 0, 60, 60, 120])


def test_actual_usage_below_the_bound_makes_room_for_the_next_request() -> None:
    async def main() -> float:
        scheduler = new_scheduler(p=RateLimit(tokens_per_minute=1_000))
        first = await scheduler.slot("a", "m", names=("p",), tokens=900)
        second = asyncio.create_task(scheduler.slot("a", "m", names=("p",), tokens=900))
        await asyncio.sleep(5)
        assert not second.done()
        first.succeeded(50)
        await second
        return now()

    assert run(main()) == 5.0


def test_a_refused_request_counts_as_a_request_but_uses_no_tokens() -> None:
    async def main() -> None:
        scheduler = new_scheduler(p=RateLimit(2, 1_000))
        (await scheduler.slot("a", "m", names=("p",), tokens=900)).failed(ModelError("no"))
        (await scheduler.slot("a", "m", names=("p",), tokens=900)).failed(
            ModelError("cut off", ambiguous=True)
        )
        assert now() == 0.0
        await scheduler.slot("a", "m", names=("p",), tokens=900)
        assert now() == pytest.approx(60.0)

    run(main())


def test_a_call_that_its_rate_limit_cannot_admit_in_time_fails_at_once() -> None:
    async def main() -> None:
        scheduler = new_scheduler(p=RateLimit(requests_per_minute=1))
        await scheduler.slot("a", "m", names=("p",))
        with pytest.raises(ModelError, match="the rate limit of p left no room in that time"):
            await scheduler.slot("a", "m", names=("p",), deadline=59.0)
        assert now() == 0.0

    run(main())


def test_a_call_that_may_still_be_admitted_in_time_waits() -> None:
    async def main() -> None:
        scheduler = new_scheduler(p=RateLimit(tokens_per_minute=100))
        first = await scheduler.slot("a", "m", names=("p",), tokens=100)
        second = asyncio.create_task(
            scheduler.slot("a", "m", names=("p",), tokens=100, deadline=30.0)
        )
        await asyncio.sleep(10)
        assert not second.done()
        first.succeeded(0)
        await second
        assert now() == 10.0

    run(main())


def test_a_rate_limit_of_one_model_does_not_delay_another_of_the_same_server() -> None:
    async def main() -> None:
        scheduler = Scheduler(
            64,
            {"p/big": RateLimit(requests_per_minute=1), "p": RateLimit(requests_per_minute=3)},
            clock=asyncio.get_running_loop().time,
        )
        big, small = ("p/big", "p"), ("p/small", "p")
        await scheduler.slot("a", "big", names=big)
        waiting = asyncio.create_task(scheduler.slot("a", "big", names=big))
        await asyncio.sleep(1)
        await scheduler.slot("a", "small", names=small)
        await scheduler.slot("a", "small", names=small)
        assert now() == 1.0
        last = asyncio.create_task(scheduler.slot("a", "small", names=small))
        await waiting
        assert now() == pytest.approx(60.0)
        await last  # the provider's own limit: 3 a minute, for both together
        assert now() == pytest.approx(61.0)

    run(main())


# -- cancelled --------------------------------------------------------------------------------


def test_cancelling_a_waiter_as_it_is_given_a_slot_passes_the_slot_on() -> None:
    async def main() -> None:
        scheduler = new_scheduler(1)
        first = await scheduler.slot("a", "m")
        second = asyncio.create_task(scheduler.slot("a", "m"))
        third = asyncio.create_task(scheduler.slot("a", "m"))
        await asyncio.sleep(0)
        first.succeeded()  # gives the slot to the second …
        second.cancel()  # … which is cancelled before it resumes
        assert isinstance(await third, Slot)
        assert second.cancelled()
        assert scheduler.lane("a").active == 1

    run(main())


def test_cancelling_the_first_in_the_queue_lets_the_next_pass() -> None:
    async def main() -> None:
        scheduler = new_scheduler(p=RateLimit(tokens_per_minute=100))
        (await scheduler.slot("a", "m", names=("p",), tokens=50)).succeeded(50)
        large = asyncio.create_task(scheduler.slot("a", "m", names=("p",), tokens=90))
        small = asyncio.create_task(scheduler.slot("a", "m", names=("p",), tokens=10))
        await asyncio.sleep(1)
        assert not small.done()
        large.cancel()
        await small
        assert now() == 1.0

    run(main())


def test_the_retry_wait_is_the_servers_or_grows_with_random_jitter() -> None:
    scheduler = Scheduler(1)
    assert scheduler.wait_before_retry(1, told_to_wait(7.0)) == 7.0
    for attempt, most in ((1, 1.0), (2, 2.0), (10, 20.0)):
        waits = [scheduler.wait_before_retry(attempt, BUSY) for _ in range(200)]
        assert 0 <= min(waits) <= max(waits) <= most
        assert len(set(waits)) > 100


# -- RLM(rate_limits=..., hedge_after_seconds=...) ------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rate_limits": {"mine": 500}}, r"rate_limits\['mine'\] must be a RateLimit, not 500"),
        ({"rate_limits": 500}, "rate_limits must be a dict"),
        ({"rate_limits": {"other": RateLimit(1)}}, "names 'other'; models and providers: mine, "),
        ({"hedge_after_seconds": 0}, "hedge_after_seconds must be a positive number"),
        ({"hedge_after_seconds": float("inf")}, "hedge_after_seconds must be a positive number"),
        ({"hedge_after_seconds": True}, "hedge_after_seconds must be a positive number"),
        ({"hedge_after_seconds": "soon"}, "hedge_after_seconds must be a positive number"),
    ],
)
def test_wrong_options_are_refused_when_the_rlm_is_made(
    options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        RLM("mine/model", clients={"mine": ScriptedClient()}, **options)


async def test_options_reach_the_calls() -> None:
    limits = {"mine": RateLimit(2), "mine/model": RateLimit(1)}
    client = ScriptedClient()
    engine = RLM("mine/model", clients={"mine": client}, rate_limits=limits, hedge_after_seconds=3)
    calls = engine.runner.resources.services().calls
    route = calls.router("mine/model")
    assert route.names == ("mine/model", "mine")
    assert calls.hedge_after_seconds == 3
    slot = calls.scheduler.free_slot(route.lane, names=route.names)
    assert slot is not None
    slot.succeeded()
    assert calls.scheduler.free_slot(route.lane, names=route.names) is None
