"""Limits are a contract; the ledger beneath them never grants more than is left."""

import asyncio
import time
from typing import Any

import pytest

from rlm.errors import CallRefused, ConfigError
from rlm.limits import Amount, Budget, Limits, picodollars
from rlm.messages import Price, Usage


def test_the_default_limits_have_their_documented_values() -> None:
    limits = Limits()
    assert (limits.max_steps, limits.max_depth, limits.max_calls) == (30, 1, 1_000)
    assert limits.max_concurrent_calls == 64
    assert (limits.max_tokens, limits.max_cost_usd, limits.max_seconds) == (None, None, None)
    assert (limits.max_errors, limits.cell_seconds) == (5, 120)
    assert limits.cell_memory_bytes == 2 * 1024**3
    assert (limits.output_chars, limits.kept_output_chars) == (8_000, 1_000_000)
    assert limits.call_output_tokens == 4_096


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_steps": 0},
        {"max_steps": -1},
        {"max_steps": 2.5},
        {"max_steps": "3"},
        {"max_steps": True},
        {"max_steps": None},
        {"max_tokens": 0},
        {"max_cost_usd": -0.01},
        {"max_cost_usd": float("nan")},
        {"max_seconds": float("inf")},
        {"max_calls": -1},
    ],
)
def test_an_invalid_limit_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Limits(**wrong)


def test_a_limit_of_zero_calls_is_allowed() -> None:
    assert Limits(max_calls=0).max_calls == 0


def test_money_is_computed_exactly() -> None:
    price = Price(0.1, 0.3)
    assert price.bound(3, 0) == 300_000
    assert price.bound(1, 1) == 400_000
    assert sum(price.bound(1, 0) for _ in range(10**4)) == price.bound(10**4, 0)
    assert picodollars(0.1) == 10**11


async def test_a_request_that_does_not_fit_waits_for_requests_in_flight() -> None:
    budget = Budget(Limits(max_tokens=100))
    first = await budget.reserve(Amount(tokens=80))
    second = asyncio.create_task(budget.reserve(Amount(tokens=50)))
    await asyncio.sleep(0)
    assert not second.done()
    first.settle(Amount(tokens=10))
    assert (await second).amount.tokens == 50


async def test_a_request_is_refused_only_when_nothing_is_in_flight() -> None:
    budget = Budget(Limits(max_tokens=100))
    first = await budget.reserve(Amount(tokens=80))
    second = asyncio.create_task(budget.reserve(Amount(tokens=50)))
    await asyncio.sleep(0)
    first.settle(Amount(tokens=80))
    with pytest.raises(CallRefused, match="max_tokens") as refused:
        await second
    assert refused.value.limit == "tokens"


async def test_no_request_waits_for_budget_that_is_only_held_back() -> None:
    budget = Budget(Limits(max_tokens=100))
    budget.hold(Amount(tokens=60))
    with pytest.raises(CallRefused):
        await budget.reserve(Amount(tokens=50))


async def test_waiting_requests_are_served_in_order() -> None:
    budget = Budget(Limits(max_tokens=100))
    flying = await budget.reserve(Amount(tokens=90))
    order: list[str] = []

    async def take(name: str, tokens: int) -> None:
        reservation = await budget.reserve(Amount(tokens=tokens))
        order.append(name)
        reservation.settle(Amount())

    large, small = asyncio.create_task(take("large", 50)), asyncio.create_task(take("small", 5))
    await asyncio.sleep(0)
    assert order == []
    flying.settle(Amount())
    await asyncio.gather(large, small)
    assert order == ["large", "small"]


async def test_an_ambiguous_failure_keeps_its_reservation_and_a_clear_one_releases_it() -> None:
    budget = Budget(Limits(max_tokens=100))
    (await budget.reserve(Amount(calls=1, tokens=60))).keep()
    assert budget.room().tokens == 40
    (await budget.reserve(Amount(calls=1, tokens=40))).release()
    assert budget.room().tokens == 40
    assert budget.used.calls == 2  # a call made stays a call made


async def test_a_reservation_can_be_ended_once() -> None:
    budget = Budget(Limits(max_tokens=100))
    reservation = await budget.reserve(Amount(tokens=60))
    reservation.settle(Amount(tokens=10))
    reservation.keep()
    reservation.release()
    assert (budget.used.tokens, budget.reserved.tokens, budget.in_flight) == (10, 0, 0)


