"""`environment="agent"`: the local sandbox for agents.

Its cells are held as those of `local` are; what an agent adds are names in its namespace.
"""

from typing import Any

from rlm.environments._forked import ForkedSession
from rlm.environments.local import LocalEnvironment
from rlm.protocols import Host
from rlm.worker.agent_names import AGENT_NAMES

__all__ = ["AgentEnvironment"]


class AgentEnvironment(LocalEnvironment):
    """Takes the options of `local`."""

    name = "agent"
    repl_names = AGENT_NAMES

    async def open(self, host: Host, options: dict[str, Any]) -> ForkedSession:
        """A session of `local` with the names of `rlm.worker.agent_names` besides."""
        return await super().open(host, {**options, "names": "agent"})
