"""Calls, tools and child runs that came to nothing, as a store remembers them."""

from typing import Any

from rlm.errors import CallRefused, ModelError
from rlm.messages import Reply

__all__ = ["error_of", "failed"]


def failed(error: Exception, opaque: dict[str, Any] | None = None) -> Reply:
    """An error in place of a reply."""
    limit = error.limit if isinstance(error, CallRefused) else None
    told = {**(opaque or {}), **({"limit": limit} if limit else {})}
    return Reply(text=str(error), finish_reason="failed", opaque=told or None)


def error_of(reply: Reply) -> ModelError | CallRefused:
    """The error that `failed` was given, or one that says the same."""
    limit = reply.opaque.get("limit") if isinstance(reply.opaque, dict) else None
    return ModelError(reply.text) if limit is None else CallRefused(reply.text, limit=limit)
