"""The gateway over HTTP: the SDK's transport behind a door that asks who is there."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Generator, Sequence
from typing import Any

import uvicorn
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlm.gateway.doors import bracketed, check_door
from rlm.gateway.principals import ANONYMOUS, Tokens

__all__ = ["HEALTH", "PATH", "make_app", "principal_of", "serve_http"]

PATH, HEALTH = "/mcp", "/health"
MOST_BODY_BYTES = 1 << 20
MOST_BODY_SECONDS = 30.0
MOST_CONNECTIONS = 512
ENDING_SECONDS = 3
LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")


def principal_of(context: Any) -> str:
    """Who sent the request that is being answered: what the door wrote on it."""
    found: str = context.request.state.principal
    return found


def make_app(
    server: "Server[Any]",
    tokens: Tokens | None,
    *,
    host: str,
    port: int,
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
) -> ASGIApp:
    """An ASGI application. Without tokens it is for this machine alone.

    The names under which it answers are its own address, those of this machine and the allowed
    ones: a page in a browser can make any other name lead here (DNS rebinding). The same holds for
    origins; programs that are no browsers send none.
    """
    check_door(host, tokens)
    own = _with_port([*LOCAL_NAMES, bracketed(host)], port)
    more = [each for name in allowed_hosts for each in _named(name)]
    security = TransportSecuritySettings(
        allowed_hosts=[*own, *more],
        allowed_origins=[*(f"http://{each}" for each in own), *allowed_origins],
    )
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        max_request_body_size=MOST_BODY_BYTES,
        transport_security=security,
        host=host,
        custom_starlette_routes=[Route(HEALTH, _health, methods=["GET"])],
    )
    return _Door(app, tokens)


async def _health(_request: Request) -> JSONResponse:
    return JSONResponse({"status": "ok"}, headers={"Cache-Control": "no-store"})


class _Door:
    """Lets requests with a token pass, marked with its principal; `/health` needs none."""

    def __init__(self, app: ASGIApp, tokens: Tokens | None) -> None:
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] != HEALTH:
            principal = self._principal(Headers(scope=scope).getlist("authorization"))
            if principal is None:
                refusal = PlainTextResponse(
                    "a bearer token is needed", 401, {"WWW-Authenticate": 'Bearer realm="rlm"'}
                )
                await refusal(scope, receive, send)
                return
            # The SDK lets a transport session be used only by the user that began it.
            scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=principal, scopes=[]))
            scope.setdefault("state", {})["principal"] = principal
            receive = _in_time(receive)
        await self._app(scope, receive, send)

    def _principal(self, headers: Sequence[str]) -> str | None:
        if self._tokens is None:
            return ANONYMOUS
        if len(headers) != 1:
            return None
        scheme, _, token = headers[0].partition(" ")
        return self._tokens.principal_of(token.strip()) if scheme.lower() == "bearer" else None


def _in_time(receive: Receive) -> Receive:
    """Bodies that drip in are cut off; what comes after the body may take as long as it likes."""
    complete = False
    loop = asyncio.get_running_loop()
    until = loop.time() + MOST_BODY_SECONDS

    async def received() -> Message:
        nonlocal complete
        if complete:
            return await receive()
        try:
            async with asyncio.timeout_at(until):
                message = await receive()
        except TimeoutError:
            complete = True
            return {"type": "http.disconnect"}
        complete = message["type"] != "http.request" or not message.get("more_body", False)
        return message

    return received


async def serve_http(app: ASGIApp, listening: socket.socket, ready: Callable[[], None]) -> None:
    """Until SIGTERM or SIGINT; then requests have a moment to end."""
    config = uvicorn.Config(
        app,
        access_log=False,
        lifespan="on",
        limit_concurrency=MOST_CONNECTIONS,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=ENDING_SECONDS,
        ws="none",
    )
    server = _Server(config, ready)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.end, number)
    try:
        await server.serve([listening])
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        listening.close()


class _Server(uvicorn.Server):
    """Tells when it listens; and a signal ends it, not the whole process."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    def end(self, number: int) -> None:
        """The SDK's streams listen to this one, too: they end at once."""
        self.handle_exit(number, None)


def _with_port(names: Sequence[str], port: int) -> list[str]:
    """As a `Host` header names them; the usual port may be left out."""
    named = [f"{name}:{port}" for name in dict.fromkeys(names)]
    return [*named, *dict.fromkeys(names)] if port == 80 else named


def _named(name: str) -> list[str]:
    """What `--allowed-host` means: that very name and port, or the name with any."""
    has_port = name.rpartition(":")[2].isdigit() and not name.endswith("]")
    return [name] if has_port else [name, f"{name}:*"]
