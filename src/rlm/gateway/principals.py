"""The principal of a client, by its token. Tokens have names, and the names are recorded."""

import re
from collections.abc import Mapping
from pathlib import Path

from rlm.errors import ConfigError
from rlm.web.hosts import is_loopback
from rlm.web.tokens import digest_of, find_owner

__all__ = ["ANONYMOUS", "LOCAL", "UNNAMED", "Tokens", "check_address", "read_tokens"]

LOCAL = "local"
"""The principal of a client that started the gateway itself."""

ANONYMOUS = "anonymous"
"""The principal of clients on this machine when no token is required."""

UNNAMED = "token"
"""The principal of a token without a name."""

LARGEST_FILE_BYTES = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{16,512}=*")  # what RFC 6750 allows in a header


class Tokens:
    """The tokens that are accepted, each with the name of its principal.

    Only digests are stored.
    """

    def __init__(self, named: Mapping[str, str]) -> None:
        for name, token in named.items():
            _check(name, token)
        self._by_digest = {digest_of(token): name for name, token in named.items()}
        if len(self._by_digest) < len(named):
            raise ConfigError("two principals have the same token; give each its own")

    def __bool__(self) -> bool:
        return bool(self._by_digest)

    def principal_of(self, token: str) -> str | None:
        """Return the principal of a token; None if the token is unknown."""
        return find_owner(token, self._by_digest)


def check_address(host: str, tokens: Tokens | None) -> None:
    """Raise ConfigError if the network can reach a gateway that requires no token."""
    if tokens is None and not is_loopback(host):
        raise ConfigError(
            f"{host} can be reached from other machines, so a token is required: set --token-file "
            "or RLM_MCP_TOKEN, or listen on 127.0.0.1"
        )


def read_tokens(path: Path) -> dict[str, str]:
    """Read `NAME:TOKEN` lines, or a single token; empty lines and `#` lines are skipped."""
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST_FILE_BYTES + 1).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ConfigError(f"the token file {path} can't be read: {reason}") from error
    if len(text) > LARGEST_FILE_BYTES:
        raise ConfigError(f"the token file {path} is larger than 1 MiB")
    named: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if not line or line.startswith("#"):
            continue
        name, colon, token = line.partition(":")
        name, token = (name.strip(), token.strip()) if colon else (UNNAMED, line)
        if name in named:
            raise ConfigError(f"line {number} of {path}: {name!r} already has a token")
        try:
            _check(name, token)
        except ConfigError as error:
            raise ConfigError(f"line {number} of {path}: {error}") from error
        named[name] = token
    if not named:
        raise ConfigError(f"the token file {path} contains no token; write lines as NAME:TOKEN")
    return named


def _check(name: str, token: str) -> None:
    """Raise ConfigError if a name or token is not acceptable. No message contains a token."""
    if not _NAME.fullmatch(name) or name in (LOCAL, ANONYMOUS):
        raise ConfigError(
            f"{name[:64]!r} can't be a principal: use letters, digits and ._@-; "
            f"{LOCAL} and {ANONYMOUS} are reserved"
        )
    if not _TOKEN.fullmatch(token):
        raise ConfigError(
            f"the token of {name} must have 16 to 512 letters, digits or -._~+/, as "
            "`openssl rand -hex 32` prints"
        )
