"""Which settings make an agent weaker than an enforced one.

`create_enforced_agent` refuses them, and `AgentRLM` logs a warning for each.
"""

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["departures"]

SANDBOX = "agent"
WEAKENING = ("allow_unsafe", "without")
"""Options of the sandbox that remove some of its layers."""


def departures(
    environment: Any,
    environment_kwargs: Mapping[str, Any] | None,
    enable_tools: bool,
    enable_streaming: bool,
) -> Iterator[tuple[str, str]]:
    """Yield each setting that weakens an agent, and why an enforced one can't have it."""
    if environment != SANDBOX:
        shown = environment if isinstance(environment, str) else type(environment).__name__
        told = f"an enforced agent runs in environment='agent', not {shown!r}"
        yield f"environment={shown!r}", f"{told}; use AgentRLM for another environment"
    for name, is_on in (("enable_tools", enable_tools), ("enable_streaming", enable_streaming)):
        if not is_on:
            yield f"{name}=False", f"an enforced agent can't have {name}=False; use AgentRLM"
    for name in WEAKENING:
        if (environment_kwargs or {}).get(name):
            yield (
                f"{name} in environment_kwargs",
                f"an enforced agent can't have {name} in its sandbox",
            )
