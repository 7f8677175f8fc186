"""The gateway over HTTP: the SDK's transport behind checks of tokens, hosts and origins."""

import asyncio
import signal
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
from rlm.web.round_robin import RoundRobin, remember_sender
from rlm.web.serving import WebServer, serve_until_signal
from rlm.web.tokens import bearer_token

__all__ = ["HEALTH", "PATH", "make_app", "principal_of", "serve_http"]

PATH, HEALTH = "/mcp", "/health"
MAX_BODY_BYTES = 1 << 20
MAX_BODY_SECONDS = 30.0
MAX_CONNECTIONS = 512
ENDING_SECONDS = 3


def principal_of(context: Any) -> str:
    """Return the principal that `_Access` stored in the request."""
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
    """Return an ASGI application. Without tokens it is for this machine only.

    It answers to its own address, this machine's names and the allowed ones: a page in a browser
    can make any other name lead here (DNS rebinding). The same applies to origins, which only
    browsers send.
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
        max_request_body_size=MAX_BODY_BYTES,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        host=host,
        custom_starlette_routes=[Route(HEALTH, _health, methods=["GET"])],
    )
    return _Access(app, tokens, hosts)


async def _health(_request: Request) -> JSONResponse:
    return JSONResponse({"status": "ok"}, headers={"Cache-Control": "no-store"})


class _Access:
    """Admits requests with a token, and stores its principal; `/health` needs none.

    Requests begin in turns between principals; all without a known token count as one.
    """

    def __init__(self, app: ASGIApp, tokens: Tokens | None, hosts: HostPolicy) -> None:
        self._app = app
        self._tokens = tokens
        self._hosts = hosts
        self._turns = RoundRobin(iterations=4)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] != HEALTH:
            headers = Headers(scope=scope)
            principal = self._principal(headers)
            remember_sender(scope, principal)
            await self._turns.turn_of(principal)
            refusal = self._refusal(headers, principal)
            if refusal is not None:
                await refusal(scope, receive, send)
                return
            # The SDK lets only the user who started a transport session use it.
            scope["user"] = AuthenticatedUser(
                AccessToken(token="", client_id=principal or "", scopes=[])
            )
            scope.setdefault("state", {})["principal"] = principal
            receive = _in_time(receive)
        await self._app(scope, receive, send)

    def _refusal(self, headers: Headers, principal: str | None) -> Response | None:
        if principal is None:
            challenge = {"WWW-Authenticate": 'Bearer realm="rlm"'}
            return PlainTextResponse("a bearer token is required", 401, challenge)
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
    """Limit the time that a body may take; waiting for a disconnect afterwards has no limit."""
    complete = False
    loop = asyncio.get_running_loop()
    until = loop.time() + MAX_BODY_SECONDS

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
    """Serve until SIGTERM or SIGINT; then requests have a moment to finish."""
    server = WebServer(
        app,
        lifespan="on",
        max_connections=MAX_CONNECTIONS,
        shutdown_seconds=ENDING_SECONDS,
        # The SDK's streams end when this is called: everywhere in the process, which ends too.
        on_stop=lambda: server.handle_exit(signal.SIGTERM, None),
    )
    await serve_until_signal(server, bound, ready)
