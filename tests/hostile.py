"""Input that is small and takes forever, and how to see that no one had to wait for it."""

import asyncio
import signal
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import Any

__all__ = ["NEVER_MATCHES", "SLOW_PATTERN", "Ticks", "ends", "reference_bomb", "ticking"]

SLOW_PATTERN = "^(a+)+$"
NEVER_MATCHES = "a" * 60 + "!"
"""A text that `re` compares with that pattern for years."""


def reference_bomb(levels: int = 40, **more: Any) -> dict[str, Any]:
    """A schema of 2 KB in which each definition refers to the next one twice."""
    definitions: dict[str, Any] = {
        f"a{level}": {"allOf": [{"$ref": f"#/$defs/a{level + 1}"}] * 2} for level in range(levels)
    }
    definitions[f"a{levels}"] = {"title": "anything"}
    return {"$ref": "#/$defs/a0", "$defs": definitions, **more}


@contextmanager
def ends(seconds: int = 120) -> Generator[None, None, None]:
    """Fail, and do not hang, where the work is done in this very process."""

    def fail(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"this did not end within {seconds} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Ticks:
    """How often the event loop came round."""

    def __init__(self) -> None:
        self.count = 0

    async def run(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0.01)


@asynccontextmanager
async def ticking() -> AsyncGenerator[Ticks, None]:
    """Count while something else is awaited: a loop that is blocked does not count."""
    ticks = Ticks()
    task = asyncio.create_task(ticks.run())
    try:
        with ends():
            yield ticks
    finally:
        task.cancel()
