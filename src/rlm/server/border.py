"""Every request passes here: who asks, what is answered when something fails, a line of log."""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlm.errors import RLMError
from rlm.records.recorders.console import one_line
from rlm.server.errors import ApiError, Closing, api_error
from rlm.server.metrics import Metrics
from rlm.server.settings import Settings
from rlm.server.streams import Gone
from rlm.server.tokens import Token, Tokens
from rlm.viewer.guard import Doors

__all__ = ["Border", "error_of", "send_json"]

log = logging.getLogger("rlm.server")
GONE = 499
OPEN = frozenset({"/health"})
"""What everybody may ask, without a token."""

WORDS = {404: "there is nothing at this address", 405: "this address can't be asked that way"}


def error_of(error: BaseException) -> ApiError:
    """What a client is told of an error; what it is not told is logged."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, asyncio.CancelledError):
        return Closing()  # who left is told nothing, so it was the server
    if isinstance(error, HTTPException):
        message = WORDS.get(error.status_code, error.detail)
        return ApiError(error.status_code, message, headers=error.headers or {})
    if isinstance(error, RLMError):
        told = api_error(error)
        if told.status >= 500:
            log.warning("%s", one_line(f"{type(error).__name__}: {error}", 1_000))
        return told
    log.error("a request failed", exc_info=error)
    return ApiError(
        500, "the server made a mistake here; its log says which", code="internal_error"
    )


async def send_json(
    send: Send, status: int, body: bytes, headers: dict[str, str] | None = None
) -> None:
    named = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        **(headers or {}),
    }
    encoded = [(name.lower().encode(), value.encode("latin-1")) for name, value in named.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


class Border:
    """Around all routes. `route_of` names the route of a path, for the metrics."""

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        tokens: Tokens,
        doors: Doors,
        metrics: Metrics,
        route_of: Callable[[str], str],
    ) -> None:
        self._app = app
        self._settings = settings
        self._tokens = tokens
        self._doors = doors
        self._metrics = metrics
        self._route_of = route_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # neither websockets nor a lifespan: the server keeps its own
        started, status, who = time.monotonic(), 0, "-"
        request_id = f"req_{secrets.token_hex(8)}"

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = [(b"x-request-id", request_id.encode()), *HEADERS]
                message["headers"] = [*message["headers"], *own]
            await send(message)

        try:
            token = self._admit(scope)
            who = token.name
            scope["state"] = {**scope.get("state", {}), "token": token}
            scope["app"] = self
            await self._app(scope, receive, noted)
        except (ClientDisconnect, Gone):
            status = status or GONE
        except Exception as error:  # noqa: BLE001 - the server's border: one bug must not end the others
            told = error_of(error)
            if not status:
                with suppress(OSError):
                    await send_json(
                        noted, told.status, msgspec.json.encode(told.body()), told.headers
                    )
        finally:
            self._note(scope, f"{who} {request_id}", status, time.monotonic() - started)

    def _note(self, scope: Scope, who: str, status: int, seconds: float) -> None:
        method, path = scope["method"], scope["path"]
        method = method if method in METHODS else "other"
        log.info("%s", one_line(f"{method} {path} {status or GONE} {seconds:.3f}s {who}"))
        self._metrics.request_ended(method, self._route_of(path), status or GONE, seconds)

    def _admit(self, scope: Scope) -> Token:
        headers = _all_of(scope)
        if not self._tokens:
            self._check_page(headers)
        if scope["path"] in OPEN:
            return Token(name="-")
        return self._tokens.who(next(iter(headers.get("authorization", [])), None))

    def _check_page(self, headers: dict[str, list[str]]) -> None:
        """Without tokens, pages of others that are open in a browser here must be kept out."""
        hosts, origins = headers.get("host", []), headers.get("origin", [])
        if not self._doors.is_our_host(hosts):
            raise ApiError(
                403,
                f"this server answers to localhost:{self._doors.port} and to the --host it was "
                "given; for other names, start it with a token",
                code="wrong_host",
            )
        allowed = all(origin in self._settings.cors_origins for origin in origins)
        if origins and not allowed and not self._doors.is_our_origin(origins, hosts):
            raise ApiError(
                403, "pages of this origin may not ask this server (--cors)", code="wrong_origin"
            )
        site = next(iter(headers.get("sec-fetch-site", [])), "none")
        if not origins and site not in {"same-origin", "none"}:
            raise ApiError(403, "pages of others may not ask this server", code="wrong_origin")


HEADERS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
METHODS = frozenset({"GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH"})


def _all_of(scope: Scope) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return found
