"""Events and files for the tests of trajectories."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rlm.api import RLM
from rlm.clients.scripted import ScriptedClient
from rlm.errors import ModelError
from rlm.events import (
    CallEnded,
    CallStarted,
    Event,
    ModelReplied,
    RunEnded,
    RunStarted,
    StepStarted,
)
from rlm.limits import Limits
from rlm.logger import RLMLogger, encoded
from rlm.messages import Usage
from rlm.results import RunResult
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
