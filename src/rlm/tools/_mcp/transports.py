"""The ways to a server, each with a sign when nothing more can come."""

import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

from rlm.tools._mcp.address import Address
from rlm.tools._mcp.stdio import MAX_MESSAGE_BYTES, LastWords, child_process

__all__ = ["connected"]

CONNECT_SECONDS = 30.0

logging.getLogger("mcp.client").addHandler(logging.NullHandler())
"""The SDK logs tracebacks of failing servers: for those who set logging up, not for all stderrs."""


class _Watched:
    """A stream of messages that tells when it has ended."""

    def __init__(self, stream: Any, ended: Callable[[], None]) -> None:
        self._stream = stream
        self._ended = ended

    async def receive(self) -> Any:
        import anyio

        try:
            return await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._ended()
            raise

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> "_Watched":
        return self

    async def __anext__(self) -> Any:
        import anyio

        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> "_Watched":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


@contextlib.asynccontextmanager
async def connected(
    address: Address, words: LastWords, ended: Callable[[], None]
) -> AsyncGenerator[tuple[Any, Any], None]:
    """Streams of messages from and to a server; `ended` is called when no more can come."""
    ways = {"stdio": child_process, "http": _http, "sse": _sse}
    async with ways[address.transport](address, words) as (messages, requests):
        yield _Watched(messages, ended), requests


async def _limit(response: Any) -> None:
    """Let the body of an answer end somewhere; a stream of events may go on, each has its limit."""
    import httpx2

    class Counted(httpx2.AsyncByteStream):
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = MAX_MESSAGE_BYTES
            async for piece in self._inner:
                left -= len(piece)
                if left < 0:
                    raise httpx2.StreamError(f"it has more than {MAX_MESSAGE_BYTES >> 20} MiB")
                yield piece

        async def aclose(self) -> None:
            await self._inner.aclose()

    if not response.headers.get("content-type", "").startswith("text/event-stream"):
        response.stream = Counted(response.stream)


@contextlib.asynccontextmanager
async def _http(address: Address, words: LastWords) -> AsyncGenerator[tuple[Any, Any], None]:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    patience = httpx2.Timeout(CONNECT_SECONDS, read=None)  # Calls have time limits of their own.
    most = MAX_MESSAGE_BYTES
    async with (
        httpx2.AsyncClient(
            headers=address.headers, timeout=patience, event_hooks={"response": [_limit]}
        ) as http,
        streamable_http_client(address.url, http_client=http, max_sse_event_size=most) as streams,
    ):
        yield streams


@contextlib.asynccontextmanager
async def _sse(address: Address, words: LastWords) -> AsyncGenerator[tuple[Any, Any], None]:
    """The older form of HTTP, which servers from before 2025 speak."""
    from mcp.client.sse import sse_client

    async with sse_client(address.url, headers=address.headers) as streams:
        yield streams
