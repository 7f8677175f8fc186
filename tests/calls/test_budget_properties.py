"""Budgets hold, whatever a tree of runs does. The provider keeps its own books and compares."""

import asyncio
import random
from typing import Any

from hypothesis import given, reject, settings
from hypothesis import strategies as st

from rlm.api import RLM
from rlm.calls.cache import ReplyCache
from rlm.config import Guards
from rlm.errors import ModelError
from rlm.events import CallEnded, ModelReplied
from rlm.limits import Amount, Limits, picodollars
from rlm.messages import ModelInfo, Price, Reply, Request, Usage
from rlm.results import RunResult
from tests.calls.tokenizers import RandomTokenizer
from tests.fakes import PlanEnvironment, cell

PRICE = Price(3.0, 15.0)
HEDGE_SECONDS = 0.0005
INFO = ModelInfo(price=PRICE)


class Bookkeeper:
    """A provider with random replies and failures that checks its own books at every request."""

    identity = "the bookkeeper"

    def __init__(self, rng: random.Random, limits: Limits) -> None:
        self.rng = rng
        self.tokenizer = RandomTokenizer(rng.randrange(2**32))
        self.limits = limits
        self.billed = Amount()
        self.flying = Amount()
        self.replies = 0
        self.reply_tokens = 0
        self.failures = 0
        self.unaffordable = 0  # counted, not raised: the engine survives what a client raises

    def info(self, model: str) -> ModelInfo:
        return INFO

    async def close(self) -> None:
        pass

    def most_it_can_cost(self, request: Request) -> Amount:
        """By the provider's own count of the input, and the whole output cap."""
        tokens = self.tokenizer.count(request.messages)
        money = PRICE.bound(tokens, request.max_output_tokens)
        return Amount(0, tokens + request.max_output_tokens, money)

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        worst = self.most_it_can_cost(request)
        self.flying += worst
        self._check_affordable()
        text = str(request.messages[-1].content)
        try:
            for _ in range(self.rng.randrange(3)):
                await asyncio.sleep(0)
            if self.rng.random() < 0.1:  # a straggler
                await asyncio.sleep(4 * HEDGE_SECONDS)
            return self._answer(request, text)
        except asyncio.CancelledError:
            self.billed += worst  # it had the request, so it asks for the money
            raise
        finally:
            self.flying -= worst

    def stream(self, request: Request, *, timeout_seconds: float) -> Any:
        raise NotImplementedError

    def _check_affordable(self) -> None:
        possible = self.billed + self.flying
        tokens, usd = self.limits.max_tokens, self.limits.max_cost_usd
        self.unaffordable += tokens is not None and possible.tokens > tokens
        self.unaffordable += usd is not None and possible.picodollars > picodollars(usd)

    def _answer(self, request: Request, text: str) -> Reply:
        worst = self.most_it_can_cost(request)
        draw = self.rng.random()
        is_call = text.startswith("piece") and "REPL" not in str(request.messages[0].content)
        if draw < 0.08:
            self.failures += 1
            seconds = self.rng.choice([0.0, 0.0, 0.001])
            raise ModelError("busy", status=429, retryable=True, retry_after_seconds=seconds)
        if draw < 0.14:
            self.failures += 1
            self.billed += worst
            raise ModelError("cut off", retryable=True, ambiguous=True, retry_after_seconds=0.0)
        if draw < 0.18 and is_call:
            self.failures += 1
            raise ModelError("bad request")
        reply = "note" if is_call else self._step()
        output = self.rng.randint(
            min(len(reply), request.max_output_tokens), request.max_output_tokens
        )
        tokens = worst.tokens - request.max_output_tokens
        read = self.rng.randint(0, tokens)
        usage = Usage(
            input_tokens=tokens,
            output_tokens=output,
            cached_tokens=read,
            cache_write_tokens=self.rng.randint(0, tokens - read),
        )
        self.billed += Amount(
            0,
            usage.total_tokens,
            PRICE.bound(usage.input_tokens, usage.output_tokens),
        )
        self.replies += 1
        self.reply_tokens += usage.total_tokens
        return Reply(text=reply, usage=usage)

    def _step(self) -> str:
        rng = self.rng
        kinds = ["llm", "batch", "rlm", "print", "fail", "prose", "final", "die", "set"]
        kind = rng.choices(kinds, [3, 4, 3, 3, 1, 1, 1, 1, 1])[0]
        if kind == "prose":
            return "Let me think about that."
        if kind in {"fail", "die"}:
            return cell([kind])
        if kind == "print":
            return cell(["print", "x" * rng.randrange(500)])
        if kind == "final":
            return cell(["final", "42"])
        if kind == "set":
            return cell(["set", "notes", "n"])
        return cell([kind, 1 if kind == "llm" else rng.randint(1, 12)])


