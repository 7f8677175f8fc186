"""Every form holds what happened, and is what its readers take."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlm.api import RLM
from rlm.errors import ConfigError
from rlm.events import CallEnded, Event, ModelAsked, RunEnded
from rlm.logger import RLMLogger
from rlm.messages import Message, Reply, Request, ToolCall, Usage
from rlm.records.trajectories import open_trajectory
from rlm.records.trajectories.exports import FORMATS, export
from rlm.testing.scripted import ScriptedClient
from tests.fakes import PlanEnvironment, cell
from tests.records.trajectories.samples import (
    REFERENCE_LOG,
    ended,
    one_run,
    replied,
    scripted_log,
    started,
    tree,
    written,
)


def rows(path: Path, format_: str) -> list[dict[str, Any]]:
    text = "".join(export(open_trajectory(path), format_))
    return [json.loads(line) for line in text.splitlines()]


async def logged(folder: Path, client: ScriptedClient, **options: Any) -> Path:
    logger = RLMLogger(log_dir=folder)
    engine = RLM(client, environment=PlanEnvironment(), logger=logger, **options)
    try:
        await engine.aask("q", "a context")
    finally:
        await engine.aclose()
    assert logger.log_file_path is not None
    return Path(logger.log_file_path)


def complaints(row: dict[str, Any]) -> list[str]:
    """What OpenAI's fine-tuning would refuse in a conversation."""
    found = [f"key {key}" for key in row.keys() - {"messages", "tools", "parallel_tool_calls"}]
    open_calls: set[str] = set()
    named = {tool["function"]["name"] for tool in row.get("tools", [])}
    for message in row["messages"]:
        if open_calls and message["role"] != "tool":
            found.append(f"calls {open_calls} are not answered")
        if message["role"] == "tool":
            found += [] if message["tool_call_id"] in open_calls else ["an answer without a call"]
            open_calls.discard(message["tool_call_id"])
        if message["role"] == "assistant":
            calls = message.get("tool_calls", [])
            found += [] if calls or isinstance(message.get("content"), str) else ["says nothing"]
            open_calls = {call["id"] for call in calls}
            for call in calls:
                json.loads(call["function"]["arguments"])
                found += [] if call["function"]["name"] in named else ["a tool that is not named"]
        elif not isinstance(message["content"], str | list):
            found.append("no content")
    return found + ([] if row["messages"][-1]["role"] == "assistant" else ["no reply at the end"])


async def test_a_training_row_is_what_the_model_saw_and_wrote(tmp_path: Path) -> None:
    client = ScriptedClient([cell(["print", "one"]), cell(["print", "two"]), cell(["final", "3"])])
    found = rows(await logged(tmp_path, client), "sft")
    assert [row["step"] for row in found] == [1, 2, 3]
    for row, request in zip(found, client.requests, strict=True):
        sent = [{"role": m.role, "content": m.content} for m in request.messages]
        assert row["prompt"] == sent
    replies = [row["completion"] for row in found]
    assert replies[0] == [{"role": "assistant", "content": cell(["print", "one"])}]
    assert {row["run_stop_reason"] for row in found} == {"answer"}


async def test_child_runs_have_their_own_rows_and_conversations(tmp_path: Path) -> None:
    path = await scripted_log(tmp_path)
    found = rows(path, "sft")
    assert [(row["depth"], row["step"], row["kind"]) for row in found] == [
        *((0, 1, "step"), (0, 2, "step"), (0, 3, "step"), (0, 3, "call"), (0, 4, "step")),
        (1, 1, "step"),
    ]
    assert found[-1]["parent_id"] == found[-1]["root_id"] == found[0]["run_id"]
    chats = rows(path, "openai-chat")
    assert [complaints(row) for row in chats] == [[], [], []], "the run, its call, and its child"
    assert [m["role"] for m in chats[0]["messages"]] == ["system", *["user", "assistant"] * 4]


