"""Keeps a test process off the network: only loopback and unix sockets may be connected.

`install()` patches the socket module for the life of the process. A refused attempt is also noted
in `attempts`, so that code which swallows the exception still fails its test.
"""

import ipaddress
import socket
from collections.abc import Callable
from typing import Any

__all__ = ["NetworkBlocked", "attempts", "install", "is_local"]

attempts: list[str] = []
_installed: set[tuple[object, str]] = set()


class NetworkBlocked(RuntimeError):
    """Not an OSError on purpose: retry rules must not mistake it for a flaky server."""


def is_local(address: object) -> bool:
    """Whether a socket address (or a host to look up) stays on this machine."""
    if isinstance(address, bytes | None):
        return True
    host = address[0] if isinstance(address, tuple) else address
    if not isinstance(host, str) or host.startswith(("/", "\0")) or host in {"", "localhost"}:
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def install() -> None:
    """Guard connecting, sending datagrams and looking up names."""
    for owner, name, position in (
        (socket.socket, "connect", 1),
        (socket.socket, "connect_ex", 1),
        (socket.socket, "sendto", -1),
        (socket, "getaddrinfo", 0),
    ):
        if (owner, name) not in _installed:
            _installed.add((owner, name))
            setattr(owner, name, _guarded(getattr(owner, name), name, position))


def _guarded(original: Callable[..., Any], name: str, position: int) -> Callable[..., Any]:
    def call(*arguments: Any, **keywords: Any) -> Any:
        address = arguments[position] if arguments else keywords.get("host")
        if not is_local(address):
            attempts.append(f"{name}({address!r})")
            raise NetworkBlocked(f"a test tried to reach {address!r}; only loopback is allowed")
        return original(*arguments, **keywords)

    return call
