"""Options that people know from OpenAI, on their way to providers with names of their own.

What a provider has no equivalent for raises before anything is sent, and names the option.
"""

from collections.abc import Iterable
from typing import Any

from rlm.errors import ConfigError
from rlm.messages import Request

__all__ = ["EFFORTS", "given_options", "output_cap", "refuse", "schema_of", "stops_of", "thinking"]

CAP_NAMES = ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens")
COUNT_NAMES = ("n", "candidate_count", "candidateCount")
LEFT_OUT = frozenset({"stream", "stream_options", "prompt_cache_key", "safety_identifier"})
"""Without them a reply is the same; `stream` is the caller's to say, by what it calls."""

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
SMALLEST_BUDGET = 1024


def given_options(sampling: dict[str, Any]) -> dict[str, Any]:
    """A copy of the options to take from; None means that nothing was said."""
    options = {
        name: value
        for name, value in sampling.items()
        if value is not None and name not in LEFT_OUT
    }
    for name in COUNT_NAMES:
        if options.pop(name, 1) != 1:
            raise ConfigError(
                f"sampling {name} must be 1: one request is one reply, and is budgeted as one"
            )
    return options


def output_cap(request: Request, *holders: dict[str, Any]) -> int:
    """The request's cap, or a smaller one that is taken from the options."""
    cap = request.max_output_tokens
    for holder in holders:
        for name in holder.keys() & set(CAP_NAMES):
            asked = holder.pop(name)
            if isinstance(asked, bool) or not isinstance(asked, int) or asked < 1:
                raise ConfigError(f"sampling {name} must be a whole number above 0, not {asked!r}")
            cap = min(cap, asked)
    return cap


def refuse(options: dict[str, Any], provider: str, names: Iterable[str]) -> None:
    """Raise for options the provider has no equivalent for; those that say nothing are dropped."""
    for name in names:
        value = options.pop(name, None)
        if value or (name == "seed" and value is not None):
            raise ConfigError(
                f"{provider} has no equivalent of the sampling option {name!r}: leave it out"
            )


def stops_of(options: dict[str, Any], *names: str) -> list[str]:
    """Stop sequences under any of these names, each a text or a list of texts."""
    found: list[str] = []
    for name in names:
        given = options.pop(name, [])
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
            raise ConfigError(f"sampling {name} must be a text or a list of texts")
        found += texts
    return found


def schema_of(response_format: Any) -> dict[str, Any] | None:
    """The JSON schema that an OpenAI `response_format` asks for.

    None if it asks for plain text, and an empty one for any JSON (`json_object`).
    """
    kind = response_format.get("type") if isinstance(response_format, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return {}
    holder = response_format.get("json_schema") if kind == "json_schema" else None
    schema = holder.get("schema") if isinstance(holder, dict) else None
    if not isinstance(schema, dict):
        raise ConfigError(
            "sampling response_format must be {'type': 'json_schema', 'json_schema': "
            "{'name': ..., 'schema': {...}}}, or of type 'json_object' or 'text'"
        )
    return schema


def thinking(wanted: int, cap: int) -> int | None:
    """A budget for thoughts, which count as output, that leaves room to answer; None if none can.

    The cap may shrink in a run, as its budget does: better a reply with less thought than none.
    """
    budget = min(wanted, cap * 3 // 4)
    return budget if budget >= SMALLEST_BUDGET else None
