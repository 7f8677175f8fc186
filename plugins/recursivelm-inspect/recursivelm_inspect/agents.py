"""A solver and an agent of Inspect that answer with a run of the engine."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from inspect_ai.agent import Agent, AgentState, agent
from inspect_ai.model import ChatMessage, ChatMessageUser, ModelOutput
from inspect_ai.solver import Generate, Solver, TaskState, solver

from recursivelm_inspect.client import InspectClient
from recursivelm_inspect.samples import context_of
from recursivelm_inspect.transcript import TranscriptRecorder
from rlm import RLM, Limits
from rlm.errors import RLMError

if TYPE_CHECKING:
    from rlm import RunResult

__all__ = ["rlm_agent", "rlm_solver"]

SUB_ROLE = "sub"
"""The model role that code asks; without one, it asks the evaluated model."""


@solver
def rlm_solver(
    max_steps: int = 30,
    max_depth: int = 1,
    max_calls: int = 1_000,
    max_tokens: int | None = None,
    max_seconds: float | None = None,
    environment: str = "auto",
    context_key: str = "context",
) -> Solver:
    """Answer a sample with a run; its `metadata[context_key]`, if there is one, is the context.

    Samples of `bench_dataset` have their contexts generated, so that they are in no log.
    """
    limits = Limits(
        max_steps=max_steps,
        max_depth=max_depth,
        max_calls=max_calls,
        max_tokens=max_tokens,
        max_seconds=max_seconds,
    )

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        context = state.metadata.get(context_key)
        if context is None:
            context = await asyncio.to_thread(context_of, state.metadata)
        output, facts = await _answer(state.messages, context, limits, environment)
        state.output = output
        state.messages.append(output.message)
        state.store.set("rlm", facts)
        return state

    return solve


@agent
def rlm_agent(
    context: Any = None,
    max_steps: int = 30,
    max_depth: int = 1,
    max_calls: int = 1_000,
    max_tokens: int | None = None,
    max_seconds: float | None = None,
    environment: str = "auto",
) -> Agent:
    """Answers questions about a context of any size."""
    limits = Limits(
        max_steps=max_steps,
        max_depth=max_depth,
        max_calls=max_calls,
        max_tokens=max_tokens,
        max_seconds=max_seconds,
    )

    async def execute(state: AgentState) -> AgentState:
        """Answer the last message with a run over `context`, which is any value `RLM.ask` takes."""
        output, _ = await _answer(state.messages, context, limits, environment)
        state.output = output
        state.messages.append(output.message)
        return state

    return execute


async def _answer(
    messages: Sequence[ChatMessage], context: Any, limits: Limits, environment: str
) -> tuple[ModelOutput, dict[str, Any]]:
    root, sub = InspectClient(), InspectClient(role=SUB_ROLE)
    is_one = root.is_same_as(sub)
    clients = [root] if is_one else [root, sub]
    async with RLM(
        root, sub_model=None if is_one else sub, limits=limits, environment=environment
    ) as rlm:
        try:
            result = await rlm.aask(_query(messages), context, recorders=(TranscriptRecorder(),))
        except RLMError:
            _raise_limits(clients)
            raise
    _raise_limits(clients)
    answer = "" if result.answer is None else str(result.answer)
    return ModelOutput.from_content(root.model_name, answer), _facts(result)


def _raise_limits(clients: Sequence[InspectClient]) -> None:
    """Raise a limit of the sample that refused a request, so that Inspect ends the sample by it."""
    for client in clients:
        if client.limit_reached is not None:
            raise client.limit_reached


def _query(messages: Sequence[ChatMessage]) -> str:
    """Return the last message; with others before it, all of them under their roles."""
    if len(messages) == 1 and isinstance(messages[0], ChatMessageUser):
        return messages[0].text
    return "\n\n".join(f"[{message.role}]\n{message.text}" for message in messages)


def _facts(result: "RunResult") -> dict[str, Any]:
    return {
        "run_id": result.run_id,
        "stop_reason": result.stop_reason,
        "limit": result.limit,
        "steps": result.steps,
        "requests": result.usage.total.requests,
    }
