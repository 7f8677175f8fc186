"""Every answer of the server, requested over HTTP."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.errors import ConfigError
from rlm.events import CallEnded, CallStarted, CellEnded, CellOutput, CellStarted, StepStarted
from rlm.records.trajectories import open_trajectory
from rlm.viewer.answers import Shortener, search, text_in
from rlm.viewer.assets import load_assets
from rlm.viewer.record_files import RecordFile
from tests.records.trajectories.samples import (
    REFERENCE_LOG,
    USAGE,
    ended,
    one_run,
    replied,
    scripted_log,
    started,
    written,
)
from tests.viewer.serving import log_shelf, serving


def tree_log(path: Path) -> Path:
    """A root with two children, one of which has a child of its own; and another root."""
    child = {"parent_id": "root", "depth": 1}
    events: list[Any] = [
        started("root", wall_time=10.0),
        *one_run("root-a", 1, **child),
        *one_run("root-a-b", 2, parent_id="root-a", depth=2),
        *one_run("root-c", 1, **child),
        *one_run("other", 3, wall_time=20.0),
        StepStarted(run_id="root", step=1, wall_time=11.0),
        CellStarted(run_id="root", step=1, cell=1, code="x"),
        CellEnded(run_id="root", step=1, cell=1, seconds=1, calls=0, error_type="ValueError"),
        ended("root", step=1, wall_time=15.0),
    ]
    return written(path, events)


async def test_the_list_shows_root_runs_newest_first(tmp_path: Path) -> None:
    async with serving(log_shelf(tree_log(tmp_path / "a.jsonl")), tmp_path) as client:
        found = await client.get("/api/runs")
        assert [run["run_id"] for run in found["runs"]] == ["other", "root"]
        root = found["runs"][1]
        assert (root["children"], root["deepest"], root["all_calls"]) == (3, 2, 4)
        assert found["skipped"] == {"count": 0, "reasons": []}
        viewer = await client.get("/api/viewer")
        assert viewer["title"] == "a.jsonl"
        assert viewer["can_fork"] is False
        assert "journaled" in viewer["why_not_fork"]


async def test_a_run_has_its_tree_steps_and_end(tmp_path: Path) -> None:
    async with serving(log_shelf(tree_log(tmp_path / "a.jsonl")), tmp_path) as client:
        found = await client.get("/api/runs/root")
        assert [run["run_id"] for run in found["tree"]] == ["root", "root-a", "root-c", "root-a-b"]
        assert [row["step"] for row in found["steps"]] == [0, 1]
        assert found["steps"][1]["error"] is True
        assert found["steps"][1]["cells"] == 1
        assert found["started"]["type"] == "run_started"
        assert found["ended"]["answer"] == "42"
        assert found["ended"]["index"] == 4
        child = await client.get("/api/runs/root-a-b")
        assert child["tree"][0]["run_id"] == "root"
        assert [row["calls"] for row in child["steps"]] == [0, 1, 1]
        assert child["steps"][1]["tokens"] == 220
        assert child["steps"][1]["cost_usd"] == 1.0


async def test_outlines_match_those_of_the_trajectory(tmp_path: Path) -> None:
    paths = [tree_log(tmp_path / "a.jsonl"), await scripted_log(tmp_path), REFERENCE_LOG]
    for path in paths:
        async with serving(log_shelf(path), tmp_path) as client:
            for outline in open_trajectory(path).runs():
                told = (await client.get(f"/api/runs/{outline.run_id}"))["run"]
                for name in outline.__struct_fields__:
                    assert told[name] == pytest.approx(getattr(outline, name)), name


@pytest.mark.parametrize("which", ["ours", "reference"])
async def test_steps_hold_the_events_of_a_run_in_order(tmp_path: Path, which: str) -> None:
    path = await scripted_log(tmp_path) if which == "ours" else REFERENCE_LOG
    trajectory = open_trajectory(path)
    async with serving(log_shelf(path), tmp_path) as client:
        for outline in trajectory.runs():
            index = 0
            expected = list(trajectory.run_events(outline.run_id))
            for row in (await client.get(f"/api/runs/{outline.run_id}"))["steps"]:
                found = await client.get(f"/api/runs/{outline.run_id}/steps/{row['step']}")
                assert found["total"] == len(found["events"])
                for event in found["events"]:
                    assert event["index"] == index
                    assert event["type"] == expected[index].__struct_config__.tag
                    assert event["step"] == row["step"]
                    index += 1
            assert index == len(expected)


async def test_a_step_is_paginated(tmp_path: Path) -> None:
    calls = [
        CallStarted(run_id="r", step=1, call_id=f"r.{n}", kind="llm", model="m", prompt=f"p{n}")
        for n in range(30)
    ]
    path = written(tmp_path / "a.jsonl", [started("r"), *calls])
    async with serving(log_shelf(path), tmp_path) as client:
        page = await client.get("/api/runs/r/steps/1?offset=10&limit=5")
        assert [event["prompt"] for event in page["events"]] == [f"p{n}" for n in range(10, 15)]
        assert page["total"] == 30
        assert (await client.get("/api/runs/r/steps/1?offset=1000"))["events"] == []


async def test_long_texts_are_cut_and_available_in_full_on_request(tmp_path: Path) -> None:
    text = "é🙂" * 20_000
    path = written(tmp_path / "a.jsonl", [started("r"), replied("r", 1, text)])
    async with serving(log_shelf(path), tmp_path) as client:
        event = (await client.get("/api/runs/r/steps/1"))["events"][0]
        assert event["cut"] == {"text": 40_000}
        assert event["text"] == text[:20_000]
        whole = await client.get(f"/api/runs/r/events/{event['index']}/text/text")
        assert whole == {"text": text}
        for bad in ("nothing", "usage", "text.0", "..", "run_id.x"):
            assert (await client.ask(f"/api/runs/r/events/1/text/{bad}")).status == 404


async def test_calls_of_the_whole_tree_are_listed(tmp_path: Path) -> None:
    path = await scripted_log(tmp_path)
    async with serving(log_shelf(path), tmp_path) as client:
        root = (await client.get("/api/runs"))["runs"][0]
        found = await client.get(f"/api/runs/{root['run_id']}/calls")
        rows = {row["prompt"]: row for row in found["calls"] if row["kind"] == "llm"}
        assert found["total"] == len(found["calls"]) == root["all_calls"]
        assert rows["piece 0"]["tokens"] == 110
        assert "failed seen" in rows["piece 1"]["error"]
        (child,) = [row for row in found["calls"] if row["kind"] == "rlm"]
        assert child["child_run_id"].startswith(root["run_id"])
        assert all(row["end"] >= row["start"] for row in found["calls"])
        few = await client.get(f"/api/runs/{root['run_id']}/calls?limit=1")
        assert (len(few["calls"]), few["total"]) == (1, found["total"])


async def test_a_call_in_progress_has_no_end(tmp_path: Path) -> None:
    call = CallStarted(run_id="r", step=1, call_id="r.1", kind="llm", model="m", prompt="p")
    stray = CallEnded(run_id="r", step=1, call_id="r.2", kind="llm", model="m")
    path = written(tmp_path / "a.jsonl", [started("r"), call, stray])
    async with serving(log_shelf(path), tmp_path) as client:
        (row,) = (await client.get("/api/runs/r/calls"))["calls"]
        assert row["end"] is None


async def test_usage_adds_up_by_depth(tmp_path: Path) -> None:
    async with serving(log_shelf(tree_log(tmp_path / "a.jsonl")), tmp_path) as client:
        points = (await client.get("/api/runs/root/usage"))["points"]
        last = {point["depth"]: point for point in points}
        assert {depth: point["tokens"] for depth, point in last.items()} == {1: 440, 2: 440}
        assert last[1]["cost_usd"] == 2.0


async def test_the_number_of_usage_points_is_limited(tmp_path: Path) -> None:
    replies = [replied("r", 1, wall_time=float(n)) for n in range(5_001)]
    path = written(tmp_path / "a.jsonl", [started("r"), *replies])
    async with serving(log_shelf(path), tmp_path) as client:
        points = (await client.get("/api/runs/r/usage"))["points"]
        assert len(points) <= 2_000
        assert points[-1]["tokens"] == 5_001 * USAGE.total_tokens


async def test_search_ignores_case(tmp_path: Path) -> None:
    events = [
        started("r", query="Where is the NEEDLE?"),
        replied("r", 1, 'a "needle" in\nhay'),
        CellOutput(run_id="r", step=2, cell=1, stream="stdout", text="Ünïcode", written_chars=7),
        *one_run("r-c", 1, parent_id="r", depth=1),
        replied("r-c", 2, "NeEdLe below"),
    ]
    async with serving(log_shelf(written(tmp_path / "a.jsonl", events)), tmp_path) as client:

        async def hits(query: str, more: str = "") -> list[tuple[str, int, str]]:
            found = await client.get(f"/api/runs/r/search?q={query}{more}")
            return [(hit["run_id"], hit["step"], hit["type"]) for hit in found["hits"]]

        three = [("r", 0, "run_started"), ("r", 1, "model_replied"), ("r-c", 2, "model_replied")]
        assert await hits("needle") == three
        assert await hits("%22NEEDLE%22%20in%0Ahay") == three[1:2]
        assert await hits("%C3%BCn%C3%AFcode") == [("r", 2, "cell_output")]
        assert await hits("model_replied") == []
        assert await hits("n.*e") == []
        first = await client.get("/api/runs/r/search?q=needle&limit=1")
        assert (len(first["hits"]), first["more"]) == (1, True)
        assert (await client.get("/api/runs/r/search?q=needle"))["more"] is False
        assert (await client.ask("/api/runs/r/search?q=")).status == 400
        assert (await client.ask(f"/api/runs/r/search?q={'x' * 1_001}")).status == 400


def test_an_abandoned_search_ends(tmp_path: Path) -> None:
    file = RecordFile(written(tmp_path / "a.jsonl", one_run("r", 50)))
    file.refresh()
    stop = threading.Event()
    everything, more = search(file, ["r"], "reply", 1_000, stop)
    assert (len(everything), more) == (50, False)
    stop.set()
    assert search(file, ["r"], "reply", 1_000, stop) == ([], True)


@pytest.mark.parametrize(
    "query", ["limit=-1", "limit=x", "offset=1e3", "offset=%D9%A1", "limit=" + "9" * 40]
)
async def test_invalid_numbers_are_refused(tmp_path: Path, query: str) -> None:
    async with serving(log_shelf(tree_log(tmp_path / "a.jsonl")), tmp_path) as client:
        answer = await client.ask(f"/api/runs/root/steps/1?{query}")
        assert answer.status == 400
        assert "whole number" in answer.json["error"]


async def test_hostile_lines_are_counted_and_shown_as_text(tmp_path: Path) -> None:
    script = "<script>alert(1)</script>\x1b[31m\u202e\x00"
    lines: list[Any] = [
        started("r", query=script),
        b"not json\n",
        b'{"type":"model_replied","run_id":7}\n',
        b'{"type":"who_knows","run_id":"r"}\n',
        b'{"type":"model_replied","run_id":"r","step":1,"text":[1]}\n',
        b"[" * 100_000 + b"\n",
        replied("r", 1, script),
        b'{"type":"step_start',
    ]
    async with serving(log_shelf(written(tmp_path / "a.jsonl", lines)), tmp_path) as client:
        found = await client.get("/api/runs")
        assert found["skipped"]["count"] == 4
        assert str(tmp_path) not in json.dumps(found)
        assert (await client.get("/api/runs/r"))["run"]["query"] == script
        (event,) = (await client.get("/api/runs/r/steps/1"))["events"]
        assert event["text"] == script


async def test_logs_of_a_folder_form_one_list(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    async with serving(log_shelf(logs), tmp_path) as client:
        assert (await client.get("/api/runs"))["runs"] == []
        for name in ("a", "b"):
            written(logs / f"{name}.jsonl", one_run(name))
        (logs / "broken.sqlite").write_bytes(b"SQLite format 3\0 and nothing else")
        (logs / "other.txt").write_text("no log", "utf-8")
        found = await client.get("/api/runs")
        assert sorted(run["run_id"] for run in found["runs"]) == ["a", "b"]
        assert found["skipped"]["count"] == 1
        assert str(tmp_path) not in json.dumps(found)
        (logs / "a.jsonl").unlink()
        assert [run["run_id"] for run in (await client.get("/api/runs"))["runs"]] == ["b"]
        assert (await client.ask("/api/runs/a")).status == 404


async def test_the_last_attempt_of_a_run_counts(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", [*one_run("r", 3)[:-1], *one_run("r", 1)])
    async with serving(log_shelf(path), tmp_path) as client:
        found = await client.get("/api/runs/r")
        assert found["run"]["attempts"] == 2
        assert [row["step"] for row in found["steps"]] == [0, 1]


async def test_errors_are_json_with_plain_messages(tmp_path: Path) -> None:
    async with serving(log_shelf(tree_log(tmp_path / "a.jsonl")), tmp_path) as client:
        for path in ("/api/runs/nobody", "/api/nothing", "/nothing", "/api/runs/root/steps/99"):
            answer = await client.ask(path)
            assert (answer.status, list(answer.json)) == (404, ["error"])
        assert (await client.ask("/api/runs", "DELETE")).status == 403


def test_a_missing_page_is_reported_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="npm run build"):
        load_assets(tmp_path)


values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.text(max_size=50),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=30,
)


@given(st.dictionaries(st.text(max_size=8), values, max_size=5), st.integers(0, 40))
def test_cut_texts_keep_their_start_and_state_their_length(
    settings: dict[str, Any], most: int
) -> None:
    event = started("r", settings=settings, query="q" * 60)
    shaped = Shortener(most).shaped(event, 3)
    for field, total in shaped.get("cut", {}).items():
        if field == "query":
            assert (total, shaped["query"]) == (60, "q" * most)
    assert shaped["index"] == 3
    assert json.dumps(shaped)
    assert text_in(event, "query")["text"] == "q" * 60
