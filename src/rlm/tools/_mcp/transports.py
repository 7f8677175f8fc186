"""Transports to MCP servers: a child process, streamable HTTP or server-sent events."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

from rlm.tools._mcp.address import Address
from rlm.tools._results import one_line

__all__ = ["MAX_MESSAGE_BYTES", "LastWords", "child_process", "connected"]

MAX_MESSAGE_BYTES = 64 << 20
GRACE_SECONDS = 2.0
"""How long a server may take to exit after its stdin is closed, and again after SIGTERM."""

POLL_SECONDS = 0.01
KEPT_BYTES = 4_000
MAX_WORDS_CHARS = 300


class LastWords:
    """The end of what a server wrote to its stderr, and how it ended."""

    def __init__(self) -> None:
        self._kept = b""
        self.status: int | None = None

    def add(self, data: bytes) -> None:
        self._kept = (self._kept + data)[-KEPT_BYTES:]

    def __str__(self) -> str:
        lines = self._kept.decode("utf-8", "replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "")
        status = "" if self.status is None else f" with status {self.status}"
        return status + (f"; it wrote: {one_line(last, MAX_WORDS_CHARS)}" if last else "")


@contextlib.asynccontextmanager
async def child_process(
    address: Address, words: LastWords
) -> AsyncGenerator[tuple[Any, Any], None]:
    """Return streams to and from a program, which gets only PATH, HOME and the like."""
    import anyio
    from mcp.client.stdio import get_default_environment

    process = await asyncio.create_subprocess_exec(
        *address.command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=get_default_environment() | address.environment,
        cwd=address.folder,
        start_new_session=True,
        limit=MAX_MESSAGE_BYTES,
    )
    arriving, messages = anyio.create_memory_object_stream[Any](0)
    requests, leaving = anyio.create_memory_object_stream[Any](0)
    tasks = [
        asyncio.create_task(_read(process, arriving)),
        asyncio.create_task(_write(process, leaving)),
        asyncio.create_task(_listen(process, words)),
    ]
    try:
        yield messages, requests
    finally:
        for stream in (messages, requests):
            stream.close()
        await asyncio.shield(asyncio.create_task(_end(process, tasks, words)))


async def _read(process: asyncio.subprocess.Process, arriving: Any) -> None:
    """Read messages, skipping other lines: many programs print a greeting."""
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp.types import jsonrpc_message_adapter

    assert process.stdout is not None
    with arriving, contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        while True:
            try:
                line = await process.stdout.readuntil(b"\n")
            except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                return
            with contextlib.suppress(ValueError):
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                await arriving.send(SessionMessage(message))


async def _write(process: asyncio.subprocess.Process, leaving: Any) -> None:
    assert process.stdin is not None
    with leaving, contextlib.suppress(OSError):
        async for each in leaving:
            text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(text.encode("utf-8", "replace") + b"\n")
            await process.stdin.drain()


async def _listen(process: asyncio.subprocess.Process, words: LastWords) -> None:
    """Read stderr continuously, so that a server never blocks on it."""
    assert process.stderr is not None
    while data := await process.stderr.read(1 << 16):
        words.add(data)


async def _end(
    process: asyncio.subprocess.Process, tasks: list[asyncio.Task[None]], words: LastWords
) -> None:
    """Close stdin and wait, then terminate its process group, then kill it."""
    assert process.stdin is not None
    process.stdin.close()
    if not await _has_ended(process):
        _end_group(process)
        await _has_ended(process)
    words.status = process.returncode
    _end_group(process, now=True)
    await _has_ended(process)
    await asyncio.wait(tasks[-1:], timeout=POLL_SECONDS)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    transport = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()  # A grandchild that left the group may still hold a pipe.


async def _has_ended(process: asyncio.subprocess.Process) -> bool:
    """Return whether it ends in time. `process.wait()` would also wait for inherited pipes."""
    loop = asyncio.get_running_loop()
    last = loop.time() + GRACE_SECONDS
    while process.returncode is None and loop.time() < last:  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(POLL_SECONDS)
    return process.returncode is not None


def _end_group(process: asyncio.subprocess.Process, *, now: bool = False) -> None:
    """Terminate or kill its whole group, which may outlive it; Windows has no such groups."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL if now else signal.SIGTERM)


CONNECT_SECONDS = 30.0

logging.getLogger("mcp.client").addHandler(logging.NullHandler())
"""The SDK logs tracebacks of failing servers; show them only if logging is configured."""


class _Watched:
    """A stream of messages that reports its end."""

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
    """Return streams to and from a server; `ended` is called when no more messages can arrive."""
    ways = {"stdio": child_process, "http": _http, "sse": _sse}
    async with ways[address.transport](address, words) as (messages, requests):
        yield _Watched(messages, ended), requests


async def _limit(response: Any) -> None:
    """Limit the body of a response; in an event stream, each event has its own limit."""
    import httpx2

    class Counted(httpx2.AsyncByteStream):
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = MAX_MESSAGE_BYTES
            async for piece in self._inner:
                left -= len(piece)
                if left < 0:
                    raise httpx2.StreamError(f"it is larger than {MAX_MESSAGE_BYTES >> 20} MiB")
                yield piece

        async def aclose(self) -> None:
            await self._inner.aclose()

    if not response.headers.get("content-type", "").startswith("text/event-stream"):
        response.stream = Counted(response.stream)


@contextlib.asynccontextmanager
async def _http(address: Address, words: LastWords) -> AsyncGenerator[tuple[Any, Any], None]:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    patience = httpx2.Timeout(CONNECT_SECONDS, read=None)  # Calls have their own time limits.
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
    """Connect over the older form of HTTP, for servers from before 2025."""
    from mcp.client.sse import sse_client

    async with sse_client(address.url, headers=address.headers) as streams:
        yield streams
