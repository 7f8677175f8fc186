"""The gateway over a pipe, to the client that started it."""

import asyncio
import contextlib
import os
import signal
from typing import Any, cast

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from rlm.gateway.wire import Lines, Wire

__all__ = ["serve_stdio", "serve_until_signal"]

ENDING_SECONDS = 5.0


async def serve_stdio(server: "Server[Any]", wire: Wire) -> None:
    """Until the client closes its end."""
    lines = cast("anyio.AsyncFile[str]", Lines(wire.reading))
    out = os.fdopen(wire.writing, "w", encoding="utf-8", newline="\n")
    try:
        async with stdio_server(stdin=lines, stdout=anyio.wrap_file(out)) as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())
    except* BrokenPipeError:
        pass  # the client is gone, which is how it ends


async def serve_until_signal(server: "Server[Any]", wire: Wire) -> None:
    """Until the client closes its end, or SIGTERM or SIGINT comes."""
    serving = asyncio.ensure_future(serve_stdio(server, wire))
    loop = asyncio.get_running_loop()

    def end() -> None:
        serving.cancel()
        loop.call_later(ENDING_SECONDS, os._exit, 0)  # if a client does not take what it asked for

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    with contextlib.suppress(asyncio.CancelledError):
        await serving