class MemoryCache(ReplyCache):
    """The same rules, without a disk. Child runs ask the same questions, so there are hits."""

    def __init__(self) -> None:
        super().__init__("nowhere", always=True)
        self.replies: dict[bytes, Reply] = {}

    def prepare(self) -> None:
        pass

    async def get(self, key: bytes) -> Reply | None:
        await asyncio.sleep(0)
        return self.replies.get(key)

    async def put(self, key: bytes, reply: Reply) -> None:
        await asyncio.sleep(0)
        self.replies[key] = reply


limits_strategy = st.builds(
    Limits,
    max_steps=st.integers(1, 6),
    max_depth=st.integers(1, 3),
    max_calls=st.integers(0, 40),
    max_tokens=st.none() | st.integers(1, 20_000) | st.integers(20_000, 300_000),
    max_cost_usd=st.none() | st.floats(0.0001, 2.0),
    max_concurrent_calls=st.integers(1, 8),
    call_output_tokens=st.sampled_from([256, 4096]),
)


async def run(
    seed: int, limits: Limits, *, hedged: bool, cached: bool
) -> tuple[Bookkeeper, RunResult]:
    client = Bookkeeper(random.Random(seed), limits)
    engine = RLM(
        client,
        environment=PlanEnvironment(),
        limits=limits,
        guards=Guards(invalid_response_limit=3),
        hedge_after_seconds=HEDGE_SECONDS if hedged else None,
        cache=MemoryCache() if cached else None,
    )
    try:
        return client, await engine.aask("What?", "some context")
    except ModelError:  # the root model failed five times in a row: nothing to look at
        reject()


@given(
    seed=st.integers(0, 2**32), limits=limits_strategy, hedged=st.booleans(), cached=st.booleans()
)
@settings(max_examples=max(300, settings().max_examples))
async def test_budgets_hold_over_random_trees(
    seed: int, limits: Limits, hedged: bool, cached: bool
) -> None:
    client, result = await run(seed, limits, hedged=hedged, cached=cached)
    # No call is sent that could exceed the budget, whatever the calls in flight turn out to cost.
    assert client.unaffordable == 0
    told = [e.usage for e in result.events if isinstance(e, (CallEnded, ModelReplied)) and e.usage]
    # No paid reply is lost: each is in an event and in the totals, even if two raced.
    assert sum(e.requests for e in told) == client.replies == result.usage.total.requests
    assert sum(e.total_tokens for e in told) == client.reply_tokens
    assert result.usage.total.total_tokens == client.reply_tokens
    stored = [e for e in result.events if isinstance(e, (CallEnded, ModelReplied)) and e.stored]
    assert all(e.usage == Usage(cost_usd=0.0) for e in stored)
    # Never more calls than allowed.
    started = sum(isinstance(e, CallEnded) and e.error is None for e in result.events)
    assert started <= limits.max_calls
    # The final-answer call is always affordable: a run that stops early and has neither a
    # submission nor a variable has asked for its answer. A reply that is code is asked for once
    # more, if there is room for that.
    finals: dict[str, list[ModelReplied]] = {}
    for event in result.events:
        if isinstance(event, ModelReplied) and event.purpose == "final":
            finals.setdefault(event.run_id, []).append(event)
    own = finals.get(result.run_id, [])
    if result.stop_reason in {"steps", "limit", "error"} and result.steps:
        assert bool(own) == (result.answer_source not in {"submitted", "variable"})
    assert all(len(each) <= 2 for each in finals.values())
    assert not [each[0].error for each in finals.values() if "(max_" in (each[0].error or "")]
