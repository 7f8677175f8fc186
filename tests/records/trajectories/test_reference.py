"""Logs of the reference engine are read as ours, and ours can be written as theirs."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlm.events import CallEnded, CellEnded, CellOutput, Event, ModelAsked, ModelReplied, RunStarted
from rlm.records.trajectories import open_trajectory
from rlm.records.trajectories import reference as reference_module
from rlm.records.trajectories.decoding import Skipped
from rlm.records.trajectories.exports import export
from tests.records.trajectories.samples import REFERENCE_LOG, scripted_log

CONTENT_OF_A_CALL = {"root_model", "prompt", "response", "usage_summary", "execution_time"}


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def real() -> list[dict[str, Any]]:
    return lines_of(REFERENCE_LOG.read_text("utf-8"))


def of_type(kind: type[Any], events: list[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def test_runs_are_read_from_a_real_reference_log() -> None:
    first, child, second = open_trajectory(REFERENCE_LOG).runs()
    assert (first.query, first.model) == ("What is the answer?", "scripted-1")
    assert (first.answer, first.stop_reason, first.steps, first.calls) == ("42", "answer", 4, 4)
    assert (child.parent_id, child.depth, child.query) == (first.run_id, 1, "Add one to 41")
    assert (child.answer, child.steps) == ("42", 2)
    assert (second.query, second.answer) == ("Which number?", "It may be 3.")
    assert (second.stop_reason, second.answer_source) == ("steps", "asked")
    assert len({first.run_id, child.run_id, second.run_id}) == 3
    assert first.tokens == 110 * 5
    assert 0 < first.seconds < 60
    assert first.started > 1_700_000_000


def test_everything_in_a_real_reference_log_is_in_the_events() -> None:
    trajectory = open_trajectory(REFERENCE_LOG)
    root = trajectory.runs()[0].run_id
    events = list(trajectory.run_events(root))
    iterations = [line for line in real() if line["type"] == "iteration"][:4]
    assert [e.text for e in of_type(ModelReplied, events)] == [i["response"] for i in iterations]
    messages: list[dict[str, str]] = []
    for asked, iteration in zip(of_type(ModelAsked, events), iterations, strict=True):
        messages += [{"role": m.role, "content": m.content} for m in asked.new_messages]
        assert messages == iteration["prompt"], "only what is new is in an event"
    (wrong,) = [e for e in of_type(CellEnded, events) if e.error_type]
    assert (wrong.step, wrong.error_type) == (2, "NameError")
    assert "alpha beta gamma del\n" in [e.text for e in of_type(CellOutput, events)]
    calls = of_type(CallEnded, events)
    assert [call.kind for call in calls] == ["llm", "llm", "llm", "rlm"]
    assert calls[3].child_run_id == trajectory.runs()[1].run_id
    assert of_type(CellEnded, events)[0].new_variables["rows"] == "list of 5"
    assert trajectory.skipped.total == 0, "NaN is no JSON, but Python writes it"


def test_a_step_of_a_real_reference_log_can_be_read_alone() -> None:
    trajectory = open_trajectory(REFERENCE_LOG)
    every = list(trajectory.events())
    for run in trajectory.runs():
        for step in trajectory.steps(run.run_id):
            expected = [e for e in every if (e.run_id, e.step) == (run.run_id, step)]
            assert list(trajectory.step_events(run.run_id, step)) == expected


def test_a_growing_reference_log_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "growing.jsonl"
    whole = REFERENCE_LOG.read_bytes()
    cut = whole.index(b'"iteration": 3') + 10
    path.write_bytes(whole[:cut])
    trajectory = open_trajectory(path)
    assert [(run.status, run.steps) for run in trajectory.runs()] == [("running", 2)]
    assert trajectory.skipped.counts == {"torn": 1}
    path.write_bytes(whole)
    trajectory.refresh()
    assert [run.steps for run in trajectory.runs()] == [4, 2, 5]
    assert list(trajectory.events()) == list(open_trajectory(path).events())
    assert trajectory.skipped.total == 0


def test_iterations_beyond_the_limit_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference_module, "MAX_ITERATIONS", 4)
    trajectory = open_trajectory(REFERENCE_LOG)
    assert [run.steps for run in trajectory.runs()] == [4, 2]
    assert trajectory.skipped.counts == {"of too many steps": 5}


def test_older_versions_of_reference_logs_can_be_read(tmp_path: Path) -> None:
    """No metadata, no timestamps, an answer with its kind, and the query in other words."""
    prompt = [{"role": "user", "content": 'about the original query: "How many?" now'}]
    line = {"type": "iteration", "prompt": prompt, "final_answer": ["FINAL", "3"]}
    path = tmp_path / "old.jsonl"
    path.write_text(json.dumps({**line, "code_blocks": [{"code": "1"}]}) + "\n", "utf-8")
    (run,) = open_trajectory(path).runs()
    assert (run.query, run.answer, run.stop_reason) == ("How many?", "3", "answer")
    assert (run.started, run.seconds, run.model) == (0.0, 0.0, "")


def test_a_log_is_recognised_whatever_the_order_of_its_keys(tmp_path: Path) -> None:
    """Programs that rewrite logs sort their keys, and some put a byte order mark in front."""
    rows = [json.loads(line) for line in REFERENCE_LOG.read_text("utf-8").splitlines()]
    path = tmp_path / "reference.jsonl"
    lines = [json.dumps(row, sort_keys=True) for row in rows]
    path.write_text("\r\n".join(lines), "utf-8-sig")
    assert "type" not in lines[0][:8]
    trajectory = open_trajectory(path)
    assert trajectory.runs() == open_trajectory(REFERENCE_LOG).runs()
    assert trajectory.skipped.total == 0


def test_nesting_of_children_is_limited(tmp_path: Path) -> None:
    iteration: dict[str, Any] = {"type": "iteration", "final_answer": "x", "code_blocks": []}
    for _ in range(80):
        call = {"metadata": {"iterations": [iteration]}}
        blocks = [{"code": "c", "result": {"rlm_calls": [call]}}]
        iteration = {"type": "iteration", "final_answer": "x", "code_blocks": blocks}
    path = tmp_path / "deep.jsonl"
    path.write_text(json.dumps(iteration) + "\n", "utf-8")
    trajectory = open_trajectory(path)
    assert max(run.depth for run in trajectory.runs()) == 50
    for format_ in ("html", "reference-jsonl"):
        assert "".join(export(trajectory, format_))


# -- and back -------------------------------------------------------------------------------------


def shape(value: Any) -> Any:
    """The keys and types of a value; lists by their first item."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if type(value) in {int, float} else type(value).__name__


