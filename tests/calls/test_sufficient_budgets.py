"""A budget moderately larger than what a run needs lets it finish, at its usual speed."""

import asyncio
import random
from collections.abc import AsyncGenerator

from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from rlm.api import RLM
from rlm.events import CallEnded, ModelReplied
from rlm.limits import Limits
from rlm.messages import Message, ModelInfo, Reply, Request, Usage
from rlm.results import RunResult
from tests.fakes import PlanEnvironment, cell

INSTRUCTIONS_SHARE = 10
"""The first request and the largest call are at most one part in ten of what a run needs."""


class Provider:
    """Takes steps from a list of plans, answers calls with a note, counts tokens by message."""

    identity = "the provider"

    def __init__(self, plans: list[str], bytes_per_token: float, note_chars: int = 40) -> None:
        self.plans = iter(plans)
        self.bytes_per_token = bytes_per_token
        self.note = "n" * note_chars
        self.gate: asyncio.Semaphore | None = None
        self.in_flight = 0

    def info(self, model: str) -> ModelInfo:
        return ModelInfo()

    async def close(self) -> None:
        pass

    def stream(self, request: Request, *, timeout_seconds: float) -> AsyncGenerator[str, None]:
        raise NotImplementedError

    def tokens(self, messages: tuple[Message, ...]) -> int:
        sizes = [len(str(each.content).encode()) / self.bytes_per_token for each in messages]
        return sum(4 + int(size) for size in sizes)

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        is_call = str(request.messages[-1].content).startswith("piece")
        if is_call and self.gate is not None:
            self.in_flight += 1
            await self.gate.acquire()
            self.in_flight -= 1
        text = self.note if is_call else next(self.plans)
        output = min(len(text) // 4 + 1, request.max_output_tokens)
        usage = Usage(input_tokens=self.tokens(request.messages), output_tokens=output)
        return Reply(text=text, usage=usage)


async def in_flight_before_each_reply(provider: Provider, calls: int) -> list[int]:
    """Let calls end one at a time, each after all calls that may start have started."""
    provider.gate = asyncio.Semaphore(0)
    counts: list[int] = []
    while len(counts) < calls:
        for _ in range(100):
            await asyncio.sleep(0)
        if provider.in_flight:
            counts.append(provider.in_flight)
            provider.gate.release()
    return counts


async def ask(provider: Provider, limits: Limits) -> RunResult:
    engine = RLM(provider, environment=PlanEnvironment(), limits=limits, compaction=False)
    return await engine.aask("What?", "some context")


def total_tokens(result: RunResult) -> int:
    return result.usage.total.total_tokens


def first_and_largest(result: RunResult) -> int:
    """Tokens of the first request, and of the largest call."""
    steps = [e.usage for e in result.events if isinstance(e, ModelReplied) and e.usage]
    calls = [e.usage.total_tokens for e in result.events if isinstance(e, CallEnded) and e.usage]
    return steps[0].total_tokens + max(calls, default=0)


def random_plans(rng: random.Random) -> list[str]:
    """Steps that print a little or a lot, and steps that make calls of different sizes."""
    plans = []
    most = rng.choice([50, 500, 4_000, 30_000])
    for number in range(rng.randint(4, 25)):
        chars = rng.choice([most, most // 10])
        orders: list[list[object]] = [["print", number], ["dots", rng.randrange(chars)]]
        if rng.random() < 0.4:
            orders.append(["batch", rng.randint(1, 20), rng.randrange(most)])
        plans.append(cell(*orders))
    return [*plans, cell(["final", "42"])]


async def check(plans: list[str], bytes_per_token: float) -> bool:
    """Ask without a limit, then with half as much again as that took and one output.

    Return False if no promise applies to this run.
    """
    free = await ask(Provider(plans, bytes_per_token), Limits())
    needed = total_tokens(free)
    if first_and_largest(free) * INSTRUCTIONS_SHARE > needed:
        return False
    allowed = needed * 3 // 2 + Limits().step_output_tokens
    result = await ask(Provider(plans, bytes_per_token), Limits(max_tokens=allowed))
    assert (result.answer, result.stop_reason, result.steps) == ("42", "answer", free.steps)
    assert total_tokens(result) <= allowed
    return True


@given(st.integers(0, 2**32), st.floats(1.0, 5.0))
@settings(max_examples=max(60, settings().max_examples), phases=[Phase.generate])
async def test_one_and_a_half_times_the_needed_budget_plus_one_output_is_enough(
    seed: int, bytes_per_token: float
) -> None:
    assume(await check(random_plans(random.Random(seed)), bytes_per_token))


async def test_a_run_of_short_steps_does_not_run_out_of_budget() -> None:
    plans = [cell(["print", f"context {number}"]) for number in range(40)]
    assert await check([*plans[:11], cell(["final", "42"])], 4)
    assert await check([*plans[:25], cell(["final", "42"])], 4)


async def test_one_long_output_does_not_end_a_short_run() -> None:
    plans = [cell(["print", f"context {number}"]) for number in range(10)]
    assert await check([*plans, cell(["dots", 30_000]), cell(["final", "42"])], 4)


async def test_a_batch_keeps_its_width_with_twice_the_needed_budget() -> None:
    plans = [cell(["batch", 64, 4 * 3_900]), cell(["final", "42"])]
    needed = total_tokens(await ask(Provider(plans, 4, note_chars=320), Limits()))
    assert needed >= 64 * 4_000
    provider = Provider(plans, 4, note_chars=320)
    run = asyncio.create_task(ask(provider, Limits(max_tokens=2 * needed)))
    counts = await in_flight_before_each_reply(provider, 64)
    result = await run
    assert (result.answer, result.usage.total.requests) == ("42", 66)
    # In the end half of the budget is left: 15 calls of 64, reserved at their worst case.
    assert [count for done, count in enumerate(counts) if count < min(15, 64 - done)] == []