async def test_an_overshoot_is_reported_and_sending_stops() -> None:
    budget = Budget(Limits(max_tokens=1_000))
    over = (await budget.reserve(Amount(tokens=10))).settle(Amount(tokens=25))
    assert over.tokens == budget.overshoot.tokens == 15
    with pytest.raises(CallRefused, match="used 15 tokens more than a request can"):
        await budget.reserve(Amount(tokens=1))


async def test_an_overshoot_stops_only_what_has_a_limit_of_its_kind() -> None:
    over = Amount(tokens=25, picodollars=25)
    for limits, used in (
        (Limits(max_cost_usd=1.0), Amount(tokens=25, picodollars=10)),
        (Limits(max_tokens=1_000), Amount(tokens=10, picodollars=25)),
    ):
        budget = Budget(limits)
        (await budget.reserve(Amount(tokens=10, picodollars=10))).settle(used)
        (await budget.reserve(Amount(tokens=10, picodollars=10))).settle(over)
        with pytest.raises(CallRefused, match="more than a request can") as refusal:
            await budget.reserve(Amount(tokens=1))
        assert refusal.value.limit == ("tokens" if limits.max_tokens else "cost_usd")
        assert ("$0.000000" in str(refusal.value)) is (limits.max_tokens is None)


async def test_without_a_limit_an_overshoot_stops_nothing() -> None:
    budget = Budget(Limits())
    (await budget.reserve(Amount(tokens=10))).settle(Amount(tokens=25))
    await budget.reserve(Amount(tokens=1))


async def test_a_child_draws_on_its_parent() -> None:
    parent = Budget(Limits(max_tokens=100, max_calls=3))
    child = parent.child(Limits(max_tokens=80, max_calls=3))
    (await child.reserve(Amount(calls=1, tokens=60))).settle(Amount(calls=1, tokens=50))
    assert parent.used == child.used == Amount(1, 50, 0)
    with pytest.raises(CallRefused):
        await child.reserve(Amount(tokens=40))  # the child's own limit
    (await parent.reserve(Amount(tokens=40))).keep()
    with pytest.raises(CallRefused):
        await child.reserve(Amount(tokens=20))  # the parent's


async def test_a_request_beyond_the_call_limit_is_refused_without_waiting() -> None:
    budget = Budget(Limits(max_calls=1))
    await budget.reserve(Amount(calls=1))
    with pytest.raises(CallRefused, match="max_calls"):
        await budget.reserve(Amount(calls=1))
    with pytest.raises(CallRefused, match="max_calls"):
        budget.count_call()


async def test_after_the_time_limit_the_final_call_still_has_some_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    budget = Budget(Limits(max_seconds=100))
    held = budget.hold(Amount(tokens=10))
    assert budget.seconds_left == 90
    child = budget.child(Limits(max_seconds=1_000))
    assert child.deadline == budget.work_deadline  # the parent must still hear its answer
    now = 1_095.0
    with pytest.raises(CallRefused, match="max_seconds"):
        await budget.reserve(Amount())
    assert budget.exchange(held, Amount(tokens=10)).in_flight
    now = 1_101.0
    with pytest.raises(CallRefused, match="max_seconds"):
        budget.exchange(held, Amount())


async def test_left_reports_the_remaining_budget() -> None:
    assert Budget(Limits()).left() == {
        "calls": 1_000,
        "tokens": None,
        "cost_usd": None,
        "seconds": None,
    }
    budget = Budget(Limits(max_tokens=100, max_cost_usd=0.5))
    (await budget.reserve(Amount(1, 60, 10**11))).keep()
    assert budget.left() == {"calls": 999, "tokens": 40, "cost_usd": 0.4, "seconds": None}


def test_usage_adds_up_and_one_unknown_cost_makes_it_unknown() -> None:
    known = Usage(10, 5, cost_usd=0.1, requests=1)
    assert (Usage() + known).cost_usd == 0.1
    assert (known + known).cost_usd == 0.2
    assert (known + Usage(1, 1, requests=1)).cost_usd is None
    assert (known + known).total_tokens == 30


async def test_waiting_requests_are_not_overtaken() -> None:
    budget = Budget(Limits(max_tokens=100))
    first = budget.reserve_at_once(Amount(tokens=90))
    assert first is not None
    waiting = asyncio.create_task(budget.reserve(Amount(tokens=60)))
    await asyncio.sleep(0)
    assert budget.reserve_at_once(Amount(tokens=10)) is None
    first.settle(Amount(tokens=0))
    assert budget.reserve_at_once(Amount(tokens=50)) is None  # It has not had its turn yet.
    (await waiting).release()
    assert budget.reserve_at_once(Amount(tokens=50)) is not None
