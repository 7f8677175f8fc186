"""What a journal stores besides replies and events: what was asked, and how it ended."""

import json
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from rlm.calls.billing import checked_usage
from rlm.errors import ConfigError
from rlm.messages import Usage
from rlm.results import BY_ITSELF, RunResult, UsageSummary

__all__ = [
    "ContextFacts",
    "Origin",
    "RunFacts",
    "RunStatus",
    "answered_in",
    "result_facts",
    "result_from",
]

RunStatus = Literal[
    "running", "interrupted", "answer", "passages", "steps", "limit", "cancelled", "error"
]
"""The status of a run; `interrupted` means that its process was killed."""


class ContextFacts(Struct, frozen=True, omit_defaults=True):
    """Enough to find a context again and to describe it; pictures are stored by name and hash.

    `source` says how to open data on the host again; None if only the program can.
    `sha256` is empty until a large context is hashed; no reply is stored before that.
    """

    kind: Literal["text", "json", "bytes", "source"]
    sha256: str
    size_bytes: int
    description: str
    documents: tuple[str, ...] = ()
    pictures: dict[str, str] = field(default_factory=dict)
    name: str | None = None
    source: dict[str, Any] | None = None

    def is_same(self, other: "ContextFacts") -> bool:
        """Return whether it is the same context, as far as is known of a run killed early."""
        if not self.sha256:
            return (self.kind, self.size_bytes) == (other.kind, other.size_bytes)
        return (self.kind, self.sha256) == (other.kind, other.sha256)


class Origin(Struct, frozen=True):
    """The run that a fork was made from, and the step where it branches off."""

    run_id: str
    step: int


class RunFacts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was asked, about what, and how: everything needed to continue."""

    run_id: str
    query: str
    started: float
    context: ContextFacts
    settings: dict[str, Any] = field(default_factory=dict)
    in_chat: bool = False
    forked_from: Origin | None = None

    def check_same(self, other: "RunFacts") -> None:
        """Raise ConfigError unless the same is asked about the same context."""
        if other.query != self.query:
            raise ConfigError(
                f"run {self.run_id} was asked {_short(self.query)}, not {_short(other.query)}; "
                "omit run_id to ask something new"
            )
        before, now = _operator(self.settings), _operator(other.settings)
        if before != now:
            changed = sorted({name for name, _ in before.items() ^ now.items()})
            raise ConfigError(
                f"run {self.run_id} was asked with a different {', '.join(changed)}; omit run_id "
                "to ask something new"
            )
        if not self.context.is_same(other.context):
            raise ConfigError(
                f"run {self.run_id} had a different context ({self.context.description}); pass the "
                "same one, or omit run_id to ask about this one"
            )


def result_facts(result: RunResult) -> dict[str, Any]:
    """Return a result as plain values, without its events."""
    plain: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(result, events=()))
    plain["usage"]["by_depth"] = {str(k): v for k, v in plain["usage"]["by_depth"].items()}
    return plain


def answered_in(about: dict[str, Any]) -> RunResult | None:
    """Return the result of a run with an answer, or None: other runs can be continued."""
    plain = about.get("result")
    result = None if plain is None else result_from(plain)
    return result if result is not None and result.stop_reason in BY_ITSELF else None


def result_from(plain: Any) -> RunResult:
    """Return the result that `result_facts` wrote."""
    try:
        usage = msgspec.convert(plain["usage"], UsageSummary, strict=False)
        result = msgspec.convert({**plain, "usage": {}}, RunResult)
        every = usage.total, *usage.by_model.values(), *usage.by_depth.values()
        for each in (*every, Usage(cost_usd=result.cost_usd)):
            if checked_usage(each) is None:
                raise ValueError("its usage is not possible")
        return msgspec.structs.replace(result, usage=usage)
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"the result in the journal can't be read: {error}") from error


def _operator(settings: dict[str, Any]) -> dict[str, str]:
    """Return the arguments of an operator by name, as JSON; {} for other runs."""
    operator = settings.get("operator") or {}
    told = {"operator": operator.get("name"), **operator.get("options", {})}
    return {name: json.dumps(value, sort_keys=True, default=str) for name, value in told.items()}


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:79]}…")
