"""Server-sent events to one client: as fast as it reads, and for as long as it listens."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from starlette.types import Receive, Scope, Send

__all__ = [
    "HEARTBEAT",
    "RETRY",
    "Disconnected",
    "EventStream",
    "Stopping",
    "event",
    "while_connected",
]

HEARTBEAT = b": still here\n\n"
"""A comment that keeps proxies from closing an idle stream."""

RETRY = b"retry: 1000\n\n"
"""Browsers reconnect a second after a stream breaks."""

HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),
)
T = TypeVar("T")


class Disconnected(ConnectionError):
    """The client has closed its connection."""


class Stopping(Exception):
    """The server is shutting down."""


def event(data: bytes, name: str = "", event_id: str = "") -> bytes:
    """Encode one event. JSON has no line breaks, so the data is one line."""
    head = (f"event: {name}\n" if name else "") + (f"id: {event_id}\n" if event_id else "")
    return head.encode() + b"data: " + data + b"\n\n"


async def while_connected(
    receive: Receive | None, work: Coroutine[Any, Any, T], closing: asyncio.Event | None = None
) -> T:
    """Return the result of `work`; cancel it if the client disconnects or `closing` is set.

    The body of the request must have been read already; if `work` reads it, `receive` is None.
    """
    task = asyncio.ensure_future(work)
    watches = [] if receive is None else [asyncio.ensure_future(_disconnect(receive))]
    if closing is not None:
        watches.append(asyncio.ensure_future(closing.wait()))
    try:
        await asyncio.wait({task, *watches}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Stopping if closing is not None and closing.is_set() else Disconnected
    finally:
        for each in (task, *watches):
            each.cancel()
        await asyncio.gather(task, *watches, return_exceptions=True)


async def _disconnect(receive: Receive) -> bool:
    while (await receive())["type"] != "http.disconnect":
        pass
    return True


class EventStream:
    """A response of server-sent events. `on_end` is awaited however the stream ends."""

    def __init__(
        self,
        chunks: AsyncGenerator[bytes, None],
        on_end: Callable[[], Awaitable[None]] | None = None,
        closing: asyncio.Event | None = None,
    ) -> None:
        self._chunks = chunks
        self._on_end = on_end
        self._closing = closing
        self._started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await while_connected(receive, self._send_all(send), self._closing)
        except Stopping:
            if not self._started:
                raise
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            try:
                await self._chunks.aclose()
            finally:
                if self._on_end is not None:
                    await self._on_end()

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
        self._started = True
        async for chunk in self._chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
