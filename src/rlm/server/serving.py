"""The server on a socket: until a signal, or within a program."""

import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from rlm.server.app import make_app
from rlm.server.service import Service
from rlm.web.serving import WebServer, serve_until_signal, serving

__all__ = ["listening", "serve"]

LAST_SECONDS = 5.0
"""After the grace period, how long cancelled requests may take to end."""


def _server(service: Service) -> WebServer:
    return WebServer(
        make_app(service),
        on_stop=service.begin_to_close,
        shutdown_seconds=service.settings.grace_seconds + LAST_SECONDS,
        stall_seconds=service.settings.send_seconds,
    )


async def serve(service: Service, bound: socket.socket) -> None:
    """Serve until a signal; a second one does not wait for current requests."""
    with bound:
        async with service:
            await serve_until_signal(_server(service), bound)


@asynccontextmanager
async def listening(service: Service, bound: socket.socket) -> AsyncGenerator[str, None]:
    """Serve until the block ends; yield the base URL."""
    with bound:
        async with service, serving(_server(service), bound) as url:
            yield url
