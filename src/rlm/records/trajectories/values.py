"""Convert values from foreign JSON to the types they should have. Nothing raises."""

import json
from datetime import datetime
from typing import Any

from rlm._util.text import sendable
from rlm.images import display_text
from rlm.messages import Message, Usage

__all__ = [
    "as_count",
    "as_dict",
    "as_list",
    "as_message",
    "as_seconds",
    "as_text",
    "as_time",
    "as_usage",
    "described",
]

MAX_COUNT = 1 << 40
DESCRIBED_CHARS = 200


def as_text(value: Any) -> str:
    """Return text unchanged, an empty text for None, and JSON for anything else."""
    if isinstance(value, str):
        return sendable(value)
    if value is None:
        return ""
    try:
        return sendable(json.dumps(value, ensure_ascii=False))
    except (ValueError, TypeError, RecursionError):
        return f"({type(value).__name__})"


def as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def as_count(value: Any) -> int:
    """Return the value if it is a possible count, else 0."""
    return value if type(value) is int and 0 <= value <= MAX_COUNT else 0


def as_seconds(value: Any) -> float:
    """Return the value if it is a possible duration, else 0."""
    if type(value) not in {int, float} or not 0 <= value <= MAX_COUNT:
        return 0.0
    return float(value)


def as_time(value: Any) -> float:
    """Return a timestamp as seconds since 1970; without a zone it is local time."""
    if isinstance(value, str) and len(value) <= DESCRIBED_CHARS:
        try:
            return max(0.0, datetime.fromisoformat(value).timestamp())
        except (ValueError, OverflowError, OSError):
            return 0.0
    return as_seconds(value)


def as_message(value: Any) -> Message:
    """Return one message of a conversation; unknown roles become the user's."""
    if not isinstance(value, dict):
        return Message("user", as_text(value))
    content = value.get("content")
    text = sendable(display_text(content)) if isinstance(content, list) else as_text(content)
    role = value.get("role")
    if role == "system" or role == "assistant" or role == "tool":
        return Message(role, text)
    return Message("user", text)


def as_usage(value: Any) -> Usage:
    """Return the sum over the models of a usage summary."""
    total = Usage()
    for part in map(as_dict, as_dict(as_dict(value).get("model_usage_summaries")).values()):
        cost = part.get("total_cost")
        total += Usage(
            as_count(part.get("total_input_tokens")),
            as_count(part.get("total_output_tokens")),
            cost_usd=None if cost is None else as_seconds(cost),
            requests=as_count(part.get("total_calls")),
        )
    return total


def described(value: Any) -> str:
    """Describe a variable's value in a few words."""
    if isinstance(value, str):
        return sendable(value[:DESCRIBED_CHARS])
    if isinstance(value, list | dict):
        return f"{type(value).__name__} of {len(value):,}"
    return as_text(value)[:DESCRIBED_CHARS]
