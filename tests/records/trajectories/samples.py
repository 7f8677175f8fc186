"""Events and files for the tests of trajectories."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rlm.api import RLM
from rlm.errors import ModelError
from rlm.events import (
    CallEnded,
    CallStarted,
    Event,
    ModelAsked,
    ModelReplied,
    RunEnded,
    RunStarted,
    StepStarted,
)
from rlm.limits import Limits
from rlm.logger import RLMLogger, encoded
from rlm.messages import Message, Usage
from rlm.results import RunResult
from rlm.testing.scripted import ScriptedClient
from tests.fakes import PlanEnvironment, cell

REFERENCE_LOG = Path(__file__).parent / "data" / "reference.jsonl"
USAGE = Usage(100, 10, requests=1, cost_usd=0.5)


def started(run_id: str, **facts: Any) -> RunStarted:
    told: dict[str, Any] = {
        "query": f"query of {run_id}",
        "model": "m",
        "sub_model": "s",
        "strategy": "rlm",
        "environment": "plan",
        "context_kind": "text",
        "context_bytes": 3,
        "context_sha256": "0",
        "context_description": "a str",
    }
    return RunStarted(run_id=run_id, **{**told, **facts})


def ended(run_id: str, **facts: Any) -> RunEnded:
    told: dict[str, Any] = {
        "stop_reason": "answer",
        "answer_source": "submitted",
        "answer": "42",
        "steps": 1,
        "usage": USAGE,
        "seconds": 2.0,
    }
    return RunEnded(run_id=run_id, **{**told, **facts})


def replied(run_id: str, step: int, text: str = "reply", **facts: Any) -> ModelReplied:
    facts = {"purpose": "step", "model": "m", "usage": USAGE, **facts}
    return ModelReplied(run_id=run_id, step=step, text=text, **facts)


def one_run(run_id: str, steps: int = 2, **facts: Any) -> list[Event]:
    """A run of some steps with a call each."""
    events: list[Event] = [started(run_id, **facts)]
    base = {key: facts[key] for key in ("parent_id", "depth") if key in facts}
    for step in range(1, steps + 1):
        call: dict[str, Any] = {"call_id": f"{run_id}.{step}", "kind": "llm", "model": "s"}
        events += [
            StepStarted(run_id=run_id, step=step, **base),
            replied(run_id, step, **base),
            CallStarted(run_id=run_id, step=step, prompt="p", **call, **base),
            CallEnded(run_id=run_id, step=step, reply="r", usage=USAGE, **call, **base),
        ]
    return [*events, ended(run_id, step=steps, steps=steps, **base)]


def used(tokens: int, cost_usd: float | None = None) -> Usage:
    return Usage(tokens, 0, requests=1, cost_usd=cost_usd)


def call(number: int, kind: str = "llm", **facts: Any) -> dict[str, Any]:
    about = {"run_id": "r", "step": 1, "call_id": f"r.call.{number}", "kind": kind, "model": "m"}
    return {**about, **facts}


def asked(text: str, step: int = 1, count: int = 1, **facts: Any) -> ModelAsked:
    return ModelAsked(
        run_id="r",
        step=step,
        purpose="step",
        model="m",
        new_messages=(Message("user", text),),
        message_count=count,
        max_output_tokens=9,
        **facts,
    )


def tree(*, is_over: bool = True) -> list[Event]:
    """A root with two steps. The first starts a child that starts another; the other one fails."""
    child: dict[str, Any] = {"run_id": "r-c", "parent_id": "r", "depth": 1}
    below: dict[str, Any] = {"run_id": "r-c-d", "parent_id": "r-c", "depth": 2}
    lost: dict[str, Any] = {"run_id": "r-e", "parent_id": "r", "depth": 1}
    inner = call(3, "rlm", **child)
    events: list[Event] = [
        started("r", wall_time=100.0),
        StepStarted(run_id="r", step=1, wall_time=100.1),
        asked("Begin.", wall_time=100.2),
        replied("r", 1, usage=used(1_000, 1.0), wall_time=101.0),
        CallStarted(**call(1), prompt="p", wall_time=101.0),
        CallEnded(**call(1), reply="r", usage=used(872, 0.5), wall_time=101.5),
        CallStarted(**call(2, "rlm"), prompt="p", wall_time=101.5),
        started(**child, parent_call_id="r.call.2", wall_time=101.6),
        replied(**child, step=1, usage=used(4_000, 2.0), wall_time=102.0),
        CallStarted(**inner, prompt="p", wall_time=102.0),
        started(**below, parent_call_id="r.call.3", wall_time=102.1),
        replied(**below, step=1, usage=used(3_000, 3.0), wall_time=102.5),
        ended(**below, usage=used(3_000, 3.0), wall_time=102.6),
        CallEnded(**inner, reply="r", child_run_id="r-c-d", wall_time=102.6),
        ended(**child, usage=used(7_100, 5.5), wall_time=102.8),
        CallEnded(**call(2, "rlm"), reply="r", child_run_id="r-c", wall_time=102.8),
        StepStarted(run_id="r", step=2, wall_time=103.0),
        asked("More.", 2, 3, wall_time=103.0),
        replied("r", 2, usage=used(50, 0.1), wall_time=109.0),
        CallStarted(**call(4, "rlm", step=2), prompt="p", wall_time=109.0),
        started(**lost, parent_call_id="r.call.4", wall_time=109.1),
        replied(**lost, step=1, usage=used(20, 0.2), wall_time=109.16),
        CallEnded(**call(4, "rlm", step=2), error="it has no answer", wall_time=109.16),
    ]
    over = ended("r", step=2, steps=2, usage=used(9_999, 8.5), seconds=10.4, wall_time=110.4)
    return [*events, over] if is_over else events


def written(path: Path, lines: Iterable[Event | bytes]) -> Path:
    """A log of these events, and of these bytes as they are."""
    whole = [each if isinstance(each, bytes) else encoded(each) + b"\n" for each in lines]
    path.write_bytes(b"".join(whole))
    return path


async def scripted_log(folder: Path, *, query: str = "What is it?", text: str = "seen") -> Path:
    """The log of a real run: a failing cell, a batch with a failing item, a child run."""
    logger = RLMLogger(log_dir=folder)
    await scripted_run(logger, query=query, text=text)
    assert logger.log_file_path is not None
    return Path(logger.log_file_path)


async def scripted_run(logger: RLMLogger, *, query: str, text: str) -> RunResult:
    client = ScriptedClient(
        [
            f"{text}\n" + cell(["print", text], ["set", "rows", text]),
            cell(["fail"]),
            cell(["batch", 2], ["rlm", 1], ["print", text]),
            cell(["final", text]),
        ],
        rules=[
            ("The task is in the variable", cell(["final", f"child {text}"])),
            ("piece 0", text),
            ("piece 1", ModelError(f"failed {text}")),
        ],
        usage=lambda request, reply: USAGE,
    )
    limits = Limits(max_depth=2)
    engine = RLM(client, environment=PlanEnvironment(), limits=limits, logger=logger)
    try:
        return await engine.aask(query, "alpha beta")
    finally:
        await engine.aclose()