def test_failed_and_empty_replies_are_not_exported_for_training(tmp_path: Path) -> None:
    def asked(step: int, *new: Message, count: int) -> ModelAsked:
        facts: dict[str, Any] = {"purpose": "step", "model": "m", "max_output_tokens": 9}
        return ModelAsked(run_id="a", step=step, new_messages=new, message_count=count, **facts)

    user = Message("user", "go")
    events: list[Event] = [
        started("a"),
        asked(1, Message("system", "s"), user, count=2),
        replied("a", 1, text=""),
        asked(1, Message("system", "s"), user, count=2),
        replied("a", 1, text="  "),
        asked(2, Message("assistant", "  "), Message("user", "well?"), count=4),
        replied("a", 2, text="", error="unreachable"),
        ended("a"),
    ]
    path = written(tmp_path / "a.jsonl", events)
    assert rows(path, "sft") == []
    assert rows(path, "openai-chat") == []
    events.insert(-1, replied("a", 2, text="now"))
    path = written(tmp_path / "a.jsonl", events)
    (row,) = rows(path, "openai-chat")
    empty = {"role": "assistant", "content": "  ", "weight": 0}
    assert row["messages"][2:] == [
        empty,
        {"role": "user", "content": "well?"},
        {"role": "assistant", "content": "now"},
    ]


