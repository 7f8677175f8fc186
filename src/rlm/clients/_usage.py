"""What a server says a reply used, in the many spellings of chat completions and responses."""

from typing import Any

from rlm.clients._fields import count_of, money_of
from rlm.messages import Usage

__all__ = ["usage_of"]

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
    """What the reply used; None unless both sides are stated.

    `states_cost`: this provider's `cost` is what it charges, in US dollars.
    """
    stated = _stated(payload)
    sent = _first(stated, (("prompt_tokens",), ("input_tokens",)))
    written = _first(stated, (("completion_tokens",), ("output_tokens",)))
    if sent is None or written is None:
        return None
    cached = _first(stated, CACHED) or 0
    stored = _first(stated, WRITTEN) or 0
    thought = _first(stated, REASONING) or 0
    # Some count cache and reasoning beside the two sides, not in them; the total tells.
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
    """The usage, wherever it is: Groq's streams have it apart, llama.cpp may only tell timings."""
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
    """The first of these counts that is stated; a zero only if no later one is more."""
    counts = [count for path in paths if (count := count_of(stated, *path)) is not None]
    return next((count for count in counts if count), counts[0] if counts else None)


def _cost(stated: Any) -> float | None:
    """The charge. With a key of your own (BYOK) the gateway's charge is only its fee."""
    charge = money_of(stated, "cost")
    if charge is None or stated.get("is_byok") is not True:
        return charge
    provider = money_of(stated, "cost_details", "upstream_inference_cost")
    if provider is None:
        provider = money_of(stated, "market_cost")
    return None if provider is None else charge + provider
