"""What the viewer adds up is what happened: steps with their children, totals, and what was read.

All of it is asked for over HTTP, as the page does.
"""

from pathlib import Path
from typing import Any

import pytest

from rlm.api import RLM
from rlm.context import store_context
from rlm.errors import ModelError
from rlm.events import (
    CallEnded,
    CallStarted,
    CellOutput,
    CellStarted,
    Event,
)
from rlm.limits import Limits
from rlm.logger import RLMLogger
from rlm.messages import Usage
from rlm.testing.scripted import ScriptedClient
from tests.fakes import PlanEnvironment, cell
from tests.records.trajectories.samples import (
    asked,
    call,
    ended,
    replied,
    started,
    tree,
    used,
    written,
)
from tests.viewer.serving import log_shelf, serving

TEXT = "".join(f"Line {number} of a text that one can tell apart.\n" for number in range(100))
HALF = TEXT[: len(TEXT) // 2]


# -- coverage -------------------------------------------------------------------------------------


async def unread_percent(folder: Path, *events: Event) -> tuple[float, list[str]]:
    """Return the unread percentage of the text, and in which ways the rest was read."""
    context = store_context(TEXT)
    facts = {"context_sha256": context.sha256, "context_bytes": context.size_bytes}
    path = written(folder / "a.jsonl", [started("r", **facts), *events])
    async with serving(log_shelf(path), folder, context=lambda: context) as client:
        found = await client.get("/api/runs/r/coverage")
    assert found["available"]
    return found["unread_percent"], [reader["kind"] for reader in found["readers"]]


async def test_text_of_a_failed_call_was_not_read(tmp_path: Path) -> None:
    failed = CallEnded(**call(1), error="the server did not answer in time", limit="seconds")
    events: list[Event] = [CallStarted(**call(1), prompt=TEXT), failed]
    assert await unread_percent(tmp_path, *events) == (100.0, [])


async def test_text_of_an_unfinished_call_was_not_read(tmp_path: Path) -> None:
    """It is under way, or the process was killed, or the cell was interrupted."""
    assert await unread_percent(tmp_path, CallStarted(**call(1), prompt=TEXT)) == (100.0, [])


@pytest.mark.parametrize("facts", [{}, {"retries": 2}, {"stored": True}])
async def test_text_of_an_answered_call_was_read_once(
    tmp_path: Path, facts: dict[str, Any]
) -> None:
    events: list[Event] = [
        CallStarted(**call(1), prompt=TEXT),
        CallEnded(**call(1), reply="yes", **facts),
    ]
    assert await unread_percent(tmp_path, *events) == (0.0, ["call"])


async def test_only_answered_calls_count_as_reading(tmp_path: Path) -> None:
    events: list[Event] = [
        CallStarted(**call(1), prompt=TEXT),
        CallStarted(**call(2), prompt=HALF),
        CallEnded(**call(2), reply="yes"),
        CallEnded(**call(1), error="refused", limit="tokens"),
    ]
    unread, kinds = await unread_percent(tmp_path, *events)
    assert unread == pytest.approx(50.0, abs=1.0)
    assert kinds == ["call"]


async def test_a_call_id_of_another_run_is_not_matched(tmp_path: Path) -> None:
    events: list[Event] = [
        CallStarted(**call(1), prompt=TEXT),
        started("r-c", parent_id="r", depth=1),
        CallEnded(**call(1, run_id="r-c", parent_id="r"), reply="yes"),
    ]
    assert await unread_percent(tmp_path, *events) == (100.0, [])


async def test_the_first_request_counts_as_read_once_answered(tmp_path: Path) -> None:
    failed = replied("r", 1, "", error="no connection", usage=None)
    assert await unread_percent(tmp_path, asked(TEXT), failed) == (100.0, [])
    assert await unread_percent(tmp_path, asked(TEXT)) == (100.0, [])
    assert await unread_percent(tmp_path, asked(TEXT), replied("r", 1)) == (0.0, ["request"])
    again: list[Event] = [asked(TEXT), failed, asked("Well?", 2, 2), replied("r", 2)]
    assert await unread_percent(tmp_path, *again) == (0.0, ["request"])


def only_log(folder: Path) -> Path:
    (path,) = folder.glob("*.jsonl")
    return path


async def test_of_a_long_output_only_what_the_model_was_shown_was_read(tmp_path: Path) -> None:
    text = TEXT + "".join(f"{number} more lines follow this one.\n" for number in range(900))
    prints = "print(context, end='')\nprint('\\n… 10 of 20 characters cut …')"
    logger = RLMLogger(log_dir=tmp_path)
    client = ScriptedClient([f"```repl\n{prints}\n```", "FINAL(done)"])
    limits = Limits(output_chars=2_000)
    async with RLM(client, logger=logger, limits=limits, environment="local") as one:
        result = await one.aask("What?", text)
    context = store_context(text)
    async with serving(log_shelf(only_log(tmp_path)), tmp_path, context=lambda: context) as page:
        found = await page.get(f"/api/runs/{result.run_id}/coverage")
    assert {reader["kind"] for reader in found["readers"]} == {"printed", "request"}
    assert found["unread_percent"] == pytest.approx(100 * (1 - 2_000 / len(text)), abs=0.5)


async def test_text_printed_by_a_cell_is_marked_as_printed(tmp_path: Path) -> None:
    about: dict[str, Any] = {"run_id": "r", "step": 1, "cell": 1}
    out = CellOutput(**about, stream="stdout", text=TEXT, written_chars=len(TEXT))
    cell: list[Event] = [CellStarted(**about, code="c"), out]
    shown: list[Event] = [asked(TEXT, 2, 2), replied("r", 2)]
    unread, kinds = await unread_percent(tmp_path, *cell, *shown)
    assert (unread < 0.1, kinds) == (True, ["printed"])
    assert await unread_percent(tmp_path, *cell) == (100.0, []), "no model was shown it"


async def test_a_real_run_whose_calls_fail_has_read_nothing(tmp_path: Path) -> None:
    client = ScriptedClient(
        [cell(["batch", 2]), cell(["final", "done"])],
        rules=[("piece 0", ModelError("it is down")), ("piece 1", "a reply")],
    )
    logger, context = RLMLogger(log_dir=tmp_path), "piece 0 and some words\n" * 5
    async with RLM(client, environment=PlanEnvironment(), logger=logger, preview_chars=0) as engine:
        await engine.aask("Q", context)
    path = Path(str(logger.log_file_path))
    shelf = log_shelf(path)
    async with serving(shelf, tmp_path, context=lambda: store_context(context)) as viewer:
        (run,) = (await viewer.get("/api/runs"))["runs"]
        rows = (await viewer.get(f"/api/runs/{run['run_id']}/calls"))["calls"]
        found = await viewer.get(f"/api/runs/{run['run_id']}/coverage")
    (failed,) = [row["call_id"] for row in rows if row["error"]]
    assert failed not in [reader["call_id"] for reader in found["readers"]]


# -- steps and totals -----------------------------------------------------------------------------


async def test_a_step_shows_its_usage_with_and_without_children(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", tree())
    async with serving(log_shelf(path), tmp_path) as client:
        rows = {row["step"]: row for row in (await client.get("/api/runs/r"))["steps"]}
        below = (await client.get("/api/runs/r-c"))["steps"]
    assert (rows[1]["own_tokens"], rows[1]["tokens"]) == (1_872, 8_972)
    assert (rows[1]["own_cost_usd"], rows[1]["cost_usd"]) == (1.5, 7.0)
    assert (rows[2]["own_tokens"], rows[2]["tokens"]) == (50, 70)  # Its child failed, and cost.
    assert (rows[0]["own_tokens"], rows[0]["tokens"]) == (0, 0)
    assert (below[-1]["own_tokens"], below[-1]["tokens"]) == (4_000, 7_000)


async def test_an_unknown_cost_of_a_child_makes_its_steps_cost_unknown(tmp_path: Path) -> None:
    child: dict[str, Any] = {"run_id": "r-c", "parent_id": "r", "depth": 1}
    events: list[Event] = [
        started("r"),
        replied("r", 1, usage=used(10, 0.5)),
        CallStarted(**call(1, "rlm"), prompt="p"),
        started(**child, parent_call_id="r.call.1"),
        replied(**child, step=1, usage=used(5, None)),
    ]
    path = written(tmp_path / "a.jsonl", events)
    async with serving(log_shelf(path), tmp_path) as client:
        row = (await client.get("/api/runs/r"))["steps"][-1]
    assert (row["tokens"], row["cost_usd"], row["own_cost_usd"]) == (15, None, 0.5)


async def test_usage_stated_by_a_call_is_not_added_to_its_childs(tmp_path: Path) -> None:
    """As in logs of the reference engine, whose runs do not record their own requests."""
    child: dict[str, Any] = {"run_id": "r-c", "parent_id": "r", "depth": 1}
    events: list[Event] = [
        started("r"),
        CallStarted(**call(1, "rlm"), prompt="p"),
        started(**child, parent_call_id="r.call.1"),
        ended(**child, usage=used(40)),
        CallEnded(**call(1, "rlm"), reply="r", usage=used(100), child_run_id="r-c"),
    ]
    path = written(tmp_path / "a.jsonl", events)
    async with serving(log_shelf(path), tmp_path) as client:
        row = (await client.get("/api/runs/r"))["steps"][-1]
    assert (row["own_tokens"], row["tokens"]) == (0, 100)


async def test_totals_of_an_ended_run_are_those_of_its_last_event(tmp_path: Path) -> None:
    async with serving(log_shelf(written(tmp_path / "a.jsonl", tree())), tmp_path) as client:
        found = await client.get("/api/runs/r/usage")
        child = await client.get("/api/runs/r-c/usage")
    assert (found["tokens"], found["cost_usd"]) == (9_999, 8.5)
    assert (found["start"], found["end"]) == (100.0, 110.4)
    assert max(point["time"] for point in found["points"]) == 109.16
    assert (child["tokens"], child["cost_usd"]) == (7_100, 5.5)


async def test_totals_of_a_run_in_progress_are_those_so_far(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", tree(is_over=False))
    async with serving(log_shelf(path), tmp_path) as client:
        found = await client.get("/api/runs/r/usage")
    assert (found["tokens"], found["end"]) == (1_922 + 7_100 + 20, 109.16)


async def test_the_timeline_includes_requests_of_the_runs_themselves(
    tmp_path: Path,
) -> None:
    async with serving(log_shelf(written(tmp_path / "a.jsonl", tree())), tmp_path) as client:
        found = await client.get("/api/runs/r/calls")
        few = await client.get("/api/runs/r/calls?limit=1")
    rows = [(row["run_id"], row["step"], row["start"], row["end"]) for row in found["requests"]]
    assert rows == [("r", 1, 100.2, 101.0), ("r", 2, 103.0, 109.0)]
    assert {row["kind"] for row in found["requests"]} == {"request"}
    assert (found["requests"][0]["tokens"], found["requests"][0]["prompt"]) == (1_000, "Begin.")
    assert (found["start"], found["end"], found["total"]) == (100.0, 110.4, 4)
    assert len(few["requests"]) == 1


async def test_the_steps_of_a_real_run_add_up_to_its_total(tmp_path: Path) -> None:
    client = ScriptedClient(
        [cell(["batch", 2], ["rlm", 1]), cell(["rlm", 1]), cell(["final", "done"])],
        rules=[
            ("The task is in the variable", cell(["final", "child"])),
            ("piece 0", "a reply"),
            ("piece 1", "another one"),
        ],
        usage=lambda request, reply: Usage(90, 10, cost_usd=0.25),
    )
    logger, limits = RLMLogger(log_dir=tmp_path), Limits(max_depth=2)
    async with RLM(client, environment=PlanEnvironment(), limits=limits, logger=logger) as engine:
        result = await engine.aask("Q", "text")
    path = Path(str(logger.log_file_path))
    async with serving(log_shelf(path), tmp_path) as viewer:
        (run,) = (await viewer.get("/api/runs"))["runs"]
        rows = (await viewer.get(f"/api/runs/{run['run_id']}"))["steps"]
        usage = await viewer.get(f"/api/runs/{run['run_id']}/usage")
    assert sum(row["tokens"] for row in rows) == result.usage.total.total_tokens == 700
    assert sum(row["own_tokens"] for row in rows) == 500
    assert (usage["tokens"], usage["cost_usd"]) == (700, 1.75)
    assert usage["end"] - usage["start"] == pytest.approx(result.seconds, abs=1e-5)


async def test_hits_name_the_cell_or_call_and_the_kind_of_text(tmp_path: Path) -> None:
    about: dict[str, Any] = {"run_id": "r", "step": 2, "cell": 3}
    events: list[Event] = [
        started("r", query="needle"),
        asked("a needle"),
        replied("r", 1, "none", reasoning="needle?"),
        CellOutput(**about, stream="stdout", text="needle", written_chars=6),
        CallStarted(**call(1), prompt="needle"),
        CallEnded(**call(1), error="no needle"),
    ]
    async with serving(log_shelf(written(tmp_path / "a.jsonl", events)), tmp_path) as client:
        hits = (await client.get("/api/runs/r/search?q=needle"))["hits"]
    assert [(hit["step"], hit["field"], hit["cell"], hit["call_id"]) for hit in hits] == [
        (0, "query", None, None),
        (1, "new_messages", None, None),
        (1, "reasoning", None, None),
        (2, "text", 3, None),
        (1, "prompt", None, "r.call.1"),
        (1, "error", None, "r.call.1"),
    ]
