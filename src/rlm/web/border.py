"""The outermost ASGI application: every request passes it, whatever happens inside."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from urllib.parse import quote, unquote

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlm.web.events import Disconnected
from rlm.web.round_robin import RoundRobin, remember_sender

__all__ = ["Border", "path_of", "sent_path"]

HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


def path_of(scope: Scope) -> str:
    """Return the path of a request below the prefix that the application is mounted at."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def sent_path(scope: Scope) -> str:
    """Return the path below the prefix as it was sent: an encoded slash is still encoded."""
    raw = scope.get("raw_path")
    sent = quote(scope["path"]) if raw is None else raw.decode("latin-1").partition("?")[0]
    root = scope.get("root_path", "")
    if not root:
        return sent
    # The prefix may be encoded in any way, with up to three characters for each of its bytes.
    longest = 3 * len(root.encode("utf-8", "replace"))
    ends = [at for at, char in enumerate(sent[: longest + 1]) if char == "/"]
    if len(sent) <= longest:
        ends.append(len(sent))
    for end in ends:
        if unquote(sent[:end]) == root:
            return sent[end:]
    return sent


class Border:
    """Checks requests, adds headers that a response lacks, and answers exceptions.

    `admit` returns the name of the client, if clients have names, and raises if a request must be
    refused. Requests begin in turns between clients; all that are refused count as one client.
    `error_response` turns an exception of `admit` or
    of the application into a response, and logs what the client does not see.
    """

    def __init__(
        self,
        app: ASGIApp,
        admit: Callable[[Request], str | None],
        error_response: Callable[[Exception], Response],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._app = app
        self._admit = admit
        self._turns = RoundRobin(iterations=4)
        self._error_response = error_response
        self._headers = {**HEADERS, **(headers or {})}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # There are no websockets; starting and stopping happens outside.
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message = {**message, "headers": list(message.get("headers", ()))}
                headers = MutableHeaders(raw=message["headers"])
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._begin(Request(scope))
            # With an "app", routers raise 404 and 405 instead of answering.
            await self._app({**scope, "app": self}, receive, send_with_headers)
        except (ClientDisconnect, Disconnected):
            return
        except Exception as error:  # noqa: BLE001 - one bug must not end the other requests
            if not started:
                with suppress(OSError):
                    await self._error_response(error)(scope, receive, send_with_headers)

    async def _begin(self, request: Request) -> None:
        """Wait for the turn of the client; raise if the request must be refused."""
        client: tuple[str | None, bool] = (None, False)
        try:
            client = (self._admit(request), True)
        finally:
            remember_sender(request.scope, client)
            await self._turns.turn_of(client)
