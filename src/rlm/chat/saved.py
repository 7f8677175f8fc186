"""The description of a saved chat, and the limits of its file."""

import json
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from rlm._util.slow_numbers import loads
from rlm.calls.billing import checked_usage
from rlm.errors import ConfigError
from rlm.messages import Usage
from rlm.results import RunResult

__all__ = [
    "ABOUT",
    "DEFLATED_BYTES",
    "MAX_ABOUT_BYTES",
    "MAX_MEMBERS",
    "MAX_VARIABLES_BYTES",
    "TEXTS",
    "VARIABLES",
    "About",
    "SavedContext",
    "SavedTurn",
    "SavedVariables",
    "TurnSummary",
    "about_from",
    "about_to_bytes",
]

ABOUT, TEXTS, VARIABLES = "chat.json", "texts", "variables"
"""Members of the file; contexts are `contexts/0` …, their pictures `pictures/0/0` …"""

FORMAT = "rlm-chat"
VERSION = 1
MAX_ABOUT_BYTES = 16 << 20
MAX_MEMBERS = 20_000
MAX_VARIABLES_BYTES = 256 << 20
DEFLATED_BYTES = 64 << 20
"""Larger members are not compressed, so no member unpacks to more than this."""


class TurnSummary(Struct, frozen=True, kw_only=True):
    """The figures of one turn. `usage` is that of its whole run tree."""

    run_id: str
    stop_reason: str
    steps: int
    seconds: float
    usage: Usage

    @classmethod
    def of(cls, result: RunResult) -> "TurnSummary":
        return cls(
            run_id=result.run_id,
            stop_reason=result.stop_reason,
            steps=result.steps,
            seconds=result.seconds,
            usage=result.usage.total,
        )

    @property
    def cost_usd(self) -> float | None:
        return self.usage.cost_usd


class SavedTurn(Struct, frozen=True, kw_only=True):
    """A turn: the sizes of its query and answer in the member of texts; None if no answer."""

    query_bytes: int
    answer_bytes: int | None
    ended: str | None = None


class SavedContext(Struct, frozen=True, kw_only=True):
    """A context and its description; pictures are listed in the order of their numbers.

    `source` says how to open data that stays on the host again.
    """

    name: str
    kind: Literal["text", "json", "bytes", "source"]
    size_bytes: int
    sha256: str
    description: str
    documents: tuple[str, ...] = ()
    pictures: tuple[str, ...] = ()
    source: dict[str, Any] | None = None


class SavedVariables(Struct, frozen=True, kw_only=True):
    """The variables, except for the bytes that only a sandbox reads.

    `definitions` are the names and sources of functions and classes, in the order they were made.
    """

    names: tuple[str, ...] = ()
    imports: dict[str, str] = field(default_factory=dict)
    definitions: tuple[tuple[str, str], ...] = ()
    lost: dict[str, str] = field(default_factory=dict)
    size_bytes: int = 0


class About(Struct, frozen=True, kw_only=True):
    """The content of `chat.json`. `kept` is what requests without a reply may have cost."""

    format: str = FORMAT
    version: int = VERSION
    saved: float = 0.0
    chat_id: str = ""
    model: str = ""
    environment: str = ""
    tools: tuple[str, ...] = ()
    turns: tuple[SavedTurn, ...] = ()
    summaries: tuple[TurnSummary, ...] = ()
    usage: Usage = field(default_factory=Usage)
    kept: Usage = field(default_factory=Usage)
    contexts: tuple[SavedContext, ...] = ()
    variables: SavedVariables | None = None

    def __post_init__(self) -> None:
        """Refuse what no turn can have used: a negative usage would refill the limits."""
        for usage in (self.usage, self.kept, *(each.usage for each in self.summaries)):
            if checked_usage(usage) is None:
                raise ValueError("its usage is not possible")


def about_to_bytes(about: About) -> bytes:
    """Encode as ASCII, so that lone surrogates in names and descriptions survive."""
    data = json.dumps(msgspec.to_builtins(about), separators=(",", ":")).encode("ascii")
    if len(data) > MAX_ABOUT_BYTES:
        raise ConfigError(
            f"this chat can't be saved: a list of its contexts takes {len(data):,} bytes, at most "
            f"{MAX_ABOUT_BYTES:,} are possible; pass fewer files at once"
        )
    return data


def about_from(data: bytes) -> About:
    """Decode what `about_to_bytes` made; raise ConfigError for anything else."""
    try:
        plain: Any = loads(data)
        version = plain.get("version") if isinstance(plain, dict) else None
        if not isinstance(plain, dict) or plain.get("format") != FORMAT:
            raise ConfigError("this is not a saved chat")
        if version != VERSION:
            raise ConfigError(
                f"this chat was saved by another version of rlm (format {version!r}); use that"
            )
        return msgspec.convert(plain, About)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"this saved chat is damaged: {str(error)[:200]}") from error
