"""One budget for several root runs."""

import asyncio

import pytest

from rlm import RLM, Limits, ScriptedClient
from rlm.errors import CallRefused, UnknownPriceError
from rlm.limits import Amount, Budget
from rlm.messages import Usage


async def test_runs_draw_on_the_shared_budget_together() -> None:
    shared = Budget.shared(max_tokens=100)
    one, other = shared.run(Limits(max_tokens=90)), shared.run(Limits(max_tokens=90))
    (await one.reserve(Amount(calls=1, tokens=60))).settle(Amount(calls=1, tokens=60))
    assert (other.room().tokens, one.room().tokens) == (40, 30)
    with pytest.raises(CallRefused, match="40 are free"):
        await other.reserve(Amount(tokens=50))
    flags = [each.was_refused_above for each in (one, other, shared)]
    assert flags == [False, True, False]


async def test_a_refusal_by_a_runs_own_limit_is_not_reported_as_a_shared_one() -> None:
    shared = Budget.shared(max_tokens=100)
    run = shared.run(Limits(max_tokens=10))
    with pytest.raises(CallRefused):
        await run.reserve(Amount(tokens=11))
    assert not run.was_refused_above


async def test_a_run_that_waits_for_its_own_requests_does_not_delay_other_runs() -> None:
    shared = Budget.shared(max_tokens=1_000)
    narrow, wide = shared.run(Limits(max_tokens=100)), shared.run(Limits(max_tokens=100))
    flying = await narrow.reserve(Amount(tokens=80))
    waiting = asyncio.create_task(narrow.reserve(Amount(tokens=50)))
    await asyncio.sleep(0)
    assert (await wide.reserve(Amount(tokens=90))).amount.tokens == 90
    assert not waiting.done()
    flying.settle(Amount())
    assert (await waiting).amount.tokens == 50


async def test_a_run_waits_for_requests_of_other_runs_to_free_the_budget() -> None:
    shared = Budget.shared(max_tokens=100)
    one, other = shared.run(Limits()), shared.run(Limits()).child(Limits())
    flying = await one.reserve(Amount(tokens=80))
    waiting = asyncio.create_task(other.reserve(Amount(tokens=50)))
    await asyncio.sleep(0)
    assert not waiting.done()
    flying.settle(Amount(tokens=20))
    assert (await waiting).amount.tokens == 50


async def test_many_concurrent_runs_stay_within_the_shared_budget() -> None:
    used = Usage(input_tokens=500, output_tokens=20)
    model = ScriptedClient(["FINAL(1)"] * 200, usage=lambda request, text: used)
    shared = Budget.shared(max_tokens=60_000)
    async with asyncio.TaskGroup() as group:
        rlm = RLM(model, limits=Limits(step_output_tokens=1_000))
        runs = [group.create_task(rlm.aask("?", budget=shared)) for _ in range(200)]
    results = [run.result() for run in runs]
    await rlm.aclose()
    answered = [each for each in results if each.stop_reason == "answer"]
    assert 0 < len(answered) <= 60_000 // 520  # each also holds back its final answer's cost
    assert shared.used.tokens == sum(each.usage.total.total_tokens for each in results) <= 60_000
    assert {each.limit for each in results if each.stop_reason == "limit"} == {"tokens"}
    assert (shared.reserved, shared.in_flight) == (Amount(), 0)


async def test_a_shared_money_limit_needs_prices() -> None:
    async with asyncio.timeout(60):
        rlm = RLM(ScriptedClient(["FINAL(1)"]))
        with pytest.raises(UnknownPriceError):
            await rlm.aask("?", budget=Budget.shared(max_cost_usd=1.0))
        await rlm.aclose()
