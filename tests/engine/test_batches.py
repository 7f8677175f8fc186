"""Calls of a batch: in order, not too many at once, and none lost when one fails."""

import asyncio

import pytest

from rlm.engine.concurrency import concurrently
from rlm.errors import ModelError, RLMError


class Asker:
    """Answers with the number, after a moment; some numbers fail."""

    def __init__(self, wrong: dict[int, Exception] | None = None) -> None:
        self.wrong = wrong or {}
        self.begun: list[int] = []
        self.active = self.most = 0

    async def __call__(self, number: int) -> str:
        self.begun.append(number)
        self.active += 1
        self.most = max(self.most, self.active)
        try:
            await asyncio.sleep(0.001 * (number % 3))
            if number in self.wrong:
                raise self.wrong[number]
            return str(number)
        finally:
            self.active -= 1


@pytest.mark.parametrize("at_once", [1, 4, 50, 1_000])
async def test_replies_of_a_batch_are_in_order(at_once: int) -> None:
    ask = Asker()
    assert await concurrently(50, ask, at_once) == [str(number) for number in range(50)]
    assert ask.begun == list(range(50))
    assert ask.most <= at_once


async def test_a_failed_call_becomes_a_reply_and_stops_no_other() -> None:
    lost = ModelError("gone")
    replies = await concurrently(6, Asker({0: lost, 4: lost}), 2)
    assert [isinstance(each, RLMError) for each in replies] == [True, *[False] * 3, True, False]


async def test_unexpected_errors_are_raised_once_all_calls_have_ended() -> None:
    ask = Asker({1: ZeroDivisionError("what")})
    with pytest.raises(ZeroDivisionError):
        await concurrently(9, ask, 3)
    assert ask.begun == list(range(9))
    assert ask.active == 0


async def test_cancelling_a_batch_cancels_all_its_calls() -> None:
    ask = Asker()
    batch = asyncio.create_task(concurrently(10_000, ask, 8))
    await asyncio.sleep(0.01)
    batch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await batch
    assert ask.active == 0
    assert len(ask.begun) < 10_000


async def test_an_empty_batch() -> None:
    assert await concurrently(0, Asker(), 8) == []
