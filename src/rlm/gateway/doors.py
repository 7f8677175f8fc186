"""Where a gateway listens, and to whom it may be open; known before anything heavy is imported."""

import ipaddress
import socket

from rlm.errors import ConfigError
from rlm.gateway.principals import Tokens

__all__ = ["bound_socket", "bracketed", "check_door", "is_loopback"]


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_door(host: str, tokens: Tokens | None) -> None:
    """Nobody opens folders to a network without asking who comes in."""
    if tokens is None and not is_loopback(host):
        raise ConfigError(
            f"{host} can be reached from other machines, so a token is needed: set --token-file "
            "or RLM_MCP_TOKEN, or listen at 127.0.0.1"
        )


def bound_socket(host: str, port: int) -> socket.socket:
    """Listen, or say why not, before anything else is begun."""
    try:
        kind, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=kind, backlog=128)
    except OSError as error:
        raise ConfigError(
            f"can't listen at {host} port {port}: {error.strerror or error}; choose another with "
            "--host and --port"
        ) from error


def bracketed(host: str) -> str:
    """As addresses of URLs write it."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
