"""A uvicorn server from start to end: its socket, its timeouts and the signals that stop it."""

import asyncio
import contextlib
import errno
import signal
import socket
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Hashable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, Literal, TypeVar

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from rlm._util.signals import listen, stop_listening
from rlm.errors import ConfigError
from rlm.web.hosts import bracketed
from rlm.web.round_robin import CONNECTION, Connection, RoundRobin

__all__ = ["WebServer", "in_thread", "open_socket", "serve_until_signal", "serving"]

HEAD_SECONDS = 20.0
"""How long the head of a request may take; silent connections are closed."""

REFUSED_BODY_SECONDS = 120.0
"""How long the rest of a body may take that got its response early; it is read and dropped."""

STALL_SECONDS = 30.0
KEEP_ALIVE_SECONDS = 75
BACKLOG = 2_048
MAX_CONNECTIONS = 4_096
ACCEPTED_AT_ONCE = 16
READ_AT_ONCE = 4
"""How many connections, and requests of one client, each iteration of the event loop takes."""

SWITCH_SECONDS = 0.000_5
"""How long a thread may keep Python to itself while the event loop waits for it."""

TICK_SECONDS = 1.0
T = TypeVar("T")
_Awaited = Literal["head", "rest of a head", "rest of a body"]
_SLOW = ("slow",)  # unlike the name of any client


def open_socket(host: str, port: int, server: str = "server") -> socket.socket:
    """Bind and listen, or raise a ConfigError that says why that is impossible.

    `server` is the word for the program in the message. Port 0 takes a free port.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host.strip("[]"), port), family=family, backlog=BACKLOG)
        # Connections inherit this; asyncio sets it only for sockets created with a protocol number.
        # Without it, the second part of a response waits 40 ms for the first to be confirmed.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return bound
    except OSError as error:
        raise ConfigError(_reason(error, host, port, server)) from error


def _reason(error: OSError, host: str, port: int, server: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is taken, perhaps by another {server}; choose one with --port N"
    if error.errno in {errno.EACCES, errno.EPERM}:
        return f"port {port} needs more privileges; choose one above 1024 with --port N"
    return f"the {server} can't listen on {host}:{port}: {error.strerror or error}"


class WebServer(uvicorn.Server):
    """Uvicorn with our timeouts. It leaves signals alone; `stop` ends it.

    `on_stop` is called once, when stopping begins: it has to end long streams.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        on_stop: Callable[[], None] = lambda: None,
        shutdown_seconds: float = 3.0,
        stall_seconds: float = STALL_SECONDS,
        max_connections: int = MAX_CONNECTIONS,
        lifespan: Literal["on", "off"] = "off",
    ) -> None:
        config = uvicorn.Config(
            app,
            http=type(
                "Protocol",
                (_Protocol,),
                {"stall_seconds": stall_seconds, "turns": RoundRobin(READ_AT_ONCE)},
            ),
            ws="none",
            lifespan=lifespan,
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=ACCEPTED_AT_ONCE,
            limit_concurrency=max_connections,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=max(1, round(shutdown_seconds)),
        )
        super().__init__(config)
        self._on_stop = on_stop
        self._stopping = asyncio.Event()
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
            for each in sockets or ():
                each.listen(BACKLOG)  # Asyncio takes one number for what waits and what it accepts.
        finally:
            self.listening.set()

    async def main_loop(self) -> None:
        """Wait for `stop` without polling; every second the `Date` header is renewed."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_SECONDS):
                    await self._stopping.wait()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    def stop(self) -> None:
        """Accept no more requests, and end after the current ones; the second time, end now."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self._stopping.set()
        if not self.force_exit:
            self._on_stop()


async def serve_until_signal(
    server: WebServer, bound: socket.socket, ready: Callable[[], None] = lambda: None
) -> None:
    """Serve until SIGINT or SIGTERM; a second signal stops without waiting for requests."""
    signals = (signal.SIGINT, signal.SIGTERM)
    listen(signals, server.stop)
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        async with _running(server, bound) as task:
            ready()
            await task
    finally:
        _stop_listening(signals, ending=server.should_exit)


def _stop_listening(signals: tuple[signal.Signals, ...], *, ending: bool) -> None:
    """Remove the handlers; while the program ends, ignore a further SIGTERM."""
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    stop_listening(signals)
    if ending:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)


