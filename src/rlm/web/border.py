"""The outermost ASGI application: every request passes it, whatever happens inside."""

from collections.abc import Callable, Mapping
from contextlib import suppress

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlm.web.events import Disconnected

__all__ = ["Border", "path_of"]

HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


def path_of(scope: Scope) -> str:
    """Return the path of a request below the prefix that the application is mounted at."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


class Border:
    """Checks requests, adds headers that a response lacks, and answers exceptions.

    `admit` raises if a request must be refused. `error_response` makes the answer to an exception
    of `admit` or of the application, and logs what the client does not get to see.
    """

    def __init__(
        self,
        app: ASGIApp,
        admit: Callable[[Request], None],
        error_response: Callable[[Exception], Response],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._app = app
        self._admit = admit
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
            self._admit(Request(scope))
            # With an "app", routers raise 404 and 405 instead of answering.
            await self._app({**scope, "app": self}, receive, send_with_headers)
        except (ClientDisconnect, Disconnected):
            return
        except Exception as error:  # noqa: BLE001 - one bug must not end the other requests
            if not started:
                with suppress(OSError):
                    await self._error_response(error)(scope, receive, send_with_headers)
