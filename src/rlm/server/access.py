"""Who may use the server, and one log line for every request."""

import logging
import secrets
import time
from collections.abc import Callable

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlm.errors import ConfigError
from rlm.records.recorders.console import one_line
from rlm.server.errors import ApiError
from rlm.server.metrics import Metrics
from rlm.server.settings import Settings
from rlm.server.tokens import Token, Tokens
from rlm.web.border import path_of
from rlm.web.hosts import HostPolicy, is_loopback

__all__ = ["Access", "RequestLog", "check_address", "token_of"]

log = logging.getLogger("rlm.server")
CLIENT_CLOSED = 499
PUBLIC = frozenset({"/health"})
"""Paths that need no token."""

METHODS = frozenset({"GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH"})


def check_address(host: str, has_tokens: bool) -> None:
    """Raise ConfigError if the network can reach a server that requires no token."""
    if not has_tokens and not is_loopback(host):
        raise ConfigError(
            f"other machines can reach {host}: set --token or --tokens-file, or listen on 127.0.0.1"
        )


class Access:
    """Checks the token of a request or, on a server without tokens, its origin."""

    def __init__(self, settings: Settings, tokens: Tokens, hosts: HostPolicy) -> None:
        self._settings = settings
        self._tokens = tokens
        self._hosts = hosts

    def admit(self, request: Request) -> str:
        """Store the token of the request in its state, and return its name.

        Raise ApiError if the request must be refused.
        """
        if not self._tokens:
            self._check_page(request)
        if path_of(request.scope) in PUBLIC:
            token = Token(name="-")
        else:
            token = self._tokens.find(request.headers.getlist("authorization"))
        request.state.token = token
        return token.name

    def _check_page(self, request: Request) -> None:
        """Refuse requests from other sites' pages in a browser on this machine."""
        hosts, origins = request.headers.getlist("host"), request.headers.getlist("origin")
        if not self._hosts.allows_host(hosts):
            port = "" if self._hosts.port is None else f":{self._hosts.port}"
            raise ApiError(
                403,
                f"this server answers to localhost{port} and to its --host; "
                "for other names, start it with a token",
                code="wrong_host",
            )
        allowed = all(origin in self._settings.cors_origins for origin in origins)
        if origins and not allowed and not self._hosts.allows_origin(origins, hosts):
            raise ApiError(
                403, "pages of this origin may not use this server (--cors)", code="wrong_origin"
            )
        site = request.headers.get("sec-fetch-site", "none")
        if not origins and site not in {"same-origin", "none"}:
            raise ApiError(403, "pages of other sites may not use this server", code="wrong_origin")


class RequestLog:
    """Gives every request an id, logs how it ended, and counts it.

    `route_of` returns the route of a path, for the metrics.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, route_of: Callable[[str], str]) -> None:
        self._app = app
        self._metrics = metrics
        self._route_of = route_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        started, status = time.monotonic(), CLIENT_CLOSED
        request_id = f"req_{secrets.token_hex(8)}"
        state = scope.setdefault("state", {})

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = (b"x-request-id", request_id.encode())
                message = {**message, "headers": [*message["headers"], own]}
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        finally:
            token: Token | None = state.get("token")
            who = f"{token.name if token else '-'} {request_id}"
            self._note(scope, who, status, time.monotonic() - started)

    def _note(self, scope: Scope, who: str, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in METHODS else "other"
        path = path_of(scope)
        log.info("%s", one_line(f"{method} {path} {status} {seconds:.3f}s {who}"))
        self._metrics.request_ended(method, self._route_of(path), status, seconds)


def token_of(request: Request) -> Token:
    """Return the token that `Access.admit` stored in the request."""
    token: Token = request.state.token
    return token
