"""Server-sent events to one client: as fast as it reads, and as long as it listens."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from starlette.types import Receive, Scope, Send

from rlm.server.answering import Outcome
from rlm.server.errors import ApiError
from rlm.server.outbox import Outbox

__all__ = ["BEAT", "EventStream", "Gone", "Writer", "event", "told", "while_connected"]

BEAT = b": still here\n\n"
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),
]
T = TypeVar("T")


class Gone(ConnectionError):
    """The client has left."""


def event(data: bytes, name: str = "", identity: str = "") -> bytes:
    """One event; JSON has no line breaks, so data is one line."""
    head = (f"event: {name}\n" if name else "") + (f"id: {identity}\n" if identity else "")
    return head.encode() + b"data: " + data + b"\n\n"


async def until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Do something for a client, and drop it as soon as the client is gone."""
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(until_gone(receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Gone
        return task.result()
    finally:
        await _ended(task, watch)


async def _ended(*tasks: "asyncio.Future[Any]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class EventStream:
    """A response of events. `leave` is called when it is over, however that comes."""

    def __init__(
        self,
        chunks: AsyncGenerator[bytes, None],
        leave: Callable[[], Awaitable[None]],
    ) -> None:
        self._chunks = chunks
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await while_connected(receive, self._send_all(send))
        finally:
            try:
                await self._chunks.aclose()
            finally:
                await self._leave()

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        async for chunk in self._chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


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
            yield BEAT
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