@asynccontextmanager
async def serving(server: WebServer, bound: socket.socket) -> AsyncGenerator[str, None]:
    """Serve within a program until the block ends; yield the base URL."""
    host, port = bound.getsockname()[:2]
    async with _running(server, bound):
        yield f"http://{bracketed(host)}:{port}"


@asynccontextmanager
async def _running(
    server: WebServer, bound: socket.socket
) -> AsyncGenerator["asyncio.Task[Any]", None]:
    with bound:
        task = asyncio.create_task(server.serve([bound]))
        await server.listening.wait()
        try:
            yield task
        finally:
            if not task.done():
                server.stop()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@contextmanager
def in_thread(make: Callable[[], AbstractAsyncContextManager[T]]) -> Generator[T, None, None]:
    """Enter an asynchronous context manager on the event loop of a background thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="rlm-web", daemon=True)
    thread.start()

    async def enter() -> tuple[AbstractAsyncContextManager[T], T]:
        manager = make()
        return manager, await manager.__aenter__()

    async def leave() -> None:
        await manager.__aexit__(None, None, None)

    try:
        manager, entered = asyncio.run_coroutine_threadsafe(enter(), loop).result()
        try:
            yield entered
        finally:
            asyncio.run_coroutine_threadsafe(leave(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class _Protocol(H11Protocol):
    """Reads new requests in turns between clients, and closes connections that stall.

    Those are connections whose next request does not arrive, or whose client stops reading.
    """

    stall_seconds = STALL_SECONDS
    turns = RoundRobin(READ_AT_ONCE)
    _unread = b""
    _awaited: _Awaited | None = None
    _timer: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._connection = Connection()
        self.app_state = {**self.app_state, CONNECTION: self._connection}
        self._await("head")

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._stall_timer = None
        super().connection_lost(exc)

    # -- new requests ------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if not self._is_idle() or self.turns.may_begin(self._line):
            self._read(data)
        else:
            self._unread = data
            self.transport.pause_reading()
            self.turns.line_up(self._line, self._read_later)

    @property
    def _line(self) -> Hashable:
        """The line in which the next data waits: unknown clients share one, slow ones another."""
        return _SLOW if self._awaited == "rest of a head" else self._connection.sender

    def _read_later(self) -> bool:
        if self.transport.is_closing() or not self._unread:
            return False
        data, self._unread = self._unread, b""
        self.transport.resume_reading()
        try:
            self._read(data)
        except BaseException:
            self.transport.abort()
            raise
        return True

    def _read(self, data: bytes) -> None:
        super().data_received(data)
        if not self._is_idle():
            self._await(None)
        elif self.conn.their_state is h11.SEND_BODY:
            self._await("rest of a body")  # The response did not wait for it.
        else:
            self._await("rest of a head" if self.conn.trailing_data[0] else "head")

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.abort()  # It has had a response.

    def shutdown(self) -> None:
        """Answer what has arrived, then close."""
        with contextlib.suppress(h11.ProtocolError):  # The connection is then aborted.
            self._read_later()
        if self.conn.our_state is h11.ERROR:
            self.transport.abort()
        else:
            super().shutdown()

    # -- slow requests -----------------------------------------------------------------------

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _await(self, what: _Awaited | None) -> None:
        """Close the connection unless this arrives in time; more of the same gets no more time."""
        if what == self._awaited and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._awaited, self._timer = what, None
        if what is not None:
            self._timer = self.loop.call_later(self._patience(what), self._timed_out)

    def _patience(self, what: _Awaited) -> float:
        if what == "rest of a body":
            return REFUSED_BODY_SECONDS
        return KEEP_ALIVE_SECONDS if what == "head" and self.cycle is not None else HEAD_SECONDS

    def _timed_out(self) -> None:
        self._timer = None
        if self._is_idle() and not self.transport.is_closing():
            self.transport.close()

    # -- slow readers ------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_buffer(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        super().resume_writing()

    def _watch_buffer(self, size: int) -> None:
        self._stall_timer = self.loop.call_later(self.stall_seconds, self._check_buffer, size)

    def _check_buffer(self, before: int) -> None:
        size = self.transport.get_write_buffer_size()
        if size >= before:
            self.transport.abort()  # Closing would wait for the client to read.
        else:
            self._watch_buffer(size)
