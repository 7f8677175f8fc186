"""Who may use the server, and how much of it. Only digests of tokens are stored."""

import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from rlm.errors import ConfigError
from rlm.server.errors import ApiError
from rlm.web.tokens import bearer_token, digest_of, find_owner

__all__ = ["ANYBODY", "Token", "Tokens", "read_tokens"]

MAX_TOKEN_CHARS = 1_000
LARGEST_FILE_BYTES = 16 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Token(Struct, frozen=True, kw_only=True):
    """A token and its limits. Budgets are per day (UTC) or in total; None means no limit."""

    name: str
    digest: str = ""
    max_cost_usd: float | None = None
    max_tokens: int | None = None
    per: Literal["day", "total"] = "day"
    max_concurrent_runs: int | None = None
    models: tuple[str, ...] | None = None

    @property
    def has_budget(self) -> bool:
        return self.max_cost_usd is not None or self.max_tokens is not None

    def allows(self, model_id: str, model: str) -> bool:
        """Return whether a model may be used; without `rlm/`, a listed model allows both routes."""
        return self.models is None or model_id in self.models or model in self.models


ANYBODY = Token(name="anybody")
"""The token of requests to a server that requires none."""


class Tokens:
    """All accepted tokens. Without any, every client that can reach the server is admitted."""

    def __init__(self, tokens: Iterable[Token] = ()) -> None:
        self.all = tuple(tokens)
        for what in ("name", "digest"):
            seen = [getattr(token, what) for token in self.all]
            if len(set(seen)) < len(seen):
                raise ConfigError(f"two tokens have the same {what}; each needs its own")

        self._by_digest = {token.digest: token for token in self.all}

    def __bool__(self) -> bool:
        return bool(self.all)

    def find(self, authorization: Sequence[str]) -> Token:
        """Return the token of the `Authorization` headers; raise ApiError if it is unknown."""
        if not self.all:
            return ANYBODY
        given = bearer_token(authorization)
        if given is None:
            raise _refusal("no token was sent: set the header `Authorization: Bearer TOKEN`")
        found = find_owner(given, self._by_digest)
        if found is None:
            raise _refusal("this token is unknown")
        return found


def _refusal(message: str) -> ApiError:
    return ApiError(
        401, message, code="invalid_api_key", headers={"WWW-Authenticate": 'Bearer realm="rlm"'}
    )


# -- from the operator ----------------------------------------------------------------------------


class _Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token in a file: itself, or its SHA-256."""

    name: str
    token: Annotated[str, Meta(min_length=8, max_length=MAX_TOKEN_CHARS)] | None = None
    token_sha256: str | None = None
    max_cost_usd: Annotated[float, Meta(gt=0)] | None = None
    max_tokens: Annotated[int, Meta(gt=0)] | None = None
    per: Literal["day", "total"] = "day"
    max_concurrent_runs: Annotated[int, Meta(gt=0)] | None = None
    models: tuple[str, ...] | None = None


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    tokens: tuple[_Entry, ...]


def read_tokens(path: Path | None, given: Iterable[str] = ()) -> Tokens:
    """Read tokens from a file (.json or .toml), and those given directly, which have no limits."""
    entries = [] if path is None else _entries(path)
    for number, token in enumerate(given, 1):
        if len(token) < 8:
            raise ConfigError(
                "a token needs at least 8 characters; `openssl rand -hex 24` makes one"
            )
        entries.append(_Entry(name=f"token-{number}", token=token))
    return Tokens(_token(entry) for entry in entries)


def _entries(path: Path) -> list[_Entry]:
    try:
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise ConfigError(f"{path} is too large for a file of tokens")
        text = path.read_text("utf-8")
        plain: Any = msgspec.json.decode(text) if path.suffix == ".json" else tomllib.loads(text)
        return list(msgspec.convert(plain, _File).tokens)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        # The text of the error could contain a token, so only its kind and place are shown.
        where = str(error).rpartition(" - at ")[2] if " - at " in str(error) else ""
        raise ConfigError(
            f"{path} is not a file of tokens: {type(error).__name__}"
            f"{f' at {where}' if where else ''} (see docs/guides/server.md)"
        ) from None


def _token(entry: _Entry) -> Token:
    if not _NAME.fullmatch(entry.name):
        raise ConfigError(
            f"a token's name is up to 64 letters, digits, dots and dashes, not {entry.name!r}"
        )
    if (entry.token is None) == (entry.token_sha256 is None):
        raise ConfigError(
            f"the token {entry.name!r} needs exactly one of `token` and `token_sha256`"
        )
    digest = digest_of(entry.token) if entry.token else (entry.token_sha256 or "").lower()
    if not _DIGEST.fullmatch(digest):
        raise ConfigError(f"token_sha256 of {entry.name!r} is not 64 hexadecimal digits")
    return Token(
        name=entry.name,
        digest=digest,
        max_cost_usd=entry.max_cost_usd,
        max_tokens=entry.max_tokens,
        per=entry.per,
        max_concurrent_runs=entry.max_concurrent_runs,
        models=entry.models,
    )
