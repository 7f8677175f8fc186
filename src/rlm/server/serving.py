"""A server from its start to its end: a socket, uvicorn on it, and signals that end it gently."""

import asyncio
import errno
import logging
import signal
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from rlm.errors import ConfigError
from rlm.server.app import make_app
from rlm.server.service import Service
from rlm.viewer.guard import is_loopback

__all__ = ["check_address", "listening", "open_socket", "serve"]

HEAD_SECONDS = 20.0
"""So long may the head of a request take: a connection that says nothing is not kept."""

KEEP_ALIVE_SECONDS = 75
BACKLOG = 2_048
MOST_CONNECTIONS = 4_096
LAST_SECONDS = 5.0
_log = logging.getLogger("rlm.server")


class _PatientProtocol(H11Protocol):
    """Closes connections whose next request does not come whole, or that take nothing any more."""

    stall_seconds = 30.0
    _head_timer: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._head_timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        self._head_timer = self._stall_timer = None
        super().connection_lost(exc)

    # -- requests that do not come -----------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_idle():
            if self._head_timer is None:
                self._wait_for_head()
        elif self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait_for_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._too_slow)

    def _too_slow(self) -> None:
        self._head_timer = None
        if self._is_idle() and not self.transport.is_closing():
            self.transport.close()

    # -- answers that nobody reads -----------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._look_later(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        super().resume_writing()

    def _look_later(self, waiting: int) -> None:
        self._stall_timer = self.loop.call_later(self.stall_seconds, self._look, waiting)

    def _look(self, waiting: int) -> None:
        now = self.transport.get_write_buffer_size()
        if now >= waiting:
            self.transport.abort()  # Closing would wait for the client to read.
        else:
            self._look_later(now)


class _Server(uvicorn.Server):
    """Tells the service at once that the end has come: its streams have to hear of it."""

    def __init__(self, config: uvicorn.Config, closes: Callable[[], None]) -> None:
        super().__init__(config)
        self._closes = closes
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        finally:
            self.up.set()

    def stop(self) -> None:
        """Take no more requests, and end when those that go on have ended; now, the second time."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self._closes()


def check_address(host: str, has_tokens: bool) -> None:
    """Who listens to the network has to ask for a token."""
    if not has_tokens and not is_loopback(host):
        raise ConfigError(
            f"at {host} others than this machine can ask: set --token or --tokens-file, or listen "
            "at 127.0.0.1"
        )


def open_socket(host: str, port: int) -> socket.socket:
    """Bind, or say why that can't be."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host.strip("[]"), port))
        bound.listen(BACKLOG)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise ConfigError(_why_not(error, host, port)) from error
    return bound


def _why_not(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is taken, perhaps by another server; choose one with --port N"
    if error.errno in {errno.EACCES, errno.EPERM}:
        return f"port {port} is not for everyone; choose one above 1024 with --port N"
    return f"the server can't listen at {host}:{port}: {error.strerror or error}"


def _server(service: Service) -> _Server:
    stall = {"stall_seconds": service.settings.send_seconds}
    config = uvicorn.Config(
        make_app(service),
        http=type("Protocol", (_PatientProtocol,), stall),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(service.settings.grace_seconds + LAST_SECONDS),
    )
    return _Server(config, service.begin_to_close)


async def serve(service: Service, bound: socket.socket) -> None:
    """Answer until a signal comes; a second one does not wait for requests that go on."""
    loop = asyncio.get_running_loop()
    with bound:
        async with service:
            server = _server(service)
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, server.stop)
            await server._serve([bound])


@asynccontextmanager
async def listening(service: Service, bound: socket.socket) -> AsyncGenerator[str, None]:
    """The same within a program: it answers at the address until the block ends."""
    with bound:
        async with service:
            server = _server(service)
            task: asyncio.Task[Any] = asyncio.create_task(server._serve([bound]))
            await server.up.wait()
            try:
                host, port = bound.getsockname()[:2]
                yield f"http://{host}:{port}"
            finally:
                server.stop()
                with suppress(asyncio.CancelledError):
                    await task
