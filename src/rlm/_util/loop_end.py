"""Close something when its event loop ends, for callers that forget to.

Scripts end with `asyncio.run`, which closes remaining async generators before it closes the loop.
So a generator that does nothing but wait can still await something at the end.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable

__all__ = ["LoopEnd", "at_loop_end"]

LoopEnd = AsyncGenerator[None, None]


async def at_loop_end(close: Callable[[], Awaitable[None]]) -> LoopEnd:
    """Await `close` when the running loop ends, or when the result is dropped.

    Keep a reference to the result. Its `aclose()` closes at once; nothing is closed twice.
    """
    waiting = _waiting(close)
    await anext(waiting)
    return waiting


async def _waiting(close: Callable[[], Awaitable[None]]) -> LoopEnd:
    try:
        yield
    finally:
        await close()
