"""Await many coroutines, a limited number at once, in order."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rlm.errors import RLMError

__all__ = ["concurrently", "outcome"]

Value = TypeVar("Value")


async def outcome(awaited: Awaitable[Value]) -> Value | RLMError:
    """Return the value, or the error of this package that was raised in its place."""
    try:
        return await awaited
    except RLMError as error:
        return error


async def concurrently(
    count: int, ask: Callable[[int], Awaitable[Value]], at_once: int
) -> list[Value | RLMError]:
    """Return all outcomes in order; raise other errors once all are done.

    At most `at_once` run concurrently, because a task for each would fill the memory.
    """
    outcomes: dict[int, Value | RLMError] = {}
    ahead = iter(range(count))

    async def work() -> None:
        for index in ahead:
            outcomes[index] = await outcome(ask(index))

    ends = await asyncio.gather(
        *(work() for _ in range(min(count, at_once))), return_exceptions=True
    )
    for end in ends:
        if end is not None:
            raise end
    return [outcomes[index] for index in range(count)]
