"""Where work is done whose size sandboxes decide: in a thread, unless it is short."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from rlm._util.slow_numbers import ON_LOOP, has_many

__all__ = ["LONG_CHARS", "is_quick_json", "off_loop"]

Value = TypeVar("Value")

LONG_CHARS = 256 << 10
"""Longer texts are hashed, encoded and decoded in a thread."""


async def off_loop(chars: int, work: Callable[[], Value]) -> Value:
    """Run a pure function, in a thread if its text is long."""
    return work() if chars <= LONG_CHARS else await asyncio.to_thread(work)


def is_quick_json(text: str) -> bool:
    """Whether JSON is decoded in a few milliseconds, so that no thread is needed."""
    return len(text) <= LONG_CHARS and not has_many(text, ON_LOOP)
