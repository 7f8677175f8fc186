"""Who may talk to the server: pages of its own, under names that are its own.

A page of somebody else's could have its name lead to this machine (DNS rebinding), or send forms
here. So the `Host` must be ours, whatever changes something needs our `Origin` and a token that
only our page knows, and nothing is ever shared with other origins. Another user of this machine can
send any header: so everything needs the token of the address that was printed.
"""

import hmac
import ipaddress
import re
import secrets
from collections.abc import Mapping, Sequence

from rlm.errors import ConfigError
from rlm.viewer import DEFAULT_PORT

__all__ = ["HEADERS", "Doors", "is_loopback"]

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
WILDCARDS = frozenset({"0.0.0.0", "::", "[::]", ""})  # noqa: S104 - what not to take for an address
MOST_TOKEN_CHARS = 200
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9.-]{1,253})(?::([0-9]{1,5}))?", re.ASCII)

_TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,200}")

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


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server at that host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Doors:
    """What one server accepts. Unless one is given, `token` is made anew for every process.

    Any program of this machine can reach a loopback address, those of its other users too: so a
    token is needed there as well, unless the operator says otherwise.
    """

    def __init__(
        self,
        host: str,
        port: int = DEFAULT_PORT,
        *,
        token: str | None = None,
        needs_token: bool = True,
    ) -> None:
        self.token = _checked(token) if token else secrets.token_urlsafe(32)
        self.needs_token = needs_token or not is_loopback(host)
        self.port = port
        self._any_address = host in WILDCARDS
        bracketed = f"[{host}]" if ":" in host and not host.startswith("[") else host
        own = set() if self._any_address else {bracketed.lower()}
        self._names = LOCAL_NAMES | own

    @property
    def cookie(self) -> str:
        """Cookies know no ports, so their names do."""
        return f"rlm-viewer-{self.port}"

    def is_our_host(self, headers: Sequence[str]) -> bool:
        """Whether the `Host` headers of a request are one, and name us."""
        if len(headers) != 1:
            return False
        match = _HOST.fullmatch(headers[0])
        if match is None or int(match[2] or 80) != self.port:
            return False
        name = match[1].lower()
        return name in self._names or (self._any_address and _is_address(name))

    def is_our_origin(self, origins: Sequence[str], hosts: Sequence[str]) -> bool:
        """Whether a request comes from a page that this very address served."""
        return self.is_our_host(hosts) and list(origins) == [f"http://{hosts[0]}"]

    def knows(self, token: str | None) -> bool:
        """Whether that is our token; how long that takes to tell says nothing about it."""
        if token is None or len(token) > MOST_TOKEN_CHARS:
            return False
        return hmac.compare_digest(token.encode("utf-8", "replace"), self.token.encode())


def _checked(token: str) -> str:
    if not _TOKEN.fullmatch(token):
        raise ConfigError(
            "a token for the viewer has 16 to 200 letters, digits, dashes, dots and underscores; "
            "`openssl rand -hex 24` makes one"
        )
    return token


def _is_address(name: str) -> bool:
    """Addresses can't be made to lead elsewhere; names can."""
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
