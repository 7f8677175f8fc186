"""An assistant with tools and a memory: `AgentRLM` and its enforced form."""

from rlm.agent.agent import AgentRLM
from rlm.agent.context import AgentContext
from rlm.agent.enforced import create_enforced_agent

__all__ = ["AgentContext", "AgentRLM", "create_enforced_agent"]
