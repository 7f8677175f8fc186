"""Server-sent events to one client: as fast as it reads, and as long as it listens."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Protocol

from rlm.server.answering import Outcome
from rlm.server.errors import ApiError
from rlm.server.outbox import Outbox
from rlm.web.events import HEARTBEAT

__all__ = ["Writer", "told"]


class Writer(Protocol):
    """How one dialect tells a run as events."""

    def begin(self) -> bytes: ...

    def progress(self, text: str) -> bytes: ...

    def content(self, text: str) -> bytes: ...

    def end(self, outcome: Outcome) -> bytes: ...

    def fail(self, error: ApiError) -> bytes: ...


async def told(
    writer: Writer,
    outbox: Outbox,
    work: "asyncio.Task[Outcome]",
    heartbeat_seconds: float,
    error_of: Callable[[BaseException], ApiError],
) -> AsyncGenerator[bytes, None]:
    """A run while it goes on, then how it ended."""
    work.add_done_callback(lambda _: outbox.wake())
    yield writer.begin()
    while not work.done():
        portion = await outbox.take(heartbeat_seconds)
        if portion is None:
            yield HEARTBEAT
        elif chunk := _written(writer, portion.progress, portion.content):
            yield chunk
    left = outbox.taken()
    if chunk := _written(writer, left.progress, left.content):
        yield chunk
    failure = asyncio.CancelledError() if work.cancelled() else work.exception()
    yield writer.end(work.result()) if failure is None else writer.fail(error_of(failure))


def _written(writer: Writer, progress: str, content: str) -> bytes:
    chunk = writer.progress(progress) if progress else b""
    return chunk + (writer.content(content) if content else b"")
