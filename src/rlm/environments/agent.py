"""`environment="agent"`: the local sandbox for agents.

Its cells are isolated like those of `local`, and have the names for agents besides.
"""

from typing import Any

from rlm.environments._forked import ForkedSession
from rlm.environments.local import LocalEnvironment
from rlm.protocols import Host
from rlm.worker.agent_names import AGENT_NAMES

__all__ = ["AgentEnvironment"]


class AgentEnvironment(LocalEnvironment):
    """The local sandbox with the names of agents; takes the options of `local`."""

    name = "agent"
    repl_names = AGENT_NAMES

    async def open(self, host: Host, options: dict[str, Any]) -> ForkedSession:
        """Open a session of `local` that also has the names of `rlm.worker.agent_names`."""
        return await super().open(host, {**options, "names": "agent"})
