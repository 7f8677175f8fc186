"""Windows of models and estimates of tokens, as the reference offers them."""

from typing import Any

from rlm.models import about
from rlm.wiring.registry import split_model

__all__ = ["DEFAULT_CONTEXT_LIMIT", "count_tokens", "get_context_limit"]

DEFAULT_CONTEXT_LIMIT = 128_000
CHARS_A_TOKEN = 4


def get_context_limit(model_name: str) -> int:
    """Return how many tokens a model accepts; 128,000 for one that is not in our table."""
    try:
        provider, name = split_model(model_name.removeprefix("@"))
    except ValueError:
        return DEFAULT_CONTEXT_LIMIT
    return about(provider, name).window_tokens or DEFAULT_CONTEXT_LIMIT


def count_tokens(messages: list[dict[str, Any]], model_name: str) -> int:
    """Estimate how many tokens messages have: one per four characters, rounded up."""
    contents = (message.get("content") or "" for message in messages)
    chars = sum(len(each) if isinstance(each, str) else len(str(each)) for each in contents)
    return -(-chars // CHARS_A_TOKEN)
