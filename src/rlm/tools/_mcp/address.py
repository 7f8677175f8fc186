"""Where a server is and how it is reached, checked before anything is started."""

import math
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct, field

from rlm.errors import ConfigError

__all__ = ["Address", "Transport", "parse_address"]

Transport = Literal["stdio", "http", "sse"]
MAX_SHOWN_CHARS = 60


class Address(Struct, frozen=True):
    """A command to start, or a URL; everything needed to reach a server, including secrets."""

    transport: Transport
    command: tuple[str, ...] = ()
    url: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    folder: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    start_seconds: float = 60.0

    def __str__(self) -> str:
        """Return a text for messages: a program without arguments, or a URL without secrets."""
        if self.transport == "stdio":
            return Path(self.command[0]).name[:MAX_SHOWN_CHARS]
        parts = urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2]
        return f"{parts.scheme}://{host}{parts.path}"[: 2 * MAX_SHOWN_CHARS]


def parse_address(
    server: str | Sequence[str],
    *,
    transport: Transport | None,
    env: Mapping[str, str] | None,
    cwd: str | Path | None,
    headers: Mapping[str, str] | None,
    start_seconds: float,
) -> Address:
    """Return the address of a URL or a command, which no shell sees; ConfigError if wrong."""
    check_seconds("start_seconds", start_seconds)
    is_url = isinstance(server, str) and server.lower().startswith(("http://", "https://"))
    if transport not in (None, *(("http", "sse") if is_url else ("stdio",))):
        what = "a URL" if is_url else "a command"
        raise ConfigError(f"mcp: transport {transport!r} can't be used with {what}")
    if is_url:
        if env is not None or cwd is not None:
            raise ConfigError("mcp: env= and cwd= work only for servers started by a command")
        return Address(
            transport or "http",
            url=_url(str(server)),
            headers=_texts("headers", headers),
            start_seconds=start_seconds,
        )
    if headers is not None:
        raise ConfigError("mcp: headers= works only for servers at a URL; use env= for a command")
    return Address(
        "stdio",
        command=_command(server),
        environment=_texts("env", env),
        folder=None if cwd is None else os.fspath(cwd),
        start_seconds=start_seconds,
    )


def check_seconds(name: str, seconds: float) -> None:
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not (is_number and 0 < seconds < math.inf):
        raise ConfigError(f"mcp: {name} must be a positive number, not {seconds!r}")


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        known = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        known = False
    if not known or any(each.isspace() for each in text):
        raise ConfigError("mcp: not a server's URL; write https://host/mcp")
    return text


def _command(given: str | Sequence[str]) -> tuple[str, ...]:
    try:
        words = shlex.split(given) if isinstance(given, str) else list(given)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"mcp: the command can't be split into words: {error}") from error
    if not words or not all(isinstance(word, str) and "\0" not in word for word in words):
        raise ConfigError(
            'mcp takes a command, such as "npx -y some-server" or a list of words, or a URL'
        )
    if not words[0]:
        raise ConfigError("mcp: the first word of the command, the program, is empty")
    return tuple(words)


def _texts(name: str, given: Mapping[str, str] | None) -> dict[str, str]:
    if given is None:
        return {}
    is_texts = isinstance(given, Mapping) and all(
        isinstance(text, str) for item in given.items() for text in item
    )
    if not is_texts:
        raise ConfigError(f"mcp: {name} must be a dict of strings")
    return dict(given)
