"""The server of `benchmarks/real_model`: its batching and its HTTP, with a model of a few lines."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.real_model.batching import Batcher, Generation, Step, computed
from benchmarks.real_model.server import Engine, make_app

END = 0
WINDOW = 100


class Echo:
    """A model that says its prompt again, backwards, from what its slots hold."""

    def __init__(self, slots: int) -> None:
        self.cache: list[list[int]] = [[] for _ in range(slots)]
        self.batches: list[int] = []
        self.reads: list[int] = []
        self.error: Exception | None = None

    def read(self, slot: int, tokens: Sequence[int], begin: int) -> int:
        self.cache[slot][begin:] = tokens
        self.reads.append(len(tokens))
        return self._next(slot)

    def decode(self, last: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        if self.error is not None:
            raise self.error
        self.batches.append(len(last))
        for slot, (token, place) in last.items():
            assert len(self.cache[slot]) == place  # no place is skipped or written twice
            self.cache[slot].append(token)
        return {slot: self._next(slot) for slot in last}

    def _next(self, slot: int) -> int:
        """The prompt is a length and that many tokens, followed by the tokens generated so far."""
        held = self.cache[slot]
        said = len(held) - held[0] - 1
        return held[held[0] - said] if 0 <= said < held[0] else END


def asked(tokens: Sequence[int], max_tokens: int = 1_000) -> Generation:
    return Generation([len(tokens), *tokens], max_tokens)


def run_step(model: Echo, batcher: Batcher) -> tuple[Step, list[Generation]]:
    step = batcher.plan()
    return step, batcher.finish(step, computed(model, step))


def batcher(slots: int, step_tokens: int = 50) -> Batcher:
    return Batcher(slots=slots, window_tokens=WINDOW, ends={END}, step_tokens=step_tokens)


# -- batching --------------------------------------------------------------------------------------


def test_requests_join_and_leave_between_steps() -> None:
    model, batch = Echo(2), batcher(2)
    long, short, late = asked([7] * 9), asked([5]), asked([3, 4])
    batch.add(long)
    run_step(model, batch)
    batch.add(short)
    batch.add(late)
    assert (batch.running, batch.waiting) == (1, 2)
    step, _ = run_step(model, batch)
    assert (len(step.decodings), len(step.readings)) == (1, 1)  # short is read while long decodes
    ended: list[Generation] = []
    while step := batch.plan():
        ended += run_step(model, batch)[1]
    assert ended == [short, late, long]  # the long one delayed no other
    assert [each.produced for each in ended] == [[5], [4, 3], [7] * 9]
    assert max(model.batches) == 2
    assert (batch.running, batch.waiting) == (0, 0)


def test_a_long_prompt_is_processed_in_parts_while_others_decode() -> None:
    model, batch = Echo(2), batcher(2, step_tokens=10)
    talking = asked([1] * 8)
    batch.add(talking)
    run_step(model, batch)
    batch.add(asked([2] * 40))
    kinds = [run_step(model, batch)[0] for _ in range(5)]
    assert [len(step.decodings) for step in kinds] == [1, 1, 1, 1, 1]
    assert model.reads == [9, 10, 10, 10, 10, 1]


def test_a_reply_ends_at_its_cap_and_at_the_window() -> None:
    model, batch = Echo(1), batcher(1)
    capped, full = asked([6] * 9, max_tokens=4), asked([6] * 60)
    batch.add(capped)
    batch.add(full)
    while batch.plan():
        run_step(model, batch)
    assert (capped.produced, capped.finish_reason) == ([6] * 4, "length")
    assert (len(full.produced), full.finish_reason) == (WINDOW - 61, "length")


def test_a_prompt_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(ValueError, match="maximum context length is 100 tokens"):
        batcher(1).add(asked([1] * 99))
    with pytest.raises(ValueError, match="the prompt has 0"):
        batcher(1).add(Generation([], 5))


def test_a_cancelled_request_frees_its_slot() -> None:
    model, batch = Echo(1), batcher(1)
    gone, waiting, other = asked([1] * 9), asked([2]), asked([3])
    for each in (gone, waiting, other):
        batch.add(each)
    run_step(model, batch)
    batch.cancel(gone)
    batch.cancel(waiting)
    step, _ = run_step(model, batch)
    assert [each.of for each in step.readings] == [other]
    run_step(model, batch)
    assert (other.produced, other.finish_reason) == ([3], "stop")
    assert not batch.plan()


@given(
    prompts=st.lists(st.lists(st.integers(1, 99), min_size=1, max_size=30), max_size=12),
    slots=st.integers(1, 4),
    step_tokens=st.integers(1, 40),
    joins=st.lists(st.integers(0, 3), max_size=40),
)
def test_every_request_gets_its_own_reply(
    prompts: list[list[int]], slots: int, step_tokens: int, joins: list[int]
) -> None:
    model, batch = Echo(slots), batcher(slots, step_tokens)
    every = [asked(tokens) for tokens in prompts]
    left = list(every)
    for count in [*joins, len(every)]:
        for each in left[:count]:
            batch.add(each)
        left = left[count:]
        if batch.plan():
            step, _ = run_step(model, batch)
            used = [each.slot for each in step.decodings if each.slot is not None]
            assert len(used) == len(set(used)) <= slots
    while batch.plan():
        run_step(model, batch)
    assert [each.produced for each in every] == [tokens[::-1] for tokens in prompts]
    assert all(each.finish_reason == "stop" for each in every)


# -- HTTP ------------------------------------------------------------------------------------------


class Numbers:
    """A tokenizer of texts that are numbers."""

    ends: set[int] = {END}  # noqa: RUF012

    def prompt(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        tokens = [int(word) for _, text in messages for word in text.split()]
        return [len(tokens), *tokens]

    def decode(self, tokens: Sequence[int]) -> str:
        return " ".join(map(str, tokens))


class Served:
    """A server on a free port, and requests to it."""

    def __init__(self, model: Echo, url: str, http: aiohttp.ClientSession) -> None:
        self.model, self.url, self.http = model, url, http

    async def ask(self, text: Any, **options: Any) -> tuple[int, Any]:
        body = {"model": "m", "messages": [{"role": "user", "content": text}], **options}
        async with self.http.post(f"{self.url}/v1/chat/completions", json=body) as response:
            is_json = response.content_type == "application/json"
            return response.status, await (response.json() if is_json else response.text())

    async def stats(self) -> dict[str, int]:
        async with self.http.get(f"{self.url}/stats") as response:
            return dict(await response.json())


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    model = Echo(4)
    engine = Engine(model, batcher(4))
    runner = web.AppRunner(make_app(engine, Numbers(), "echo"), handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    async with aiohttp.ClientSession() as http:
        yield Served(model, f"http://127.0.0.1:{port}", http)
    await runner.cleanup()
    engine.close()


async def test_many_requests_at_once_are_answered_in_batches(served: Served) -> None:
    texts = [" ".join(str(1 + (n + k) % 9) for k in range(5 + n % 7)) for n in range(30)]
    replies = await asyncio.gather(*(served.ask(text) for text in texts))
    for text, (status, reply) in zip(texts, replies, strict=True):
        assert status == 200
        (choice,) = reply["choices"]
        assert choice["message"]["content"].split() == text.split()[::-1]
        assert choice["finish_reason"] == "stop"
        count = len(text.split())
        assert reply["usage"] == {
            "prompt_tokens": count + 1,
            "completion_tokens": count,
            "total_tokens": 2 * count + 1,
        }
    stats = await served.stats()
    assert stats["requests"] == 30
    assert stats["most_in_a_step"] == max(served.model.batches) > 1


async def test_a_stream_holds_the_reply_and_its_usage(served: Served) -> None:
    _, text = await served.ask([{"type": "text", "text": "1 2 3"}], stream=True, max_tokens=2)
    assert '"content": "3 2"' in text
    assert '"finish_reason": "length"' in text
    assert '"total_tokens": 6' in text
    assert text.endswith("data: [DONE]\n\n")


async def test_an_impossible_request_is_refused(served: Served) -> None:
    status, reply = await served.ask("1 " * 200)
    assert (status, reply["error"]["code"]) == (400, "context_length_exceeded")
    async with served.http.post(f"{served.url}/v1/chat/completions", data=b"{") as response:
        assert response.status == 400
    served.model.error = RuntimeError("out of memory")
    status, reply = await served.ask("1 2 3")
    assert (status, reply["error"]["message"]) == (
        500,
        "the model failed: RuntimeError('out of memory')",
    )
    served.model.error = None
    assert (await served.ask("1 2"))[0] == 200  # the next one is served
