"""Tokens: bearer headers, the token of a printed link, and comparison in constant time."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import TypeVar

from rlm.errors import ConfigError

__all__ = ["LinkToken", "bearer_token", "digest_of", "find_owner"]

MAX_TOKEN_CHARS = 1_000
_LINK_TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,200}")
Owner = TypeVar("Owner")


def bearer_token(headers: Sequence[str]) -> str | None:
    """Return the token of the only `Authorization: Bearer` header; None if there is none."""
    if len(headers) != 1:
        return None
    scheme, _, token = headers[0].partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not 0 < len(token) <= MAX_TOKEN_CHARS:
        return None
    return token


def digest_of(token: str) -> str:
    """Return the SHA-256 of a token; servers store only this."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def find_owner(token: str, owners: Mapping[str, Owner]) -> Owner | None:
    """Return the owner of a token, by digest.

    Every digest is compared, so the time it takes reveals nothing about any of them.
    """
    shown, found = digest_of(token), None
    for digest, owner in owners.items():
        if hmac.compare_digest(shown, digest):
            found = owner
    return found


class LinkToken:
    """The token in the address that a server prints: a new one, or one that the user chose."""

    def __init__(self, value: str | None = None) -> None:
        if value and not _LINK_TOKEN.fullmatch(value):
            raise ConfigError(
                "a token for the viewer must have 16 to 200 letters, digits, dashes, dots and "
                "underscores; `openssl rand -hex 24` makes one"
            )
        self.value = value or secrets.token_urlsafe(32)

    def matches(self, shown: str | None) -> bool:
        """Compare in constant time."""
        if shown is None or len(shown) > MAX_TOKEN_CHARS:
            return False
        return hmac.compare_digest(shown.encode("utf-8", "replace"), self.value.encode())
