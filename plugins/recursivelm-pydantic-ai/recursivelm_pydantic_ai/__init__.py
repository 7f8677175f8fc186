"""Recursive Language Models for Pydantic AI.

`AskToolset` gives an agent the tool `ask`, which answers questions about a context that the agent
never sees. `PydanticAIClient` lets any model of Pydantic AI drive a run of `rlm`.
"""

from recursivelm_pydantic_ai.client import PydanticAIClient
from recursivelm_pydantic_ai.toolset import AskToolset

__all__ = ["AskToolset", "PydanticAIClient"]
