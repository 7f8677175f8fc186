"""An agent whose sandbox, tools and streaming can't be switched off."""

from collections.abc import AsyncGenerator
from typing import Any

from rlm.agent.agent import AgentRLM, Backend
from rlm.context import ContextValue
from rlm.errors import RLMEnforcementError

__all__ = ["create_enforced_agent"]

WEAKENING = ("allow_unsafe", "without")
"""Options of the sandbox that remove some of its layers."""


class _EnforcedAgent(AgentRLM):
    """Refuses every option that would weaken it."""

    def __init__(
        self, backend: Backend, backend_kwargs: dict[str, Any] | None, **options: Any
    ) -> None:
        if options.get("environment", "agent") != "agent":
            raise RLMEnforcementError(
                f"an enforced agent runs in environment='agent', not {options['environment']!r}; "
                "use AgentRLM for another one"
            )
        for name in ("enable_tools", "enable_streaming"):
            if not options.get(name, True):
                raise RLMEnforcementError(
                    f"an enforced agent can't have {name}=False; use AgentRLM"
                )
        for name in WEAKENING:
            if (options.get("environment_kwargs") or {}).get(name):
                raise RLMEnforcementError(f"an enforced agent can't have {name} in its sandbox")
        super().__init__(backend, backend_kwargs, **options)

    def chat(
        self,
        message: str,
        context: ContextValue = None,
        tools: Any = None,
        stream: bool = True,
    ) -> AsyncGenerator[str, None]:
        if not stream:
            raise RLMEnforcementError("an enforced agent streams: chat(..., stream=True)")
        return super().chat(message, context, tools, stream)


def create_enforced_agent(
    backend: Backend = "openai", backend_kwargs: dict[str, Any] | None = None, **options: Any
) -> AgentRLM:
    """Return an `AgentRLM` whose sandbox, tools and streaming can't be switched off.

    Takes the keywords of `AgentRLM`. Raises `RLMEnforcementError` for those that would weaken it.
    """
    return _EnforcedAgent(backend, backend_kwargs, **options)
