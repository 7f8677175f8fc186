"""`rlm show`: runs and logs, in short, a step in full, as JSON; nothing in them is obeyed."""

import io
import json
import tracemalloc
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm import Limits, RLMLogger
from rlm.cli import _showing
from rlm.cli._showing import InFull, InShort
from rlm.events import CallEnded, CallStarted, CellEnded, DataRead, Event, StepStarted, ToolCalled
from rlm.records.recorders.console import CONTROL
from rlm.results import RunResult
from tests.cli import kept
from tests.cli.conftest import Run
from tests.cli.scripts import AS_CODE, HOSTILE
from tests.cli.test_progress import ended, started
from tests.records.trajectories.samples import tree, written

LOOP = "for n in range(5): print(llm_query(f'zebra {n}'))"


def test_a_run_is_summarised(state: Path, run: Run) -> None:
    replies = [
        ("zebra 0", "a note"),
        ("zebra 1", "b"),
        ("zebra 2", "c"),
        ("zebra 3", "d"),
        ("zebra 4", "e"),
    ]
    result = scripted(state, replies, "x = 1\nprint('x' * 5000)", LOOP, "FINAL(x)\n1 / 0")
    code, out, err = run("show", "last")
    assert (code, err) == (0, "")
    assert run("show") == (0, out, ""), "the last run is meant if none is named"
    head, *steps = out.split("\nstep ")
    assert f"run          {result.run_id}\n" in head
    assert "query        Why?\n" in head
    assert "model        ScriptedClient; strategy rlm\n" in head
    assert "context      text of 9 bytes, " in head
    assert "status       answer: 3 steps, 5 calls, " in head
    assert "  > x = 1\n  > print('x' * 5000)\n  | xxx" in steps[0]
    assert "  | … (5,001 characters in total)\n" in steps[0]
    assert steps[1].count("  llm 'zebra ") == 3
    assert "  llm 'zebra 0': a note\n" in steps[1]
    assert "  … 2 more calls (5 llm in all)\n" in steps[1]
    assert "  ! ZeroDivisionError: division by zero\n" in steps[2]
    assert out.endswith("\nAnswer (submitted):\n1\n")


def test_a_step_shows_its_usage_with_and_without_child_runs(
    state: Path, run: Run, tmp_path: Path
) -> None:
    log = written(tmp_path / "a.jsonl", tree())
    code, out, _ = run("show", str(log))
    assert code == 0
    assert "status       answer: 2 steps, 3 calls, 9,999 tokens, $8.5000, 10.4 s" in out
    assert "\nstep 1: 8,972 tokens, $7.0000; without child runs 1,872 tokens, $1.5000\n" in out
    assert "\nstep 2: 70 tokens, $0.3000; without child runs 50 tokens, $0.1000\n" in out
    code, out, _ = run("show", str(log), "--step", "1")
    assert "-- step 1 of run r: 8,972 tokens, $7.0000; without child runs 1,872 tokens" in out


def scripted(state: Path, rules: list[tuple[str, str]], *codes: str, **options: Any) -> RunResult:
    return kept.scripted(state, *codes, rules=rules, **options)


def test_passages_have_their_file_as_in_the_answer(run: Run, tmp_path: Path) -> None:
    (tmp_path / "big.log").write_text("nothing here\n" * 3_000 + "The quota is 17.\n")
    _, answer, _ = run("ask", "What is the quota?", "-m", "offline/extractive", "-f", "big.log")
    shown = run("show", "last")[1].partition("\nPassages (submitted):\n")[2]
    for each in (answer, shown):
        assert "\n1. big.log:3001" in each
        assert "line 3001" not in each


def test_one_step_is_shown_in_full(state: Path, run: Run) -> None:
    long = "y" * 10_000
    scripted(
        state,
        [("zebra it", long)],
        "print('first')",
        "print(llm_query('zebra ' + 'it'))",
        "FINAL(2)",
    )
    code, out, _ = run("show", "last", "--step", "2")
    assert code == 0
    assert "-- step 2 of run " in out
    assert "   [user]\n   first\n" in out
    assert "(llm) asks ScriptedClient:\n   zebra it\n" in out
    assert out.count(long) == 2  # the reply of the call, and what the cell printed
    assert "FINAL(2)" not in out
    assert "[assistant]" not in out
    assert "asked ScriptedClient (step), 2 messages" in run("show", "last", "--step", "1")[1]
    code, _, err = run("show", "last", "--step", "9")
    assert code == 1
    assert "has no step 9; its steps are 0 to 3" in err


def test_events_as_json_lines(state: Path, run: Run) -> None:
    result = scripted(state, [], f"print({AS_CODE})", "FINAL(2)")
    code, out, _ = run("show", result.run_id, "--json")
    events = [msgspec.json.decode(line, type=Event) for line in out.splitlines()]
    assert code == 0
    assert [type(each) for each in events] == [type(each) for each in result.events]
    assert CONTROL.search(out) is None
    steps = {
        json.loads(line)["step"]
        for line in run("show", "last", "--json", "--step", "1")[1].splitlines()
    }
    assert steps == {1}


