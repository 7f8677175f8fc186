"""An agent whose sandbox, tools and streaming can't be switched off."""

from collections.abc import AsyncGenerator
from typing import Any

from rlm.agent.agent import AgentRLM, Backend
from rlm.agent.departures import departures
from rlm.context import ContextValue
from rlm.errors import RLMEnforcementError

__all__ = ["create_enforced_agent"]


class _EnforcedAgent(AgentRLM):
    """An agent that refuses every option that would weaken it."""

    def __init__(
        self, backend: Backend, backend_kwargs: dict[str, Any] | None, **options: Any
    ) -> None:
        for _, refusal in departures(
            options.get("environment", "agent"),
            options.get("environment_kwargs"),
            options.get("enable_tools", True),
            options.get("enable_streaming", True),
        ):
            raise RLMEnforcementError(refusal)
        super().__init__(backend, backend_kwargs, **options)

    def chat(
        self,
        message: str,
        context: ContextValue = None,
        tools: Any = None,
        stream: bool = True,
    ) -> AsyncGenerator[str, None]:
        if not stream:
            raise RLMEnforcementError("an enforced agent only streams: use chat(..., stream=True)")
        return super().chat(message, context, tools, stream)


def create_enforced_agent(
    backend: Backend = "openai", backend_kwargs: dict[str, Any] | None = None, **options: Any
) -> AgentRLM:
    """Return an `AgentRLM` whose sandbox, tools and streaming can't be switched off.

    Takes the keywords of `AgentRLM`. Raises `RLMEnforcementError` for those that would weaken it.
    """
    return _EnforcedAgent(backend, backend_kwargs, **options)
