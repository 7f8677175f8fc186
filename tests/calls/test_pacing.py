"""Lanes, rate limits and deadlines, on a clock of numbers."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.calls.rate_limits import RateGate, RateLimit
from rlm.calls.scheduler import FIRST_WINDOW, Deadlines, Lane, TimeLimit
from rlm.errors import ConfigError
from tests import virtual_time
from tests.virtual_time import run

# -- lanes ----------------------------------------------------------------------------------------


def used(lane: Lane) -> Lane:
    lane.active = lane.width
    return lane


def test_a_lane_grows_by_one_for_each_success_while_it_is_full() -> None:
    lane = used(Lane(4 * FIRST_WINDOW))
    assert lane.width == FIRST_WINDOW
    lane.grow(lane.epoch)
    assert lane.width == FIRST_WINDOW + 1
    lane.grow(lane.epoch)  # one slot is free now: there is no reason to grow
    assert lane.width == FIRST_WINDOW + 1


def test_a_lane_never_grows_beyond_its_limit() -> None:
    lane = Lane(20)
    for _ in range(100):
        used(lane).grow(lane.epoch)
    assert lane.width == 20
    assert Lane(4).width == 4


def test_a_hundred_refusals_of_one_round_halve_a_lane_once() -> None:
    lane = used(Lane(4 * FIRST_WINDOW))
    sent_in = lane.epoch
    for _ in range(100):
        lane.shrink(sent_in)
    assert lane.width == FIRST_WINDOW // 2
    lane.shrink(lane.epoch)  # this one was sent after the cut
    assert lane.width == FIRST_WINDOW // 4


def test_a_lane_never_shrinks_below_one() -> None:
    lane = Lane(64)
    for _ in range(20):
        lane.shrink(lane.epoch)
    assert lane.width == 1


def test_after_the_first_cut_a_lane_grows_by_one_per_round() -> None:
    lane = used(Lane(4 * FIRST_WINDOW))
    lane.shrink(lane.epoch)
    for _ in range(lane.width + 1):
        used(lane).grow(lane.epoch)
    assert lane.width == FIRST_WINDOW // 2 + 1


def test_successes_sent_before_a_cut_do_not_grow_the_lane() -> None:
    lane = used(Lane(4 * FIRST_WINDOW))
    before = lane.epoch
    lane.shrink(before)
    for _ in range(100):
        used(lane).grow(before)
    assert lane.width == FIRST_WINDOW // 2


def test_a_shorter_pause_does_not_end_a_longer_one() -> None:
    lane = Lane(64)
    lane.pause(30.0, "long")
    lane.pause(10.0, "short")
    assert (lane.opens_at(5.0), lane.pause_reason) == (30.0, "long")
    assert lane.opens_at(31.0) == 31.0
    assert not lane.paused_until


# -- rate limits ----------------------------------------------------------------------------------


MINUTE = 60.0


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "many"])
def test_a_rate_limit_must_be_a_positive_whole_number(value: Any) -> None:
    with pytest.raises(ConfigError, match="requests_per_minute must be a positive integer"):
        RateLimit(requests_per_minute=value)
    with pytest.raises(ConfigError, match="tokens_per_minute must be a positive integer"):
        RateLimit(tokens_per_minute=value)


def test_a_request_over_the_limit_waits_until_the_oldest_is_a_minute_old() -> None:
    gate = RateGate("x", RateLimit(requests_per_minute=2))
    for now in (0.0, 10.0):
        assert gate.ready_at(now, 5) == now
        gate.take(now, 5)
    assert gate.ready_at(20.0, 5) == MINUTE
    assert gate.ready_at(MINUTE, 5) == MINUTE
    gate.take(MINUTE, 5)
    assert gate.ready_at(MINUTE, 5) == MINUTE + 10.0


def test_tokens_count_at_their_bound_until_the_usage_is_reported() -> None:
    gate = RateGate("x", RateLimit(tokens_per_minute=1_000))
    charge = gate.take(0.0, 800)
    assert gate.ready_at(1.0, 300) == MINUTE
    gate.correct(charge, 100)
    assert gate.ready_at(1.0, 300) == 1.0
    assert gate.ready_at(1.0, 901) == MINUTE


def test_requests_in_flight_may_turn_out_to_use_no_tokens() -> None:
    gate = RateGate("x", RateLimit(tokens_per_minute=1_000))
    gate.correct(gate.take(0.0, 600), 600)
    gate.take(30.0, 400)
    assert gate.ready_at(31.0, 700) == 90.0
    assert gate.earliest(31.0, 700) == MINUTE
    assert gate.earliest(31.0, 400) == 31.0
    gate = RateGate("x", RateLimit(tokens_per_minute=1_000))
    gate.take(0.0, 400)
    gate.correct(gate.take(30.0, 600), 600)
    assert gate.earliest(31.0, 700) == 90.0


def test_a_request_larger_than_the_limit_passes_alone_in_its_minute() -> None:
    gate = RateGate("x", RateLimit(tokens_per_minute=100))
    assert gate.ready_at(0.0, 5_000) == 0.0
    charge = gate.take(0.0, 5_000)
    assert gate.ready_at(0.0, 1) == MINUTE
    gate.correct(charge, 150)  # more than the limit of a minute, so nothing else fits
    assert gate.ready_at(0.0, 1) == MINUTE


def test_a_correction_after_its_minute_has_no_effect() -> None:
    gate = RateGate("x", RateLimit(tokens_per_minute=100))
    late = gate.take(0.0, 100)
    assert gate.ready_at(MINUTE, 100) == MINUTE
    gate.correct(late, 10)
    gate.take(MINUTE, 100)
    assert gate.ready_at(MINUTE, 1) == 2 * MINUTE


arrivals = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.25, 1.0, 7.5, 30.0, 59.5, 61.0]),  # seconds since the last one
        st.integers(1, 150),  # its bound on tokens
        st.none() | st.floats(0.0, 1.0),  # the part of it that it will have used
    ),
    max_size=60,
)


@given(arrivals, st.integers(1, 8), st.integers(1, 400))
def test_no_minute_exceeds_the_limit_and_no_request_waits_longer_than_needed(
    arrivals: list[tuple[float, int, float | None]], requests: int, tokens: int
) -> None:
    gate = RateGate("x", RateLimit(requests, tokens))
    passed: list[tuple[float, int]] = []
    now = 0.0
    for pause, bound, part in arrivals:
        now += pause
        ready = gate.ready_at(now, bound)
        assert gate.earliest(now, bound) <= ready
        if ready > now:  # exactly then, and not a moment earlier
            assert gate.ready_at((now + ready) / 2, bound) == ready
            now = ready
            assert gate.ready_at(now, bound) == now
        charge = gate.take(now, bound)
        counted = min(bound, tokens)
        if part is not None:
            counted = int(counted * part)
            gate.correct(charge, counted)
        passed.append((now, counted))
        recent = [each for at, each in passed if now - MINUTE < at]
        assert len(recent) <= requests
        assert sum(recent) <= tokens


# -- deadlines ------------------------------------------------------------------------------------


def new_deadlines() -> Deadlines:
    return Deadlines(asyncio.get_running_loop().time)


def test_each_time_limit_ends_at_its_own_deadline() -> None:
    async def one(deadlines: Deadlines, deadline: float) -> float:
        with pytest.raises(TimeoutError), TimeLimit(deadlines, deadline):
            await asyncio.sleep(1_000)
        return virtual_time.now()

    async def main() -> list[float]:
        deadlines = new_deadlines()
        return await asyncio.gather(*(one(deadlines, each) for each in (30.0, 10.0, 20.0, 10.0)))

    assert run(main()) == pytest.approx([30.0, 10.0, 20.0, 10.0])


def test_a_body_that_ends_before_its_deadline_is_not_cancelled() -> None:
    async def main() -> None:
        deadlines = new_deadlines()
        with TimeLimit(deadlines, 10.0):
            await asyncio.sleep(5)
        await asyncio.sleep(100)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    run(main())


def test_an_error_of_the_body_is_raised_unchanged() -> None:
    async def main() -> None:
        with pytest.raises(ZeroDivisionError), TimeLimit(new_deadlines(), 10.0):
            raise ZeroDivisionError

    run(main())


def test_a_body_that_turns_its_cancellation_into_an_error_leaves_none_pending() -> None:
    async def body() -> None:
        try:
            await asyncio.sleep(1_000)
        except asyncio.CancelledError:
            raise ValueError("cut short") from None

    async def main() -> None:
        with pytest.raises(ValueError, match="cut short"), TimeLimit(new_deadlines(), 10.0):
            await body()
        await asyncio.sleep(1)  # would raise if the cancellation still counted

    run(main())


def test_a_cancellation_from_outside_is_passed_on() -> None:
    async def body(deadlines: Deadlines) -> None:
        with TimeLimit(deadlines, 10.0):
            await asyncio.sleep(1_000)

    async def main() -> None:
        deadlines = new_deadlines()
        early = asyncio.create_task(body(deadlines))
        both = asyncio.create_task(body(deadlines))
        await asyncio.sleep(5)
        early.cancel()
        asyncio.get_running_loop().call_at(10.0, both.cancel)  # at the moment of the deadline
        done, _ = await asyncio.wait([early, both])
        assert all(task.cancelled() for task in done)

    run(main())
