"""Which `Host` and `Origin` headers a server accepts.

A page on another site can point its own name at this machine (DNS rebinding) or send forms here.
So a server answers only to its own names, and pages of other origins may not ask it anything.
"""

import ipaddress
import re
from collections.abc import Sequence

__all__ = ["HostPolicy", "bracketed", "is_host", "is_loopback"]

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
WILDCARDS = frozenset({"0.0.0.0", "::", "[::]", ""})  # noqa: S104 - compared, never bound
DEFAULT_HTTP_PORT = 80
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9.-]{1,253})(?::([0-9]{1,5}))?", re.ASCII)


class HostPolicy:
    """The names and origins of one server.

    `port` may be None for an application that is mounted in another one and does not know its port.
    `allowed_hosts` are more names: `name` with any port, or `name:port`. `allowed_origins` are
    compared exactly. A server that listens on a wildcard also answers to literal addresses,
    which cannot be rebound; `accepts_addresses=False` turns that off.
    """

    def __init__(
        self,
        host: str,
        port: int | None,
        *,
        allowed_hosts: Sequence[str] = (),
        allowed_origins: Sequence[str] = (),
        accepts_addresses: bool = True,
    ) -> None:
        self.port = port
        self._any_address = accepts_addresses and host in WILDCARDS
        self._names = LOCAL_NAMES | ({bracketed(host).lower()} - WILDCARDS)
        self._allowed_hosts = frozenset(name.lower() for name in allowed_hosts)
        self._allowed_origins = frozenset(allowed_origins)

    def allows_host(self, headers: Sequence[str]) -> bool:
        """Return whether a request has exactly one `Host` header, which names this server."""
        match = _HOST.fullmatch(headers[0]) if len(headers) == 1 else None
        if match is None:
            return False
        name, port = match[1].lower(), int(match[2] or DEFAULT_HTTP_PORT)
        if {name, f"{name}:{port}"} & self._allowed_hosts:
            return True
        if self.port is not None and port != self.port:
            return False
        return name in self._names or (self._any_address and _is_address(name))

    def allows_origin(self, origins: Sequence[str], hosts: Sequence[str]) -> bool:
        """Return whether a request comes from a page of this address or an allowed origin."""
        if not self.allows_host(hosts) or len(origins) != 1:
            return False
        return origins[0] == f"http://{hosts[0]}" or origins[0] in self._allowed_origins


def is_host(text: str) -> bool:
    """Return whether a text is a name or an address, perhaps with a port, as in `Host`."""
    return _HOST.fullmatch(text) is not None


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server that listens on `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def bracketed(host: str) -> str:
    """Return the host as URLs write it: IPv6 addresses have brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
