"""What a failed request may have cost counts against the limits of a chat, over all its turns."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rlm import RLM, CallRefused, ModelError, ScriptedClient
from rlm.chat.chat import Chat
from rlm.messages import PICODOLLARS, Price, Reply, Request

PRICE = Price(100.0, 200.0)
DONE = "```repl\nFINAL(1)\n```"


class Failing(ScriptedClient):
    """Its first requests fail after they were sent; `may_have_cost` is the most they can cost."""

    def __init__(self, failures: int, script: list[str], *, retryable: bool = False) -> None:
        super().__init__(script, price=PRICE)
        self.failures = failures
        self.retryable = retryable
        self.tokens = self.picodollars = 0

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        if not self.failures:
            return await super().complete(request, timeout_seconds=timeout_seconds)
        self.failures -= 1
        self.tokens += request.bound_tokens + request.max_output_tokens
        self.picodollars += PRICE.bound(request.bound_tokens, request.max_output_tokens)
        wait = 0.0 if self.retryable else None
        raise ModelError(
            "cut off", retryable=self.retryable, ambiguous=True, retry_after_seconds=wait
        )


async def closed(*parts: Chat | RLM) -> None:
    for each in parts:
        await each.aclose()


async def test_failed_turns_count_until_nothing_is_left() -> None:
    client = Failing(100, [])
    one = RLM(client)
    chat = one.chat("a", max_cost_usd=5.0)
    for _ in range(5):
        with suppress(ModelError, CallRefused):
            await chat.aask("?")
    assert 0 < client.picodollars <= 5 * PICODOLLARS
    assert chat.usage.requests == 0, "nothing was reported"
    await closed(chat, one)


@pytest.mark.parametrize("limits", [{"max_cost_usd": 3.0}, {"max_tokens": 20_000}])
async def test_a_turn_that_failed_leaves_the_next_less(limits: dict[str, Any]) -> None:
    client = Failing(1, [DONE])
    one = RLM(client)
    chat = one.chat("a", **limits)
    with pytest.raises(ModelError, match="cut off"):
        await chat.aask("First?")
    await chat.aask("Second?")
    (request,) = client.requests
    sent = request.bound_tokens + request.max_output_tokens
    money = PRICE.bound(request.bound_tokens, request.max_output_tokens)
    if "max_tokens" in limits:
        assert client.tokens + sent <= limits["max_tokens"]
    else:
        assert client.picodollars + money <= limits["max_cost_usd"] * PICODOLLARS
    await closed(chat, one)


async def test_a_turn_that_answered_after_a_failed_attempt_counts_both() -> None:
    client = Failing(1, [DONE], retryable=True)
    one = RLM(client)
    chat = one.chat("a")
    result = await chat.aask("?")
    assert (result.answer, chat.usage) == ("1", result.usage.total)
    assert chat._spending.kept.total_tokens == client.tokens
    assert chat._spending.kept.cost_usd == client.picodollars / PICODOLLARS
    await closed(chat, one)


async def test_a_saved_chat_remembers_what_may_have_been_billed(tmp_path: Path) -> None:
    client = Failing(1, [DONE, DONE], retryable=True)
    one = RLM(client)
    chat = one.chat("a")
    used = (await chat.aask("?")).usage.total
    await chat.asave(tmp_path / "chat.rlm")
    loaded = one.chat(load=tmp_path / "chat.rlm", max_tokens=used.total_tokens + client.tokens)
    assert loaded.usage == used
    with pytest.raises(CallRefused, match=f"used \\({client.tokens:,} of it may have been billed"):
        await loaded.aask("?")
    assert len(client.requests) == 1
    await closed(chat, loaded, one)