async def test_native_tool_calls_are_in_openais_form(tmp_path: Path) -> None:
    def call(number: int, *orders: Any) -> Reply:
        arguments = {"code": json.dumps(orders)}
        made = ToolCall(
            "an id that is much longer than forty characters, " + str(number),
            "execute_python",
            arguments,
        )
        again = ToolCall(f"second-{number}", "execute_python", {"code": "[]"})
        return Reply(text="", tool_calls=(made, again), finish_reason="tool_calls")

    client = ScriptedClient([call(1, ["print", "one"]), call(2, ["final", "2"])])
    path = await logged(tmp_path, client, protocol="tools")
    (row,) = rows(path, "openai-chat")
    assert complaints(row) == []
    roles = [message["role"] for message in row["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool", "assistant"]
    ids = [call["id"] for m in row["messages"] for call in m.get("tool_calls", ())]
    assert ids == ["call_1", "call_2", "call_3", "call_4"]
    assert [tool["function"]["name"] for tool in row["tools"]] == ["execute_python"]
    first = rows(path, "sft")[0]["completion"][0]["tool_calls"][0]
    assert json.loads(first["function"]["arguments"]["code"]) == [["print", "one"]]


async def test_each_stretch_between_compactions_is_a_conversation(tmp_path: Path) -> None:
    long_text = "x" * 6_000

    def answer(request: Request) -> Reply:
        text = str(request.messages[-1].content)
        wants_notes = any(word in text for word in ("notes", "Notes")) and "x" * 100 in text
        return Reply(text="my notes" if wants_notes else cell(["print", long_text]))

    script: list[Any] = [answer] * 6 + ["FINAL(done)"] * 3
    client = ScriptedClient(
        script, window_tokens=9_000, usage=lambda request, text: Usage(1, 1, requests=1)
    )
    path = await logged(tmp_path, client)
    kinds = [type(event).__name__ for event in open_trajectory(path).events()]
    assert "Compacted" in kinds, "or this test shows nothing"
    chats = rows(path, "openai-chat")
    assert len(chats) == 1 + kinds.count("Compacted")
    assert [complaints(row) for row in chats] == [[]] * len(chats)
    sent = [[{"role": m.role, "content": m.content} for m in r.messages] for r in client.requests]
    different = [each for at, each in enumerate(sent) if each not in sent[:at]]
    assert [row["prompt"] for row in rows(path, "sft")] == different


async def test_a_report_has_every_part_once_and_in_order(tmp_path: Path) -> None:
    trajectory = open_trajectory(await scripted_log(tmp_path, query="How so?"))
    for format_ in ("markdown", "html"):
        text = "".join(export(trajectory, format_))
        parts = ["How so?", "Answer", "Runs", "Run 1", "Step 1", "Cell 1", "Step 2", "told to fail"]
        places = [text.index(part) for part in parts]
        assert places == sorted(places)
        assert "$3.0000" in text
        assert "failed seen" in text
        assert text.count("<details") == text.count("</details>") >= 8


async def test_one_run_can_be_chosen(tmp_path: Path) -> None:
    trajectory = open_trajectory(await scripted_log(tmp_path))
    root, child = trajectory.runs()
    text = "".join(export(trajectory, "sft", run_id=child.run_id))
    assert [json.loads(line)["run_id"] for line in text.splitlines()] == [child.run_id]
    assert "".join(export(trajectory, "sft", run_id=root.run_id)).count("\n") == 6
    with pytest.raises(ConfigError, match="no run 'x'"):
        export(trajectory, "sft", run_id="x")


def test_an_impossible_export_says_why(tmp_path: Path) -> None:
    trajectory = open_trajectory(written(tmp_path / "a.jsonl", [b"rubbish\n"]))
    with pytest.raises(ConfigError, match=r"no run to export.*1 line was skipped"):
        export(trajectory, "html")
    with pytest.raises(ConfigError, match="formats: sft, trl, openai-chat, markdown, html"):
        export(trajectory, "pdf")


@pytest.mark.parametrize("format_", FORMATS)
def test_unfinished_and_foreign_runs_can_be_exported(tmp_path: Path, format_: str) -> None:
    for path in (written(tmp_path / "a.jsonl", one_run("a")[:-2]), REFERENCE_LOG):
        text = "".join(export(open_trajectory(path), format_))
        if FORMATS[format_].ending == ".jsonl":
            assert all(isinstance(json.loads(line), dict) for line in text.splitlines())
        else:
            assert text


def test_a_requested_final_answer_is_an_iteration(tmp_path: Path) -> None:
    final = replied("a", 1, text="perhaps 3", purpose="final")
    end = ended("a", step=1, answer="perhaps 3", stop_reason="steps", answer_source="asked")
    events = [*one_run("a", steps=1)[:-1], final, end]
    assert isinstance(end, RunEnded)
    found = rows(written(tmp_path / "a.jsonl", events), "reference-jsonl")
    assert [row.get("response") for row in found[1:]] == ["reply", "perhaps 3"]
    assert [row["final_answer"] for row in found[1:]] == [None, "perhaps 3"]
    assert found[2]["iteration_time"] is None


def test_calls_without_a_cell_are_in_a_block_without_code(tmp_path: Path) -> None:
    events = [event for event in one_run("a", steps=1) if type(event).__name__ != "ModelReplied"]
    found = rows(written(tmp_path / "a.jsonl", events), "reference-jsonl")
    (block,) = found[1]["code_blocks"]
    assert (block["code"], len(block["result"]["rlm_calls"])) == ("", 1)


def test_runs_that_claim_to_have_started_each_other_are_written_once(tmp_path: Path) -> None:
    """Each of many runs says twice that it started the next, and the last the first."""
    events: list[Event] = []
    for number in range(40):
        run_id, after = f"r{number}", f"r{(number + 1) % 40}"
        parent = f"r{number - 1}" if number else None
        call: dict[str, Any] = {"kind": "rlm", "model": "m", "child_run_id": after, "reply": "x"}
        events += [started(run_id, parent_id=parent), replied(run_id, 1)]
        events += [
            CallEnded(run_id=run_id, step=1, call_id=f"{run_id}.{n}", **call) for n in (1, 2)
        ]
    trajectory = open_trajectory(written(tmp_path / "a.jsonl", events))
    text = "".join(export(trajectory, "reference-jsonl"))
    assert text.count('"type":"iteration"') == 40
    assert all(json.loads(line) for line in text.splitlines())


def test_a_report_shows_the_usage_of_steps_and_children(tmp_path: Path) -> None:
    trajectory = open_trajectory(written(tmp_path / "a.jsonl", tree()))
    for format_ in ("markdown", "html"):
        text = "".join(export(trajectory, format_)).replace("\\", "")
        assert "used 8,972 tokens, $7.0000; without child runs 1,872 tokens, $1.5000" in text
        assert "used 70 tokens, $0.3000; without child runs 50 tokens, $0.1000" in text
        assert "child run, m, 0.00 s, 7,100 tokens, $5.5000" in text
        assert "answer, 9,999 tokens, $8.5000, 10.40 s" in text


def test_a_report_leaves_out_a_usage_of_nothing(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", [started("a"), ended("a", usage=Usage())])
    trajectory = open_trajectory(path)
    for format_ in ("markdown", "html"):
        assert ", ," not in "".join(export(trajectory, format_))


def test_a_reference_log_records_the_usage_of_a_child_with_its_call(tmp_path: Path) -> None:
    trajectory = open_trajectory(written(tmp_path / "a.jsonl", tree()))
    copy = tmp_path / "copy.jsonl"
    copy.write_text("".join(export(trajectory, "reference-jsonl")), "utf-8")
    calls = [
        call
        for row in map(json.loads, copy.read_text("utf-8").splitlines())
        for block in row.get("code_blocks", ())
        for call in block["result"]["rlm_calls"]
    ]
    assert [call["usage_summary"].get("total_cost") for call in calls] == [0.5, 5.5, None]
    again = open_trajectory(copy)
    (root,) = [run for run in again.runs() if run.depth == 0]
    assert root.tokens == 872 + 7_100  # It does not tell what steps used themselves.
    assert again.step_usages(root.run_id)[1].whole.total_tokens == 872 + 7_100
