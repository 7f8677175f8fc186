"""Closing what belongs to an event loop when that loop ends, for those who forget to.

Scripts end with `asyncio.run`, which closes whatever async generators are left before it closes the
loop. So a generator that waits for nothing else is where last things can still be awaited.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable

__all__ = ["LoopEnd", "at_loop_end"]

LoopEnd = AsyncGenerator[None, None]


async def at_loop_end(close: Callable[[], Awaitable[None]]) -> LoopEnd:
    """Have `close` awaited when the running loop ends, or when the result is dropped.

    Keep the result. Its `aclose()` closes at once; nothing is closed twice.
    """
    waiting = _waiting(close)
    await anext(waiting)
    return waiting


async def _waiting(close: Callable[[], Awaitable[None]]) -> LoopEnd:
    try:
        yield
    finally:
        await close()
