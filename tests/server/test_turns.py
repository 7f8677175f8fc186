"""Pieces of bodies are handled in turns, so that the uploads of one token do not delay others."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from rlm.server.bodies import Turns, limited
from rlm.server.tokens import Token

HOSTILE, OTHER = Token(name="hostile"), Token(name="other")


class _Sent:
    """A request whose body has arrived in pieces of a kilobyte."""

    def __init__(self, pieces: int) -> None:
        self.headers: dict[str, str] = {}
        self._pieces = pieces

    async def stream(self) -> AsyncGenerator[bytes, None]:
        for _ in range(self._pieces):
            yield b"x" * 1_000


def _pieces(turns: Turns, token: Token, count: int = 3) -> AsyncGenerator[bytes, None]:
    sent: Any = _Sent(count)
    return limited(sent, 1 << 20, 30.0, turns.of(token))


async def test_a_token_handles_few_pieces_at_a_time_and_does_not_delay_others() -> None:
    turns, may_end = Turns(), asyncio.Event()
    handling: Counter[str] = Counter()
    most: Counter[str] = Counter()

    async def receive(token: Token) -> int:
        size = 0
        async with aclosing(_pieces(turns, token)) as pieces:
            async for piece in pieces:
                handling[token.name] += 1
                most[token.name] = max(most[token.name], handling[token.name])
                if token is HOSTILE:
                    await may_end.wait()
                size += len(piece)
                handling[token.name] -= 1
        return size

    hostile = [asyncio.create_task(receive(HOSTILE)) for _ in range(8)]
    await asyncio.sleep(0)  # They begin, and those that have a turn keep it.
    assert await receive(OTHER) == 3_000
    may_end.set()
    assert await asyncio.gather(*hostile) == [3_000] * 8
    assert most == {"hostile": Turns.AT_ONCE, "other": 1}


async def test_a_body_that_is_not_read_to_its_end_returns_its_turn() -> None:
    turns = Turns()
    for _ in range(2 * Turns.AT_ONCE):
        async with aclosing(_pieces(turns, HOSTILE)) as pieces:
            async for _piece in pieces:
                break
    async with asyncio.timeout(5):
        assert [len(piece) async for piece in _pieces(turns, HOSTILE)] == [1_000] * 3


async def test_a_slow_sender_holds_no_turn() -> None:
    turns = Turns()

    class Slow(_Sent):
        async def stream(self) -> AsyncGenerator[bytes, None]:
            yield b"x"
            await asyncio.Event().wait()

    async def receive(sent: Any) -> None:
        async with aclosing(limited(sent, 1 << 20, 30.0, turns.of(HOSTILE))) as pieces:
            async for _piece in pieces:
                pass

    slow = [asyncio.create_task(receive(Slow(1))) for _ in range(2 * Turns.AT_ONCE)]
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        assert [len(piece) async for piece in _pieces(turns, HOSTILE)] == [1_000] * 3
    for task in slow:
        task.cancel()
    await asyncio.gather(*slow, return_exceptions=True)