async def test_an_export_has_the_keys_and_types_of_a_real_log(tmp_path: Path) -> None:
    ours = lines_of(
        "".join(export(open_trajectory(await scripted_log(tmp_path)), "reference-jsonl"))
    )
    theirs = real()
    assert shape(ours[0]) == shape(theirs[0])
    for line in ours[1:]:
        assert line.keys() == theirs[1].keys()
        assert isinstance(line["iteration_time"], float)
        assert {tuple(message) for message in line["prompt"]} == {("role", "content")}
        for block in line["code_blocks"]:
            assert block.keys() == theirs[1]["code_blocks"][0].keys()
            assert block["result"].keys() == theirs[1]["code_blocks"][0]["result"].keys()
    assert [line["iteration"] for line in ours[1:]] == [1, 2, 3, 4]
    assert [line["final_answer"] for line in ours[1:]] == [None, None, None, "seen"]
    calls = ours[3]["code_blocks"][0]["result"]["rlm_calls"]
    real_calls = theirs[3]["code_blocks"][0]["result"]["rlm_calls"]
    assert [call.keys() - CONTENT_OF_A_CALL for call in calls] == [set(), {"error"}, {"metadata"}]
    (usage,) = calls[0]["usage_summary"]["model_usage_summaries"].values()
    real_usage = real_calls[0]["usage_summary"]["model_usage_summaries"]["scripted-1"]
    assert shape(usage) == {**shape(real_usage), "total_cost": "number"}
    child, real_child = calls[2]["metadata"], real_calls[3]["metadata"]
    assert shape(child["run_metadata"]) == shape(real_child["run_metadata"])
    assert child["iterations"][0].keys() == real_child["iterations"][0].keys()
    assert child["iterations"][-1]["final_answer"] == "child seen"


def test_a_real_reference_log_survives_conversion_to_our_events() -> None:
    back = lines_of("".join(export(open_trajectory(REFERENCE_LOG), "reference-jsonl")))
    theirs = [line for line in real() if line["type"] == "iteration"]
    ours = [line for line in back if line["type"] == "iteration"]
    kept = ("iteration", "prompt", "response", "final_answer")
    assert [[line[key] for key in kept] for line in ours] == [
        [line[key] for key in kept] for line in theirs
    ]
    for line, real_line in zip(ours, theirs, strict=True):
        pairs = zip(line["code_blocks"], real_line["code_blocks"], strict=True)
        for block, real_block in pairs:
            assert block["code"] == real_block["code"]
            assert block["result"]["stdout"] == real_block["result"]["stdout"]
            assert block["result"]["stderr"] == real_block["result"]["stderr"]
            assert len(block["result"]["rlm_calls"]) == len(real_block["result"]["rlm_calls"])


async def test_an_exported_log_can_be_opened(tmp_path: Path) -> None:
    original = open_trajectory(await scripted_log(tmp_path / "a"))
    path = tmp_path / "exported.jsonl"
    path.write_text("".join(export(original, "reference-jsonl")), "utf-8")
    again = open_trajectory(path)
    assert again.skipped.total == 0
    facts = [(run.depth, run.steps, run.calls, run.answer) for run in original.runs()]
    assert [(run.depth, run.steps, run.calls, run.answer) for run in again.runs()] == facts
    assert isinstance(next(again.events()), RunStarted)


def test_the_states_between_lines_share_their_variables(tmp_path: Path) -> None:
    """Otherwise a small log with many lines takes a thousand times its size in memory."""
    variables = {f"v{number}": 1 for number in range(1_000)}
    first = {"type": "iteration", "code_blocks": [{"result": {"locals": variables}}]}
    lines = [{"type": "metadata"}, first, *[{"type": "iteration", "code_blocks": [{}]}] * 500]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    source = reference_module.ReferenceSource(path)
    for _ in source.glances(0, Skipped(), Skipped()):
        pass
    states = source._before.values()
    assert len(states) == 501
    assert len({id(state.variables) for state in states}) == 2
