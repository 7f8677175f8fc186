"""When the requests of a run go to the client: not before all that are on their way are there."""

import asyncio
import time

import pytest

from rlm.events import CallEnded, CallStarted
from rlm.gateway import runs
from rlm.gateway.runs import GatewayRun
from rlm.gateway.sessions import Ceilings, GatewaySession
from rlm.messages import Message, Reply, Request

REQUEST = Request(model="theirs", messages=(Message("user", "?"),), max_output_tokens=10)


def started(number: int) -> CallStarted:
    call = f"c{number}"
    return CallStarted(run_id="r", call_id=call, kind="llm", model="theirs", prompt="?")


async def test_a_round_waits_for_every_started_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(runs, "PATIENT_SECONDS", float("inf"))
    run = GatewayRun(
        GatewaySession("somebody", [], Ceilings(), 0.0), lambda request: None, samples=True
    )
    assert run.requests is not None
    assert not run.round_is_full
    for number in (1, 2):
        run.counter.record(started(number))
    first = asyncio.create_task(run.requests.ask(REQUEST))
    await asyncio.sleep(0)
    assert not run.round_is_full  # the second call has begun and is not here yet
    second = asyncio.create_task(run.requests.ask(REQUEST))
    await asyncio.sleep(0)
    assert run.round_is_full
    run.requests.deliver("call-1", Reply(text="one"))
    await first
    assert not run.round_is_full  # what comes next of the first may belong to this round
    run.counter.record(CallEnded(run_id="r", call_id="c1", kind="llm", model="theirs"))
    assert run.round_is_full
    run.requests.deliver("call-2", Reply(text="two"))
    await second


async def test_a_call_that_never_arrives_is_not_awaited_forever() -> None:
    run = GatewayRun(
        GatewaySession("somebody", [], Ceilings(), 0.0), lambda request: None, samples=True
    )
    assert run.requests is not None
    for number in (1, 2):
        run.counter.record(started(number))
    waiting = asyncio.create_task(run.requests.ask(REQUEST))
    await asyncio.sleep(0)
    run.requests.asked_at = time.monotonic() - runs.PATIENT_SECONDS
    assert run.round_is_full
    run.requests.deliver("call-1", Reply(text="one"))
    await waiting