def test_a_log_a_folder_of_logs_and_a_child_run_can_be_shown(
    state: Path, tmp_path: Path, run: Run
) -> None:
    logs = tmp_path / "logs"
    parent = "print(rlm_query('How many?', context))"
    given = {"logger": RLMLogger(log_dir=logs), "limits": Limits(max_depth=2)}
    first = scripted(state, [], parent, "FINAL(len(context))", "FINAL('done')", **given)
    second = scripted(state, [], "FINAL('other')", logger=RLMLogger(log_dir=logs), query="Else?")
    (log,) = logs.glob(f"*{first.run_id}*")
    whole = run("show", str(log))[1]
    assert whole == run("show", first.run_id)[1]
    (child,) = {e.child_run_id for e in first.events if isinstance(e, CallEnded)}
    assert child is not None
    assert f"  rlm 'How many?' (run {child}): 9\n" in whole
    shown = run("show", child)[1]
    assert "query        How many?\n" in shown
    assert f"parent       {first.run_id}\n" in shown
    assert "FINAL(len(context))" in shown
    both = run("show", "logs")[1]
    assert [each.run_id in both for each in (first, second)] == [True, True]
    lines = run("show", child, "--json")[1].splitlines()
    assert {json.loads(line)["run_id"] for line in lines} == {child}


@pytest.mark.parametrize("options", [[], ["--step", "1"]])
def test_hostile_text_is_escaped(state: Path, run: Run, options: list[str]) -> None:
    code = f"print({AS_CODE})\nprint(llm_query({AS_CODE}))\nFINAL({AS_CODE})"
    kept.scripted(state, code, query=HOSTILE, rules=[("pwned", HOSTILE)])
    _, out, err = run("show", "last", *options)
    assert CONTROL.search(out + err) is None
    assert "[bold]x[/bold]" in out


@given(st.text(), st.sampled_from([InShort, InFull]))
def test_no_text_can_imitate_our_lines(text: str, kind: type) -> None:
    """In full, our lines start with two dashes; in short, text of others follows a mark."""
    shown, out = kind({}), io.StringIO()
    with redirect_stdout(out):
        for event in every_event(text):
            shown.add(event)
    printed = out.getvalue()
    assert CONTROL.search(printed) is None
    for line in printed.splitlines():
        assert not line or line.startswith(("  ", "-- ", "step "))


def every_event(text: str) -> list[Event]:
    """One of each kind, with this text wherever a text can be."""
    found: list[Event] = []
    for kind in get_args(Event):
        facts = {"run_id": text, "step": 1}
        for field in msgspec.structs.fields(kind):
            if field.required and field.name not in facts:
                facts[field.name] = SAMPLES.get(field.type, SAMPLES.get(field.name, text))
            elif field.type in {str, str | None} and field.name not in facts:
                facts[field.name] = text
        found.append(kind(**facts))
    return found


SAMPLES: dict[object, object] = {
    int: 3,
    float: 1.0,
    bool: True,
    "usage": ended("x").usage,
    "new_messages": (),
    "arguments": {"x": "y"},
    "layers": (),
    "cost_usd": 1.0,
    "kind": "llm",
    "stream": "stdout",
}


def test_a_great_many_calls_need_little_memory() -> None:
    shown = InShort({})
    shown.add(StepStarted(run_id="r", step=1))
    prompt = "p" * 100_000
    tracemalloc.start()
    for number in range(20_000):
        shown.add(
            CallStarted(run_id="r", call_id=f"{number}", kind="llm", model="m", prompt=prompt)
        )
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 2 * _showing.OPEN_CALLS * _showing.TEXT_CHARS


@pytest.mark.parametrize("is_older", [False, True])
def test_data_requests_take_one_line_per_method(is_older: bool) -> None:
    shown, out = InShort({}), io.StringIO()
    facts: dict[str, Any] = {"source": "tables", "source_id": "t", "method": "sql"}
    with redirect_stdout(out):
        for number in range(1_000):
            shown.add(ToolCalled(run_id="r", call_id=f"{number}", name="ctx.sql", arguments={}))
        if not is_older:
            shown.add(DataRead(run_id="r", cell=1, count=1_000, returned=9, **facts))
        shown.add(CellEnded(run_id="r", cell=1, seconds=1, calls=0))
    summed = "  ctx.sql: 1,000 requests, 9 rows, 0.00 s\n"
    assert out.getvalue() == ("  ctx.sql: 1,000 requests\n" if is_older else summed)


def test_a_missing_run_or_log_is_reported(state: Path, tmp_path: Path, run: Run) -> None:
    assert "no runs in" in run("show", "last")[2]
    kept.limited(state)
    assert run("show", "nobody")[0] == 1
    assert "no run is called 'nobody'" in run("show", "nobody")[2]
    assert "nothing found at nobody.jsonl" in run("show", "./nobody.jsonl")[2]
    (tmp_path / "notes.jsonl").write_text('{"a": 1}\nnothing\n')
    code, _, err = run("show", "notes.jsonl")
    assert (code, len(err.splitlines())) == (1, 1)
    assert "notes.jsonl does not contain any events of a run" in err
    line = msgspec.json.encode(started("20261115-120000-000-00000001"))
    (tmp_path / "half.jsonl").write_bytes(line + b"\nnonsense\n")
    code, out, err = run("show", "half.jsonl")
    assert (code, "query        ?" in out) == (0, True)
    assert "1 line was skipped" in err
