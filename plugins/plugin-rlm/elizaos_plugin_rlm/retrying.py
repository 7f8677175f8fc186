"""Which failures are worth another try: those that pass, and those that name what to leave out."""

import re
from collections.abc import Iterable

from elizaos_plugin_rlm.config import RLMConfig

__all__ = ["may_succeed_later", "pause_seconds", "refused_options"]

LONGEST_PAUSE_SECONDS = 30.0
RETRYABLE_STATUSES = frozenset({408, 429, 500, 502, 503, 504, 529})
REFUSING_STATUSES = frozenset({400, 422})
"""A server that does not take a request as it is; none of it was done, and none is billed."""


def may_succeed_later(error: Exception) -> bool:
    """Whether the same request may be answered later: the engine's word, or the error's status."""
    said = getattr(error, "retryable", None)
    if isinstance(said, bool):
        return said
    return isinstance(error, ConnectionError | TimeoutError) or _status(error) in RETRYABLE_STATUSES


def refused_options(error: Exception, given: Iterable[str]) -> tuple[str, ...]:
    """The options that a refusal names: elizaOS sets some of them for every model alike.

    Many models take no temperature, and a server says so instead of ignoring it.
    """
    if _status(error) not in REFUSING_STATUSES and type(error).__name__ != "ConfigError":
        return ()
    text = str(error)
    return tuple(name for name in given if re.search(rf"\b{name}(_sequences)?\b", text))


def pause_seconds(config: RLMConfig, left: int) -> float:
    """How long to wait; it doubles with each try that was used up."""
    return float(
        min(config.retry_seconds * 2 ** (config.max_retries - left), LONGEST_PAUSE_SECONDS)
    )


def _status(error: Exception) -> object:
    names = ("status", "status_code", "code")
    return next(
        (value for name in names if (value := getattr(error, name, None)) is not None), None
    )
