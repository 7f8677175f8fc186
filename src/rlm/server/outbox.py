"""What a client is to be sent and was not sent yet."""

import asyncio
from collections import deque

from msgspec import Struct

from rlm._util.text import sendable

__all__ = ["Outbox", "Portion"]

MOST_PROGRESS_LINES = 500
"""Of a client that reads slowly, the oldest lines of progress are forgotten. Answers never are."""


class Portion(Struct, frozen=True):
    """What has come together: progress first, then text of the answer."""

    progress: str = ""
    content: str = ""


class Outbox:
    """Filled by a run, emptied by a connection; both on one event loop."""

    def __init__(self) -> None:
        self._progress: deque[str] = deque(maxlen=MOST_PROGRESS_LINES)
        self._content: list[str] = []
        self._changed = asyncio.Event()

    def progress(self, line: str) -> None:
        self._progress.append(f"{line}\n")
        self._changed.set()

    def content(self, text: str) -> None:
        if text:
            self._content.append(sendable(text))
            self._changed.set()

    def wake(self) -> None:
        """Let who waits look up, though nothing has come."""
        self._changed.set()

    async def take(self, seconds: float) -> Portion | None:
        """What there is, at once or when it comes; None if nothing comes in that time."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return None
        return self.taken()

    def taken(self) -> Portion:
        self._changed.clear()
        portion = Portion("".join(self._progress), "".join(self._content))
        self._progress.clear()
        self._content.clear()
        return portion
