"""The engine over real HTTP: what is tried again, what is not, and what survives a dead server."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rlm import RLM, Limits, ScriptedClient
from rlm.calls import scheduler
from rlm.events import CallEnded, CellOutput
from rlm.results import RunResult
from rlm.testing.fake_server import Answer, FakeServer
from tests.clients.conformance.bench import client_of
from tests.fakes import PlanEnvironment, cell

NEVER = (400, 401, 403, 404, 422)


@pytest.fixture(autouse=True)
def no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waits that the engine chooses itself are none."""
    monkeypatch.setattr(scheduler, "FIRST_WAIT_SECONDS", 0.0)


async def run(dialect: str, server: FakeServer, *orders: Any, **limits: Any) -> RunResult:
    """A run whose only cell carries out the orders, with the server for its sub-model."""
    root = ScriptedClient([cell(*orders, ["final", "done"])])
    engine = RLM(
        root,
        sub_model=client_of(dialect, server),
        environment=PlanEnvironment(),
        limits=Limits(**{"call_seconds": 20, **limits}),
    )
    try:
        return await engine.aask("What?", "context")
    finally:
        await engine.aclose()


def calls(result: RunResult) -> list[CallEnded]:
    return [event for event in result.events if isinstance(event, CallEnded)]


def printed(result: RunResult) -> list[str]:
    said = "".join(event.text for event in result.events if isinstance(event, CellOutput))
    return said.splitlines()


@pytest.mark.parametrize(
    "trouble",
    [
        {"status": 500},
        {"status": 503, "behaviour": "html"},
        {"behaviour": "reset"},
        {"behaviour": "cut"},
        {"behaviour": "malformed"},
        {"status": 429, "retry_after": 0.01},
        {"status": 429, "retry_after": 0.01, "retry_after_form": "milliseconds"},
    ],
    ids=str,
)
async def test_a_retryable_failure_is_followed_by_a_reply(
    dialect: str, trouble: dict[str, Any]
) -> None:
    async with FakeServer([{**trouble, "times": 2}, "fine"]) as server:
        result = await run(dialect, server, ["llm", 1])
        assert server.count == 3
    assert printed(result) == ["fine"]
    (call,) = calls(result)
    assert (call.retries, call.error) == (2, None)


@pytest.mark.parametrize("status", NEVER)
async def test_a_permanent_failure_is_not_retried(dialect: str, status: int) -> None:
    async with FakeServer([{"status": status, "error": "no"}, "unreached"]) as server:
        result = await run(dialect, server, ["batch", 1])
        assert server.count == 1
    (call,) = calls(result)
    assert call.retries == 0
    assert f"HTTP {status}" in str(call.error)
    assert result.answer == "done", "the run goes on"


async def test_the_wait_requested_by_a_server_is_respected(
    dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_for = []
    ours = scheduler.Scheduler.wait_before_retry

    def noted(self: scheduler.Scheduler, attempt: int, error: Any) -> float:
        wait = ours(self, attempt, error)
        asked_for.append(wait)
        return wait

    monkeypatch.setattr(scheduler.Scheduler, "wait_before_retry", noted)
    answers: list[Any] = [
        {"status": 429, "retry_after": 0.03},
        {"status": 503, "retry_after": 0.02},
        "fine",
    ]
    async with FakeServer(answers) as server:
        result = await run(dialect, server, ["llm", 1])
    assert printed(result) == ["fine"]
    assert asked_for == [0.03, 0.02]


async def test_a_wait_beyond_the_deadline_is_not_started(dialect: str) -> None:
    answers: list[Any] = [
        {"status": 429, "retry_after": 3_600, "error": "come back tomorrow"},
        "late",
    ]
    async with FakeServer(answers) as server:
        result = await run(dialect, server, ["batch", 1])
        assert server.count == 1
    (call,) = calls(result)
    assert "come back tomorrow" in str(call.error)


async def test_a_call_gives_up_after_five_attempts(dialect: str) -> None:
    async with FakeServer(rules=[("", {"status": 500, "error": "still down"})]) as server:
        result = await run(dialect, server, ["batch", 1])
        assert server.count == 5
    (call,) = calls(result)
    assert call.retries == 4
    assert "still down" in str(call.error)


class Killed:
    """A server that dies at its n-th request, with the others in flight."""

    def __init__(self, paid: int) -> None:
        self._paid = paid
        self._answered = threading.Semaphore(paid)
        self.server = FakeServer(rules=[("", self._answer)], on_request=self._note)
        self._done = 0

    def _answer(self, _asked: Any) -> Answer:
        if self._answered.acquire(blocking=False):
            return Answer(reply="paid")
        return Answer(behaviour="never")

    def _note(self, received: Any) -> None:
        self._done += received.status == 200
        if self._done == self._paid and received.status == 200:
            threading.Timer(0.05, self.server.stop).start()


@pytest.fixture
def killed() -> Iterator[Killed]:
    made = Killed(paid=5)
    made.server.start()
    yield made
    made.server.stop()


async def test_a_server_killed_during_a_batch_leaves_an_outcome_for_each_item(
    dialect: str, killed: Killed
) -> None:
    result = await run(dialect, killed.server, ["batch", 12], call_seconds=10)
    lines = printed(result)
    assert len(lines) == 12, "every item has an outcome, in its place"
    assert lines.count("paid") == 5
    assert sum(line.startswith("[call failed:") for line in lines) == 7
    assert (result.answer, result.stop_reason) == ("done", "answer")
    ended = calls(result)
    paid = [call.usage for call in ended if call.usage is not None]
    assert len(paid) == 5
    sub = next(usage for name, usage in result.usage.by_model.items() if "Scripted" not in name)
    assert sub.requests == 5
    assert sub.total_tokens == sum(usage.total_tokens for usage in paid) > 0
    assert all(call.error for call in ended if call.usage is None)


@pytest.mark.parametrize("behaviour", ["no_usage", "drip", "gzip"])
async def test_an_odd_but_complete_reply_counts(dialect: str, behaviour: str) -> None:
    """A provider that does not say what it used is billed at the bound, never at nothing."""
    async with FakeServer([{"reply": "fine", "behaviour": behaviour}]) as server:
        result = await run(dialect, server, ["llm", 1])
    (call,) = calls(result)
    assert call.usage is not None
    assert call.usage.output_tokens > 0
    assert printed(result) == ["fine"]
