"""The reference engine's path to the windows of models."""

from rlm.compat.tokens import DEFAULT_CONTEXT_LIMIT, count_tokens, get_context_limit

__all__ = [
    "DEFAULT_CONTEXT_LIMIT",
    "count_tokens",
    "get_context_limit",
]
