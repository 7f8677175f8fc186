"""A harness of verifiers whose program is a run of the engine, in this process."""

import asyncio
from typing import TYPE_CHECKING

from pydantic import Field
from verifiers.v1 import (
    Harness,
    HarnessConfig,
    ModelContext,
    ProgramResult,
    Runtime,
    TaskData,
    Trace,
    metric,
)
from verifiers.v1.errors import MODEL_TRANSPORT_ERROR_EXIT_CODE

from recursivelm_verifiers.client import RolloutClient
from recursivelm_verifiers.taskset import BenchData, context_of
from rlm import RLM, Limits
from rlm.errors import ModelError, RLMError

if TYPE_CHECKING:
    from rlm import RunResult

__all__ = ["RecursiveLMConfig", "RecursiveLMHarness"]

INFO = "rlm"
"""Under this name a trace holds what the run says about itself."""


class RecursiveLMConfig(HarnessConfig):
    """Limits of a run (`--env.agent.harness.max-steps 10`), and where its code runs."""

    max_steps: int = Field(30, ge=1)
    max_depth: int = Field(1, ge=1)
    max_calls: int = Field(1_000, ge=0)
    max_total_tokens: int | None = Field(None, ge=1)
    max_seconds: float | None = Field(None, gt=0)
    step_output_tokens: int = Field(8_192, ge=1)
    call_output_tokens: int = Field(4_096, ge=1)
    window_tokens: int | None = Field(None, ge=1)
    """The model's window, if it is not the 32,000 tokens that the engine assumes."""
    environment: str = "auto"

    def limits(self) -> Limits:
        return Limits(
            max_steps=self.max_steps,
            max_depth=self.max_depth,
            max_calls=self.max_calls,
            max_tokens=self.max_total_tokens,
            max_seconds=self.max_seconds,
            step_output_tokens=self.step_output_tokens,
            call_output_tokens=self.call_output_tokens,
        )


class RecursiveLMHarness(Harness[RecursiveLMConfig]):
    """Answer a task with a run whose every request goes through the rollout's endpoint.

    The steps of a run are one branch of the trace, because its history only grows; each call from
    code and each child run is a branch of its own. All of them can be trained on.
    """

    APPENDS_SYSTEM_PROMPT = True
    # Code runs in the engine's own sandbox, not in the runtime of the rollout.
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: ModelContext,
        trace: Trace,
        runtime: Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: TaskData,
    ) -> ProgramResult:
        system, prompt = self.resolve_text_prompt(data)
        client = RolloutClient(endpoint, secret, window_tokens=self.config.window_tokens)
        bench = data if isinstance(data, BenchData) else None
        context = None if bench is None else await asyncio.to_thread(context_of, bench)
        try:
            async with RLM(
                client,
                limits=self.config.limits(),
                environment=self.config.environment,
                prologue=system or "",
            ) as rlm:
                result = await rlm.aask(prompt or "", context)
        except RLMError as error:
            return _failed(error)
        finally:
            trace.add_semantic_edges(client.lineage.edges())
        answer = "" if result.answer is None else str(result.answer)
        trace.root_reply = answer
        trace.info[INFO] = _facts(result)
        return ProgramResult(0, answer, "")

    @metric
    async def rlm_steps(self, trace: Trace) -> float:
        """Count the steps of the root run."""
        return float(trace.info.get(INFO, {}).get("steps", 0))

    @metric
    async def rlm_requests(self, trace: Trace) -> float:
        """Count all requests: steps, calls from code, child runs."""
        return float(trace.info.get(INFO, {}).get("requests", 0))

    @metric
    async def rlm_submitted(self, trace: Trace) -> float:
        """Tell whether the model submitted an answer, in place of running into a limit."""
        return float(trace.info.get(INFO, {}).get("stop_reason") == "answer")


def _failed(error: RLMError) -> ProgramResult:
    """Return how verifiers learns of a failure: a lost connection has an exit code of its own."""
    lost = isinstance(error, ModelError) and error.status is None
    return ProgramResult(MODEL_TRANSPORT_ERROR_EXIT_CODE if lost else 1, "", str(error))


def _facts(result: "RunResult") -> dict[str, str | int | None]:
    return {
        "run_id": result.run_id,
        "stop_reason": result.stop_reason,
        "limit": result.limit,
        "steps": result.steps,
        "requests": result.usage.total.requests,
    }
