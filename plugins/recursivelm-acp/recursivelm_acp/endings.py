"""How a run ended, in the words of the protocol."""

from typing import Literal

from acp.schema import Usage
from msgspec import Struct

from rlm import RunResult
from rlm.events import ModelReplied

__all__ = ["Ended", "StopReason", "problem_of", "stop_reason_at", "stop_reason_of"]

StopReason = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]

REFUSAL = "refusal"
OF_TOKENS = frozenset({"tokens", "cost_usd", "output"})
"""Limits whose closest stop reason is `max_tokens`: money is tokens times a price."""


class Ended(Struct, frozen=True):
    """The end of a prompt; with a `problem`, the request fails."""

    stop_reason: StopReason
    usage: Usage | None = None
    problem: str = ""


def stop_reason_of(result: RunResult, last: ModelReplied | None) -> StopReason:
    """Return the closest true stop reason: the protocol has none for time or for errors."""
    if last is not None and last.finish_reason == REFUSAL:
        return "refusal"
    if result.stop_reason == "cancelled":
        return "cancelled"
    return stop_reason_at(result.limit) if result.stop_reason in ("steps", "limit") else "end_turn"


def stop_reason_at(limit: str | None) -> StopReason:
    """Return the stop reason for a limit that was reached."""
    return "max_tokens" if limit in OF_TOKENS else "max_turn_requests"


def problem_of(result: RunResult) -> str:
    """Return why there is no answer, if an error is the reason."""
    is_error = result.stop_reason == "error" and result.answer is None
    return f"the prompt was not answered: {result.detail}" if is_error else ""
