"""The environment of this package's taskset: one agent, on this machine."""

from typing import Any

from pydantic import model_validator
from verifiers.v1 import AgentConfig, Agents, Env, EnvConfig, SubprocessConfig, Task

__all__ = ["HostEnv", "HostEnvConfig"]

HARNESS = "recursivelm_verifiers"


class HostEnvConfig(EnvConfig):
    """One agent whose harness runs here: code of models runs in the engine's sandbox."""

    agent: AgentConfig = AgentConfig(runtime=SubprocessConfig())

    @model_validator(mode="before")
    @classmethod
    def _with_own_defaults(cls, data: Any) -> Any:
        """Complete what was set of the agent, so that its harness's options need no id."""
        if isinstance(data, dict) and isinstance(agent := data.get("agent"), dict):
            harness = {"id": HARNESS, **(agent.get("harness") or {})}
            runtime = {"type": "subprocess", **(agent.get("runtime") or {})}
            return {**data, "agent": {**agent, "harness": harness, "runtime": runtime}}
        return data


class HostEnv(Env[HostEnvConfig]):
    """As verifiers' own environment for one agent, without a rented machine."""

    async def run(self, task: Task, agents: Agents) -> None:
        await agents.agent.run(task)
