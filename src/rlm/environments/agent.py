"""`environment="agent"`: the local sandbox for agents.

Its cells are held as those of `local` are; what an agent adds are names in its namespace.
"""

from rlm.environments.local import LocalEnvironment

__all__ = ["AgentEnvironment"]


class AgentEnvironment(LocalEnvironment):
    """Takes the options of `local`."""

    name = "agent"
