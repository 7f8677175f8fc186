"""The gateway over HTTP: the SDK's transport behind a door that asks who is there."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlm.gateway.principals import ANONYMOUS, Tokens, check_address
from rlm.web.hosts import HostPolicy
from rlm.web.serving import WebServer, serve_until_signal
from rlm.web.tokens import bearer_token

__all__ = ["HEALTH", "PATH", "make_app", "principal_of", "serve_http"]

PATH, HEALTH = "/mcp", "/health"
MOST_BODY_BYTES = 1 << 20
MOST_BODY_SECONDS = 30.0
MOST_CONNECTIONS = 512
ENDING_SECONDS = 3


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
    check_address(host, tokens)
    hosts = HostPolicy(
        host,
        port,
        allowed_hosts=allowed_hosts,
        allowed_origins=allowed_origins,
        accepts_addresses=False,
    )
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        max_request_body_size=MOST_BODY_BYTES,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        host=host,
        custom_starlette_routes=[Route(HEALTH, _health, methods=["GET"])],
    )
    return _Access(app, tokens, hosts)


async def _health(_request: Request) -> JSONResponse:
    return JSONResponse({"status": "ok"}, headers={"Cache-Control": "no-store"})


class _Access:
    """Passes requests with a token on, marked with its principal; `/health` needs none.

    The names and origins that may use the gateway are checked here, not by the SDK.
    """

    def __init__(self, app: ASGIApp, tokens: Tokens | None, hosts: HostPolicy) -> None:
        self._app = app
        self._tokens = tokens
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] != HEALTH:
            headers = Headers(scope=scope)
            principal = self._principal(headers)
            refusal = self._refusal(headers, principal)
            if refusal is not None:
                await refusal(scope, receive, send)
                return
            # The SDK lets a transport session be used only by the user that began it.
            scope["user"] = AuthenticatedUser(
                AccessToken(token="", client_id=principal or "", scopes=[])
            )
            scope.setdefault("state", {})["principal"] = principal
            receive = _in_time(receive)
        await self._app(scope, receive, send)

    def _refusal(self, headers: Headers, principal: str | None) -> Response | None:
        if principal is None:
            challenge = {"WWW-Authenticate": 'Bearer realm="rlm"'}
            return PlainTextResponse("a bearer token is needed", 401, challenge)
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if not self._hosts.allows_host(hosts):
            return PlainTextResponse("Invalid Host header", 421)
        if origins and not self._hosts.allows_origin(origins, hosts):
            return PlainTextResponse("Invalid Origin header", 403)
        return None

    def _principal(self, headers: Headers) -> str | None:
        if self._tokens is None:
            return ANONYMOUS
        token = bearer_token(headers.getlist("authorization"))
        return None if token is None else self._tokens.principal_of(token)


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


async def serve_http(app: ASGIApp, bound: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT; then requests have a moment to end."""
    server = WebServer(
        app,
        lifespan="on",
        max_connections=MOST_CONNECTIONS,
        shutdown_seconds=ENDING_SECONDS,
    )
    await serve_until_signal(server, bound, ready)
