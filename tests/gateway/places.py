"""Gateways for tests, and real clients that reach them: in memory, over stdio and over HTTP.

A place says how a client gets there and which era of the protocol it speaks.
"""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from rlm.gateway.gateway import Gateway
from rlm.gateway.server import make_server
from tests.gateway.recipes import Recipe

REPOSITORY = Path(__file__).resolve().parents[2]
PRINCIPAL = "x-principal"
PLACES = ("memory", "memory-legacy", "stdio", "stdio-legacy", "http", "http-legacy")
EVERYWHERE = [
    pytest.param(place, marks=pytest.mark.heavy) if place == "stdio-legacy" else place
    for place in PLACES
]
HERE = tuple(place for place in PLACES if "stdio" not in place)
"""Transports with the gateway in the process of the test."""

NEAR = [
    pytest.param(place, marks=pytest.mark.heavy) if place not in {"memory", "http"} else place
    for place in PLACES
]
"""The same, without starting a process for each test unless there is time for it."""


def principal_of(context: Any) -> str:
    """Over HTTP a header names the principal; elsewhere there is only one."""
    request = getattr(context, "request", None)
    return "local" if request is None else str(request.headers.get(PRINCIPAL, "local"))


@dataclass
class House:
    """A gateway that runs; `client` opens as many clients as a test needs."""

    place: str
    recipe: Recipe
    gateway: Gateway | None = None
    url: str = ""

    @asynccontextmanager
    async def client(
        self, principal: str = "local", **options: Any
    ) -> AsyncGenerator[Client, None]:
        """A connected client of the SDK."""
        mode = "legacy" if self.place.endswith("legacy") else "auto"
        async with (
            httpx2.AsyncClient(headers={PRINCIPAL: principal}, timeout=60) as carrier,
            Client(self._server(principal, carrier), mode=mode, **options) as client,
        ):
            yield client

    def _server(self, principal: str, carrier: httpx2.AsyncClient) -> Any:
        if self.url:
            return streamable_http_client(self.url, http_client=carrier)
        if self.gateway is not None:
            return make_server(self.gateway, lambda _: principal)
        return StdioServerParameters(
            command=sys.executable,
            args=["-m", "tests.gateway.stdio_server", self.recipe.dumped()],
            env={"PYTHONPATH": f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'src'}"},
            cwd=str(REPOSITORY),
        )


@asynccontextmanager
async def opened(place: str, recipe: Recipe, **more: Any) -> AsyncGenerator[House, None]:
    """Open a gateway behind a transport; close everything at the end."""
    if place.startswith("stdio"):
        yield House(place, recipe)
        return
    gateway = recipe.gateway(**more)
    try:
        if place.startswith("memory"):
            yield House(place, recipe, gateway)
            return
        app = make_server(gateway, principal_of).streamable_http_app()
        async with _served(app) as port:
            yield House(place, recipe, gateway, f"http://127.0.0.1:{port}/mcp")
    finally:
        await gateway.close()


@asynccontextmanager
async def _served(app: Any) -> AsyncGenerator[int, None]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=2)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started:
            await asyncio.sleep(0.005)
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            await serving


async def asked(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The structured answer of a tool that succeeds."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert isinstance(result.structured_content, dict)
    return result.structured_content


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """The message to a client that does not get what it asks for."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.structured_content
    assert result.structured_content is None
    (block,) = result.content
    text: str = getattr(block, "text")  # noqa: B009 - content may be of other kinds
    return text


async def session_of(client: Client, **arguments: Any) -> str:
    found: str = (await asked(client, "rlm_session_create", **arguments))["session"]
    return found
