"""A uvicorn server from start to end, and the border around an application."""

import asyncio
import logging
import urllib.request
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from typing import Any

import aiohttp
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from rlm.errors import ConfigError
from rlm.web.border import Border
from rlm.web.events import EventStream, Stopping, event, while_connected
from rlm.web.responses import json_response
from rlm.web.serving import WebServer, in_thread, open_socket, serving


async def hello(request: Request) -> Response:
    return PlainTextResponse("hello")


async def fail(request: Request) -> Response:
    raise ValueError("a bug")


async def refuse(request: Request) -> Response:
    raise HTTPException(418, "teapot")


def application(*more: Route) -> ASGIApp:
    def admit(request: Request) -> None:
        if "x-refused" in request.headers:
            raise PermissionError

    def error_response(error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        return json_response({"error": type(error).__name__}, status)

    routes = [Route("/", hello), Route("/bug", fail), Route("/tea", refuse), *more]
    return Border(Router(routes), admit, error_response, {"X-Own": "1"})


@pytest.mark.parametrize(
    ("path", "status", "headers"),
    [
        ("/", 200, {}),
        ("/bug", 500, {}),
        ("/tea", 418, {}),
        ("/nothing", 404, {}),
        ("/", 500, {"X-Refused": "1"}),
    ],
)
async def test_every_response_has_a_status_and_the_security_headers(
    path: str, status: int, headers: dict[str, str]
) -> None:
    async with (
        serving(WebServer(application()), open_socket("127.0.0.1", 0)) as url,
        aiohttp.ClientSession() as session,
        session.get(url + path, headers=headers) as response,
    ):
        assert response.status == status
        assert response.headers["X-Own"] == "1"
        assert response.headers["Cache-Control"] == "no-store"
        assert "Server" not in response.headers


async def test_a_stream_ends_with_its_client_or_its_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    closing, ended = asyncio.Event(), asyncio.Semaphore(0)

    async def endless() -> AsyncGenerator[bytes, None]:
        while True:
            yield event(b"{}", "tick", "1")
            await asyncio.sleep(0.01)

    async def on_end() -> None:
        ended.release()

    async def stream(request: Request) -> EventStream:
        return EventStream(endless(), on_end, closing)

    server = WebServer(application(Route("/stream", stream)), on_stop=closing.set)
    async with asyncio.timeout(60), aiohttp.ClientSession() as session:
        async with serving(server, open_socket("127.0.0.1", 0)) as url:
            async with session.get(f"{url}/stream") as response:
                assert response.content_type == "text/event-stream"
                assert await response.content.readuntil(b"\n\n") == (
                    b"event: tick\nid: 1\ndata: {}\n\n"
                )
            await ended.acquire()  # The client has disconnected.
            stays = await session.get(f"{url}/stream")
            await stays.content.readline()
        await ended.acquire()  # The server has stopped.
        await stays.read()
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


async def test_a_second_stop_does_not_wait(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    waiting = asyncio.Event()

    async def stuck(request: Request) -> Response:
        waiting.set()
        await asyncio.Event().wait()
        return PlainTextResponse("never")

    stops: list[None] = []
    server = WebServer(
        application(Route("/stuck", stuck)),
        on_stop=lambda: stops.append(None),
        shutdown_seconds=1_000,
    )
    async with asyncio.timeout(60), aiohttp.ClientSession() as session:
        async with serving(server, open_socket("127.0.0.1", 0)) as url:
            asking = asyncio.ensure_future(session.get(f"{url}/stuck"))
            await waiting.wait()
            server.stop()
            server.stop()
        asking.cancel()
    assert stops == [None]


def test_a_server_in_a_thread_serves_until_the_block_ends() -> None:
    def make() -> AbstractAsyncContextManager[str]:
        return serving(WebServer(application()), open_socket("127.0.0.1", 0))

    with in_thread(make) as url, urllib.request.urlopen(url, timeout=60) as response:
        assert response.read() == b"hello"
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url, timeout=60)


def test_an_address_that_cannot_be_bound_is_explained() -> None:
    with open_socket("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"port {port} is taken, perhaps by another viewer"):
            open_socket("127.0.0.1", port, "viewer")
    with pytest.raises(ConfigError, match="can't listen on 192\\.0\\.2\\.1"):
        open_socket("192.0.2.1", 0)


async def test_work_is_cancelled_when_the_server_stops() -> None:
    closing, begun, cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def receive() -> Any:
        return await asyncio.Event().wait()

    task = asyncio.ensure_future(while_connected(receive, work(), closing))
    await begun.wait()
    closing.set()
    with pytest.raises(Stopping):
        await task
    assert cancelled.is_set()
