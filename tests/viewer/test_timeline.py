"""One timeline of steps, cells, calls, operators and children; usage by model and depth."""

from pathlib import Path
from typing import Any

import pytest

from rlm import RLM, Limits, RLMLogger, ScriptedClient
from rlm.events import (
    CallEnded,
    CallStarted,
    CellEnded,
    CellStarted,
    Event,
    OperatorEnded,
    OperatorStarted,
    StepStarted,
)
from rlm.messages import Usage
from rlm.viewer import run_answers
from rlm.viewer.index import MAX_MODELS, OTHER_MODELS
from tests.fakes import PlanEnvironment, cell
from tests.records.trajectories.samples import ended, one_run, replied, started, used, written
from tests.viewer.serving import log_shelf, serving


def work() -> list[Event]:
    at: dict[str, Any] = {"run_id": "r", "step": 1}
    operator: dict[str, Any] = {**at, "operator_id": "o", "name": "classify"}
    return [
        started("r", wall_time=100.0),
        StepStarted(**at, wall_time=100.5),
        replied("r", 1, wall_time=101.0),
        CellStarted(**at, cell=1, code="classify(items)", wall_time=101.5),
        OperatorStarted(**operator, task="sort", items=3, distinct=3, wall_time=102.0),
        OperatorEnded(**operator, summary="3 items", prompts=1, wall_time=103.0),
        CellEnded(**at, cell=1, seconds=2.5, calls=0, error_type="ValueError", wall_time=104.0),
        CellStarted(**at, cell=2, code="still()", wall_time=104.5),
        *one_run("r-sample", 1, parent_id="r", depth=1, wall_time=101.0),
    ]


async def test_the_timeline_has_steps_cells_operators_and_children(tmp_path: Path) -> None:
    async with serving(log_shelf(written(tmp_path / "a.jsonl", work())), tmp_path) as client:
        found = await client.get("/api/runs/r/timeline")
        few = await client.get("/api/runs/r/timeline?limit=1")
    own = [row for row in found["spans"] if row["run_id"] == "r"]
    assert [(row["kind"], row["start"], row["end"]) for row in own] == [
        ("step", 100.5, 104.5),
        ("cell", 101.5, 104.0),
        ("operator", 102.0, 103.0),
        ("cell", 104.5, None),
    ]
    assert own[1]["error"] == "ValueError"
    assert (own[2]["prompt"], own[2]["reply"]) == ("classify: sort", "3 items")
    assert [row["run_id"] for row in found["spans"] if row["kind"] == "run"] == ["r-sample"]
    assert found["start"] == 100.0
    assert found["total"] == 1
    assert len(few["calls"]) == 1
    assert [row["kind"] for row in few["spans"]] == ["step", "cell", "run"]


async def test_a_child_shown_by_its_call_is_not_shown_twice(tmp_path: Path) -> None:
    client = ScriptedClient(
        [cell(["rlm", 1]), cell(["final", "done"])],
        rules=[("The task is in the variable", cell(["final", "child"]))],
        usage=lambda request, reply: Usage(90, 10, cost_usd=0.25),
    )
    logger = RLMLogger(log_dir=tmp_path)
    limits = Limits(max_depth=2)
    async with RLM(client, environment=PlanEnvironment(), limits=limits, logger=logger) as engine:
        result = await engine.aask("Q", "text")
    path = Path(str(logger.log_file_path))
    async with serving(log_shelf(path), tmp_path) as viewer:
        found = await viewer.get(f"/api/runs/{result.run_id}/timeline")
        usage = await viewer.get(f"/api/runs/{result.run_id}/usage")
    kinds = [row["kind"] for row in found["spans"]]
    assert "run" not in kinds
    assert kinds.count("step") == 3
    assert kinds.count("cell") == 3
    assert [row["kind"] for row in found["calls"]] == ["rlm"]
    assert sum(row["tokens"] for row in usage["models"]) == usage["tokens"] == 300
    assert [(row["depth"], row["runs"], row["tokens"]) for row in usage["depths"]] == [
        (0, 1, 200),
        (1, 1, 100),
    ]
    assert sum(row["cost_usd"] for row in usage["models"]) == usage["cost_usd"]
    assert [row["step"] for row in usage["steps"]][-2:] == [1, 2]
    assert usage["models"][0]["requests"] == 3


def calls(models: int) -> list[Event]:
    events: list[Event] = [started("r")]
    for number in range(models):
        call: dict[str, Any] = {"run_id": "r", "step": 1, "call_id": f"c{number}", "kind": "llm"}
        model = f"model {number} {'x' * 400}"
        events.append(CallStarted(**call, model=model, prompt="p"))
        events.append(CallEnded(**call, model=model, usage=used(10, 0.5)))
    return [*events, ended("r", usage=used(10 * models, 0.5 * models))]


async def test_models_beyond_the_limit_are_summed_up(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", calls(MAX_MODELS + 30))
    async with serving(log_shelf(path), tmp_path) as client:
        models = (await client.get("/api/runs/r/usage"))["models"]
    assert len(models) == MAX_MODELS + 1
    others = next(row for row in models if row["model"] == OTHER_MODELS)
    assert (others["tokens"], others["requests"]) == (300, 30)
    assert sum(row["tokens"] for row in models) == 10 * (MAX_MODELS + 30)
    assert max(len(row["model"]) for row in models) == 200


async def test_rows_beyond_the_limit_are_summed_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_answers, "MAX_ROWS", 3)
    async with serving(log_shelf(written(tmp_path / "a.jsonl", calls(7))), tmp_path) as client:
        models = (await client.get("/api/runs/r/usage"))["models"]
    assert len(models) == 4
    assert (models[-1]["model"], models[-1]["tokens"]) == ("others", 40)


async def test_the_code_of_a_step_is_complete_however_many_calls_it_made(tmp_path: Path) -> None:
    at: dict[str, Any] = {"run_id": "r", "step": 1}
    events: list[Event] = [started("r"), CellStarted(**at, cell=1, code="first()")]
    for number in range(600):
        call: dict[str, Any] = {**at, "call_id": f"c{number}", "kind": "llm", "model": "m"}
        events.append(CallStarted(**call, prompt="p"))
    events += [CellStarted(**at, cell=2, code="x" * 30_000), ended("r")]
    async with serving(log_shelf(written(tmp_path / "a.jsonl", events)), tmp_path) as client:
        found = await client.get("/api/runs/r/steps/1/code")
        assert found["code"] == f"first()\n\n{'x' * 30_000}"
        assert (await client.ask("/api/runs/r/steps/9/code")).status == 404
        assert (await client.ask("/api/runs/r/steps/-1/code")).status == 400
