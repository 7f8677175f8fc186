"""Streamed replies: every piece arrives once, whatever is retried, cached or stored."""

from collections.abc import AsyncGenerator

import pytest

from rlm.api import RLM
from rlm.calls.calls import Calls, Route
from rlm.calls.scheduler import Scheduler
from rlm.calls.scope import Scope, Tree
from rlm.errors import ModelError
from rlm.limits import Budget, Limits
from rlm.messages import Message, ModelInfo, Reply, Request, Usage
from rlm.testing.scripted import ScriptedClient
from tests.stores import MemoryStore

BUSY = ModelError("busy", retryable=True, retry_after_seconds=0.0)


class Breaking(ScriptedClient):
    """Streams a part of its first reply, then loses the connection."""

    def __init__(self, parts_before: list[int], script: list[str]) -> None:
        super().__init__(script)
        self._parts_before = parts_before

    async def stream(
        self, request: Request, *, timeout_seconds: float
    ) -> AsyncGenerator[str | Reply, None]:
        left = self._parts_before.pop(0) if self._parts_before else None
        async for part in super().stream(request, timeout_seconds=timeout_seconds):
            if left == 0:
                raise ModelError("lost", retryable=True, ambiguous=True, retry_after_seconds=0.0)
            yield part
            left = None if left is None else left - 1


def _scope(store: MemoryStore | None = None) -> Scope:
    return Scope(run_id="run", budget=Budget(Limits()), recorders=(), tree=Tree(16, store))


async def _heard(client: ScriptedClient, scope: Scope) -> tuple[list[str], Reply]:
    calls = Calls(lambda _: Route(client, "wire", ModelInfo()), Scheduler(8))
    request = Request(model="m", messages=(Message("user", "hello"),), max_output_tokens=100)
    pieces: list[str] = []
    reply = await calls.run_request(scope, request, purpose="direct", on_text=pieces.append)
    return pieces, reply


async def test_the_pieces_of_a_stream_arrive_one_by_one_and_make_up_the_reply() -> None:
    pieces, reply = await _heard(ScriptedClient(["one two three"]), _scope())
    assert pieces == ["one ", "two ", "three"]
    assert reply.text == "one two three"


async def test_an_attempt_that_fails_before_its_first_piece_is_retried() -> None:
    client = Breaking([0], ["never heard", "the second reply"])
    pieces, reply = await _heard(client, _scope())
    assert "".join(pieces) == reply.text == "the second reply"
    assert len(client.requests) == 2


async def test_an_attempt_that_fails_after_a_piece_is_not_retried() -> None:
    client, scope = Breaking([1], ["first words", "other words"]), _scope()
    with pytest.raises(ModelError, match="lost"):
        await _heard(client, scope)
    assert len(client.requests) == 1
    assert scope.budget.used.tokens > 0, "what may have been billed is kept"


async def test_a_stored_reply_is_streamed_as_one_piece() -> None:
    store = MemoryStore()
    await _heard(ScriptedClient(["paid once"]), _scope(store))
    client = ScriptedClient([])
    pieces, reply = await _heard(client, _scope(store))
    assert pieces == ["paid once"] == [reply.text]
    assert client.requests == []


async def test_a_streamed_reply_is_billed_like_any_other() -> None:
    client = ScriptedClient(["hi"], usage=lambda *_: Usage(7, 5, requests=1))
    scope = _scope()
    await _heard(client, scope)
    assert (scope.budget.used.tokens, scope.budget.reserved.tokens) == (12, 0)


async def test_limits_of_one_run_do_not_carry_over_to_the_next() -> None:
    engine = RLM(ScriptedClient(rules=[("", "```repl\nprint(1)\n```")]), limits=Limits(max_steps=4))
    narrow = await engine.aask("what?", "text", limits=Limits(max_steps=2))
    usual = await engine.aask("what?", "text")
    await engine.aclose()
    assert (narrow.steps, usual.steps) == (2, 4)
