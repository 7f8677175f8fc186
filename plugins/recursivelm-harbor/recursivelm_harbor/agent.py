"""The agent that Harbor loads by its import path."""

import os
from pathlib import Path
from typing import Any, override

from harbor.agents.base import BaseAgent
from harbor.agents.capabilities import AgentCapabilities
from harbor.agents.options import AgentOptions
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext
from harbor.models.trajectories import Agent
from pydantic import Field

import rlm
from recursivelm_harbor.accounting import ContextRecorder
from recursivelm_harbor.tools import ContainerTools
from recursivelm_harbor.trajectory import TrajectoryRecorder
from rlm import RLM, Limits, RLMLogger
from rlm.errors import ConfigError, ModelError

__all__ = ["RlmAgent", "RlmOptions"]

TASK = """
Do the task below. It is about a container with its own files and programs, which you reach only
through the tools `shell`, `read_file` and `write_file`: the REPL itself is another machine, without
those files. Keep large files in variables and look at parts of them. Check with commands that the
task is done; then submit one sentence about what you did.

{instruction}
""".strip()


class RlmOptions(AgentOptions):
    """What `--ak name=value` sets."""

    sub_model: str | None = Field(default=None, description="The model for calls from code.")
    max_steps: int = Field(default=50, ge=1, description="Steps of the run.")
    max_depth: int = Field(default=1, ge=1, description="Levels of runs with a REPL.")
    max_calls: int = Field(default=1_000, ge=0, description="Calls from code to models.")
    max_tokens: int | None = Field(default=None, ge=1, description="Tokens of the whole run.")
    max_cost_usd: float | None = Field(default=None, gt=0, description="Money of the whole run.")
    environment: str = Field(default="auto", description="Where model-written code runs.")
    command_seconds: int = Field(default=120, ge=1, description="Time of a command, by default.")
    working_dir: str | None = Field(
        default=None, description="Where commands start; by default where the container starts."
    )


class RlmAgent(BaseAgent):
    """The engine on the host; its cells reach the container of a task through tools."""

    capabilities = AgentCapabilities(atif=True)
    options_model = RlmOptions
    options: RlmOptions

    def __init__(self, logs_dir: Path, model_name: str | None = None, **kwargs: Any) -> None:
        super().__init__(logs_dir, model_name, **kwargs)

    @staticmethod
    @override
    def name() -> str:
        return "rlm"

    @override
    def version(self) -> str:
        return rlm.__version__

    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        """Install nothing: the container needs only a shell."""

    @override
    async def run(
        self, instruction: str, environment: BaseEnvironment, context: AgentContext
    ) -> None:
        """Do the task; tokens and cost are in the context after every reply."""
        options = self.options
        tools = ContainerTools(
            environment, cwd=options.working_dir, seconds=options.command_seconds
        )
        figures = ContextRecorder(context)
        about = Agent(name=self.name(), version=self.version(), model_name=self.model_name)
        steps = TrajectoryRecorder(instruction, about)
        try:
            async with self._engine(tools) as engine:
                query = TASK.format(instruction=instruction)
                result = await engine.aask(query, recorders=(figures, steps))
            figures.finish(result, tools.commands)
        finally:  # Harbor cancels what takes too long.
            text = steps.trajectory().model_dump_json(indent=2, exclude_none=True)
            (self.logs_dir / "trajectory.json").write_text(text, "utf-8")
        if result.stop_reason == "error" and result.answer is None:
            raise ModelError(f"the task was not done: {result.detail}")

    def _engine(self, tools: ContainerTools) -> RLM:
        options = self.options
        if self.model_name is None:
            raise ConfigError("Harbor needs a model name: --model provider/model")
        return RLM(
            self.model_name,
            sub_model=options.sub_model,
            environment=options.environment,
            limits=Limits(
                max_steps=options.max_steps,
                max_depth=options.max_depth,
                max_calls=options.max_calls,
                max_tokens=options.max_tokens,
                max_cost_usd=options.max_cost_usd,
            ),
            strategy="rlm",
            tools=tools.functions(),
            logger=RLMLogger(log_dir=self.logs_dir / "rlm"),
            variables={**os.environ, **self.extra_env} if self.extra_env else None,
        )
