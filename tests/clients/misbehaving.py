"""A real HTTP server on loopback that does what a test tells it to, however wrong."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from rlm.messages import Message, Request

Behaviour = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Where it listens, what it received, and how it answers next."""

    def __init__(self) -> None:
        self.url = ""
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.bodies: list[dict[str, Any]] = []
        self.connections: set[object] = set()
        self.reached = asyncio.Event()
        self.behave: Behaviour = replies(completion("hello"))

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(request.path)
        self.headers.append(dict(request.headers))
        self.bodies.append(json.loads(await request.read()))
        self.connections.add(request.transport)
        self.reached.set()
        return await self.behave(request)


@asynccontextmanager
async def serving() -> AsyncGenerator[Server, None]:
    server = Server()
    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/{path:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}/v1"
    try:
        yield server
    finally:
        await runner.cleanup()


def asked(text: str = "hi", **facts: Any) -> Request:
    """A small request."""
    given: dict[str, Any] = {
        "model": "m-1",
        "messages": (Message("user", text),),
        "max_output_tokens": 50,
    }
    return Request(**{**given, **facts})


def completion(text: str | None, **facts: Any) -> dict[str, Any]:
    """A well-formed response body."""
    return {
        "model": "m-1-2031",
        "choices": [
            {
                "message": {"role": "assistant", "content": text, **facts.pop("message", {})},
                "finish_reason": facts.pop("finish_reason", "stop"),
            }
        ],
        **facts,
    }


def replies(payload: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Behaviour:
    async def behave(_request: web.Request) -> web.StreamResponse:
        return web.json_response(payload, status=status, headers=headers)

    return behave


def sends(text: str, *, status: int = 200, content_type: str = "text/plain") -> Behaviour:
    async def behave(_request: web.Request) -> web.StreamResponse:
        return web.Response(text=text, status=status, content_type=content_type)

    return behave


def hangs_up(sent: bytes = b"", promised: int = 0) -> Behaviour:
    """Closes the connection: before a status line, or after a part of the promised body."""

    async def behave(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(promised)})
        if promised:
            await response.prepare(request)
            await response.write(sent)
        assert request.transport is not None
        request.transport.abort()
        return response

    return behave


def never_answers(gone: asyncio.Event | None = None) -> Behaviour:
    """Waits until the other side has closed the connection, and then sets `gone`."""

    async def behave(request: web.Request) -> web.StreamResponse:
        try:
            await asyncio.Event().wait()
        finally:
            if gone is not None:
                gone.set()
        raise AssertionError("it waits forever")

    return behave


def streams(pieces: Sequence[bytes], *, cut: bool = False) -> Behaviour:
    """Sends an event stream piece by piece; with `cut`, drops the connection at the end."""

    async def behave(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(0)
        if cut:
            assert request.transport is not None
            request.transport.abort()
        return response

    return behave


def event(payload: Any) -> bytes:
    return b"data: " + json.dumps(payload, ensure_ascii=False).encode() + b"\n\n"


def delta(text: str | None = None, *, finish: str | None = None, **facts: Any) -> dict[str, Any]:
    """One chunk of a stream."""
    said = {} if text is None else {"content": text}
    return {"model": "m-1-2031", "choices": [{"delta": {**said, **facts}, "finish_reason": finish}]}
