"""Read JSON from a server: fields of the wrong type count as missing."""

import json
from collections.abc import Mapping
from typing import Any

from rlm._util.slow_numbers import SlowNumbers, has_many
from rlm._util.text import sendable
from rlm.errors import ConfigError
from rlm.messages import LARGEST_COST_USD, LARGEST_COUNT, Usage

__all__ = [
    "arguments_of",
    "count_of",
    "dicts_in",
    "dump",
    "merged_body",
    "money_of",
    "parse",
    "status_of",
    "text_of",
    "usage_of",
]

MOST_IN_REPLY = SlowNumbers(50_000, 1 << 20)
"""Replies are read on the event loop: these take 0.2 s at worst. A long reply with the
probabilities of its tokens has some thousands.
"""


def parse(data: bytes | str) -> Any:
    """Decode a JSON document; raise ValueError if it is invalid. Lone surrogates are allowed.

    NaN and Infinity, which are not JSON but often sent, become null.
    """
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    if has_many(text, MOST_IN_REPLY):
        raise ValueError("too many of its numbers have an exponent, or hundreds of digits")
    try:
        return json.loads(text, parse_constant=lambda _: None)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def dump(value: object) -> bytes:
    """Encode a request body as UTF-8 JSON; lone surrogates, which servers refuse, become U+FFFD."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"the request cannot be written as JSON: {error}") from error
    return sendable(text).encode()


def merged_body(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Return sampling options with those of `extra_body` merged in; the latter take precedence.

    Merged options are checked like all others, so none can raise the output cap.
    """
    options = dict(sampling)
    extra = options.pop("extra_body", None)
    if extra is None:
        return options
    if not isinstance(extra, Mapping):
        raise ConfigError(f"sampling extra_body must be a dict, not {type(extra).__name__}")
    return {**options, **extra}


STATUS_OF_CODE = {
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "server_error": 500,
    "internal_server_error": 500,
    "context_length_exceeded": 400,
    "data_residency_mismatch": 400,
    "bio_policy": 400,
    "misalignment_policy_violation": 400,
    "image_content_policy_violation": 400,
}


def text_of(content: Any) -> str:
    """Return the text of a field that may be null, a string, or a list of parts."""
    if isinstance(content, str):
        return content
    texts = (part.get("text") for part in dicts_in(content))
    return "".join(text for text in texts if isinstance(text, str))


def dicts_in(given: Any) -> list[dict[str, Any]]:
    """Return the objects in a list; [] if it is not a list."""
    return [item for item in given if isinstance(item, dict)] if isinstance(given, list) else []


def count_of(holder: Any, *path: str) -> int | None:
    """Return a number of tokens at a path; None if it is missing or implausible."""
    for name in path:
        holder = holder.get(name) if isinstance(holder, dict) else None
    if isinstance(holder, bool) or not isinstance(holder, int | float):
        return None
    return int(holder) if 0 <= holder <= LARGEST_COUNT else None


def money_of(holder: Any, *path: str) -> float | None:
    """Return US dollars at a path; None if missing or implausible for one request."""
    for name in path:
        holder = holder.get(name) if isinstance(holder, dict) else None
    if isinstance(holder, bool) or not isinstance(holder, int | float):
        return None
    return float(holder) if 0 <= holder <= LARGEST_COST_USD else None


def arguments_of(given: Any) -> dict[str, Any]:
    """Return arguments as a dict. Anything but a JSON object is kept whole under `_raw`."""
    if isinstance(given, dict):
        return given
    text = given if isinstance(given, str) else ""
    if not text.strip():
        return {}
    try:
        parsed = parse(text)
    except ValueError:
        parsed = None
    return parsed if isinstance(parsed, dict) else {"_raw": text}


def status_of(error: Any) -> int | None:
    """Return the HTTP status that an error reported with status 200 should have had."""
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, str):
        if code.isascii() and code.isdigit() and len(code) == 3:
            code = int(code)
        else:
            code = 400 if code.startswith("invalid_") else STATUS_OF_CODE.get(code)
    return code if isinstance(code, int) and 400 <= code < 600 else None


CACHED = (
    ("prompt_tokens_details", "cached_tokens"),
    ("input_tokens_details", "cached_tokens"),
    ("cache_read_input_tokens",),  # Portkey, LiteLLM proxy
    ("prompt_cache_hit_tokens",),  # DeepSeek
    ("cached_tokens",),
)
WRITTEN = (
    ("prompt_tokens_details", "cache_write_tokens"),
    ("input_tokens_details", "cache_write_tokens"),
    ("cache_creation_input_tokens",),
    ("prompt_tokens_details", "cache_creation_tokens"),
)
REASONING = (
    ("completion_tokens_details", "reasoning_tokens"),
    ("output_tokens_details", "reasoning_tokens"),
)


def usage_of(payload: dict[str, Any], *, states_cost: bool = False) -> Usage | None:
    """Return what the reply used; None unless both sides are stated.

    `states_cost`: this provider's `cost` is its charge in US dollars.
    """
    stated = _stated(payload)
    sent = _first(stated, (("prompt_tokens",), ("input_tokens",)))
    written = _first(stated, (("completion_tokens",), ("output_tokens",)))
    if sent is None or written is None:
        return None
    cached = _first(stated, CACHED) or 0
    stored = _first(stated, WRITTEN) or 0
    thought = _first(stated, REASONING) or 0
    # Some servers count cache and reasoning separately from the two sides; the total shows which.
    beside = (count_of(stated, "total_tokens") or 0) - sent - written
    in_cache = cached + stored
    if in_cache > sent or (in_cache and beside in {in_cache, in_cache + thought}):
        sent += in_cache
        beside -= in_cache
    if thought > written or (thought and beside == thought):
        written += thought
    return Usage(
        input_tokens=sent,
        output_tokens=written,
        cached_tokens=cached,
        reasoning_tokens=thought,
        cost_usd=_cost(stated) if states_cost else None,
        requests=1,
        cache_write_tokens=stored,
    )


def _stated(payload: dict[str, Any]) -> Any:
    """Return the usage, wherever it is: Groq's streams move it, llama.cpp may give only timings."""
    own = payload.get("usage")
    groq = payload.get("x_groq")
    stated = own or (groq.get("usage") if isinstance(groq, dict) else None)
    timings = payload.get("timings")
    cached = count_of(timings, "cache_n") or 0
    if isinstance(stated, dict):
        return {"cached_tokens": cached, **stated} if cached else stated
    sent = count_of(timings, "prompt_n")
    if sent is None:
        return None
    return {
        "prompt_tokens": sent + cached,
        "completion_tokens": count_of(timings, "predicted_n"),
        "cached_tokens": cached,
    }


def _first(stated: Any, paths: tuple[tuple[str, ...], ...]) -> int | None:
    """Return the first stated count; return zero only if no later one is larger."""
    counts = [count for path in paths if (count := count_of(stated, *path)) is not None]
    return next((count for count in counts if count), counts[0] if counts else None)


def _cost(stated: Any) -> float | None:
    """Return the charge. With your own key (BYOK), the gateway's charge is only its fee."""
    charge = money_of(stated, "cost")
    if charge is None or stated.get("is_byok") is not True:
        return charge
    provider = money_of(stated, "cost_details", "upstream_inference_cost")
    if provider is None:
        provider = money_of(stated, "market_cost")
    return None if provider is None else charge + provider
