"""Who may use the viewer: only its own page, under its own names, with its token.

Requests that change something need our `Origin` and a token that only our page knows. Other users
of this machine can send any header they like, so every request needs the printed link's token.
"""

import logging
from collections.abc import Mapping
from typing import Protocol

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from rlm.errors import ConfigError
from rlm.viewer.library import Busy, TooLarge, Unknown
from rlm.web.border import path_of
from rlm.web.events import Stopping
from rlm.web.hosts import HostPolicy, bracketed, is_loopback
from rlm.web.responses import STATUS_MESSAGES, json_response, without_paths
from rlm.web.tokens import LinkToken, bearer_token

__all__ = ["HEADERS", "Access", "Refused", "ViewerAccess", "error_response"]

MAX_ERROR_CHARS = 1_000
SAFE_METHODS = frozenset({"GET", "HEAD"})
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "Server": "rlm",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_log = logging.getLogger("rlm")


class Refused(ConfigError):
    """The request is not allowed."""


class ViewerAccess(Protocol):
    """Who may use a viewer, and the token that its page needs to change something."""

    def admit(self, request: Request) -> None: ...

    def page_token(self, request: Request) -> str: ...

    def set_cookie(self, request: Request, response: Response) -> None: ...


class Access:
    """What one viewer accepts.

    Any program on this machine, even another user's, can reach a loopback address. So a token is
    required there too, unless the operator says otherwise.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        token: str | None = None,
        needs_token: bool = True,
        prefix: str = "",
    ) -> None:
        self._host = host
        self._prefix = prefix
        self.hosts = HostPolicy(host, port)
        self.token = LinkToken(token)
        self.needs_token = needs_token or not is_loopback(host)

    @property
    def url(self) -> str:
        """The address to open, with the token if one is required."""
        query = f"?token={self.token.value}" if self.needs_token else ""
        return f"http://{bracketed(self._host)}:{self.hosts.port}{self._prefix}/{query}"

    def page_token(self, request: Request) -> str:
        """Return the token that the page sends with requests that change something."""
        return self.token.value

    @property
    def cookie(self) -> str:
        """The name of the cookie. Cookies ignore ports, so the name contains the port."""
        return f"rlm-viewer-{self.hosts.port}"

    def admit(self, request: Request) -> None:
        """Raise Refused unless the request is meant for this viewer and may be answered."""
        hosts = request.headers.getlist("host")
        if not self.hosts.allows_host(hosts):
            raise Refused(
                f"this viewer answers to localhost:{self.hosts.port} and to its --host; "
                f"forward a port with the same number ({self.hosts.port})"
            )
        site = request.headers.get("sec-fetch-site", "none")
        if path_of(request.scope).startswith("/api/") and site not in {"same-origin", "none"}:
            raise Refused("pages of other sites may not use this viewer")
        if self.needs_token and not self._has_token(request):
            raise Refused("open the address that `rlm view` printed: its token is required")
        if request.method not in SAFE_METHODS:
            if not self.hosts.allows_origin(request.headers.getlist("origin"), hosts):
                raise Refused("only the viewer's own page may make changes")
            if not self.token.matches(request.headers.get("x-rlm-token")):
                raise Refused("this page belongs to an earlier viewer: reload it")

    def _has_token(self, request: Request) -> bool:
        cookie = request.cookies.get(self.cookie)
        return self.token.matches(cookie) or self.shows_token(request)

    def shows_token(self, request: Request) -> bool:
        """Return whether a header, or the address of the page, contains the token."""
        if self.token.matches(bearer_token(request.headers.getlist("authorization"))):
            return True
        return path_of(request.scope) in {"", "/"} and self.token.matches(
            request.query_params.get("token")
        )

    def set_cookie(self, request: Request, response: Response) -> None:
        """Store the token of a link, which the page removes from its address, in a cookie."""
        if self.needs_token and self.shows_token(request):
            rules = f"HttpOnly; Path={self._prefix or '/'}; SameSite=Strict"
            response.headers.append("Set-Cookie", f"{self.cookie}={self.token.value}; {rules}")


def error_response(error: Exception) -> Response:
    """Answer an exception with its status and one sentence."""
    if isinstance(error, HTTPException):
        message = STATUS_MESSAGES.get(error.status_code, error.detail)
        return _error(message, error.status_code)
    if isinstance(error, ConfigError):
        return _error(str(error), _status_of(error))
    if isinstance(error, Stopping):
        return _error("the viewer is shutting down", 503)
    _log.error("the viewer failed to answer a request", exc_info=error)
    return _error("the viewer failed to answer; see its terminal for the reason", 500)


def _status_of(error: ConfigError) -> int:
    statuses = {Refused: 403, Unknown: 404, TooLarge: 413, Busy: 503}
    return next((status for kind, status in statuses.items() if isinstance(error, kind)), 400)


def _error(text: str, status: int) -> Response:
    return json_response({"error": without_paths(text)[:MAX_ERROR_CHARS]}, status)
