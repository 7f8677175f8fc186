"""A recorded run, executed again offline: the same, or the first difference."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from rlm import RLM, ConfigError, Limits, RLMLogger, ScriptedClient
from rlm.events import CallStarted, RunStarted
from rlm.messages import Price
from rlm.prompts import observation
from rlm.replay import ReplayReport, areplay, replay
from rlm.results import RunResult

CONTEXT = "one two three four five six seven eight"


def cell(code: str) -> str:
    return f"```repl\n{code}\n```"


BATCH = """
from concurrent.futures import ThreadPoolExecutor
import random, time
words = list(set(context.split()))
random.shuffle(words)
def ask(word):
    time.sleep(random.random() / 500)
    return llm_query('Length of ' + word)
with ThreadPoolExecutor(8) as pool:
    lengths = dict(zip(words, pool.map(ask, words)))
more = llm_query_batched(['Length of ' + word for word in words] * 2)
kids = rlm_query_batched(['How many?', 'How many?'], ['a b', 'c d e'])
print(sorted(lengths.items()), len(more), kids)
"""


def record(folder: Path, script: list[Any], **options: Any) -> tuple[RunResult, Path]:
    rules: list[Any] = [
        (re.compile(r"\nLength of \S"), lambda r: str(len(r.messages[-1].content) - 10)),
        (re.compile(r"How many\?\s"), cell("FINAL(llm_query('Length of ' + context))")),
    ]
    client = ScriptedClient(script, rules=rules, price=Price(1.0, 2.0))
    logger = RLMLogger(log_dir=folder)
    with RLM(client, logger=logger, limits=Limits(max_depth=2), **options) as rlm:
        result = rlm.ask("What is it?", CONTEXT)
    assert logger.log_file_path is not None
    return result, Path(logger.log_file_path)


SCRIPT = [cell(BATCH), cell("FINAL(len(more))")]


def test_a_replay_of_the_same_run_has_no_differences(tmp_path: Path) -> None:
    result, log = record(tmp_path, SCRIPT)
    assert result.answer == "16"
    report = replay(log, CONTEXT)
    assert report.differences == ()
    assert report.run_id == result.run_id
    assert report.compared > 2 * sum(isinstance(e, CallStarted) for e in result.events) > 50
    assert sum(isinstance(e, RunStarted) for e in result.events) == 3


@pytest.mark.heavy
async def test_fifty_replays_in_a_row_have_no_differences(tmp_path: Path) -> None:
    _, log = await asyncio.to_thread(record, tmp_path, SCRIPT)
    for _ in range(50):
        report = await areplay(log, CONTEXT)
        assert report.differences == ()


def test_a_journal_can_be_replayed_too(tmp_path: Path) -> None:
    result, _ = record(tmp_path, SCRIPT, journal=tmp_path / "state")
    journal = tmp_path / "state" / "runs" / f"{result.run_id}.sqlite"
    assert replay(journal, CONTEXT).differences == ()


def test_another_context_is_the_first_reported_difference(tmp_path: Path) -> None:
    _, log = record(tmp_path, SCRIPT)
    report = replay(log, CONTEXT.replace("eight", "eleven"))
    assert not report.same
    first = report.differences[0]
    assert first.where.startswith("the request for step 1 of run")
    assert "-" in first.diff
    assert "39 chars" in first.diff or "characters" in first.diff
    same_size = replay(log, CONTEXT.replace("eight", "night"))
    assert not same_size.same
    shown = same_size.differences[0]
    assert shown.where.startswith("the request for step 1 of run")  # It holds a short context.
    assert "-one two three four five six seven eight" in shown.diff
    assert "+one two three four five six seven night" in shown.diff


def test_a_call_with_another_piece_of_the_context_is_reported(tmp_path: Path) -> None:
    _, log = record(tmp_path, SCRIPT, preview_chars=0)
    report = replay(log, CONTEXT.replace("eight", "night"))
    assert "call of step 1" in report.differences[0].where
    assert "-Length of eight" in report.differences[0].diff
    assert "+Length of night" in report.differences[0].diff


def test_a_changed_template_is_shown_as_a_diff(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, log = record(tmp_path, SCRIPT)
    original = observation._status
    monkeypatch.setattr(observation, "_status", lambda *a: f"{original(*a)} | be quick")
    report = replay(log, CONTEXT)
    first = report.differences[0]
    assert first.where.endswith("was shown after step 1")
    assert "be quick" in first.diff


def test_a_changed_prompt_is_shown_at_the_first_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlm import prompts

    _, log = record(tmp_path, SCRIPT)
    original = prompts.first_message
    monkeypatch.setattr(prompts, "first_message", lambda *a, **k: original(*a, **k) + "\nHurry.")
    first = replay(log, CONTEXT).differences[0]
    assert first.where.startswith("the request for step 1 of run")
    assert "+Hurry." in first.diff


def test_a_cell_that_prints_the_time_is_a_difference(tmp_path: Path) -> None:
    _, log = record(tmp_path, [cell("import time; print(time.time_ns())"), cell("FINAL(1)")])
    report = replay(log, CONTEXT)
    told, printed = report.differences  # The rest went as it had gone.
    assert told.where.endswith("was shown after step 1")
    assert printed.where.startswith("cell_output of run")


def test_tool_results_and_failures_come_from_the_recording(tmp_path: Path) -> None:
    called: list[int] = []

    def double(n: int) -> int:
        """Twice as much."""
        called.append(n)
        if n == 2:
            raise ValueError("not two")
        return 2 * n

    code = "a = double(1)\ntry: double(2)\nexcept Exception as e: a = (a, str(e))\nFINAL(a)"
    result, log = record(tmp_path, [cell(code)], tools=[double])
    assert "not two" in str(result.answer)
    assert replay(log, CONTEXT).differences == ()
    assert called == [1, 2]


def test_a_replayed_limit_ends_the_run_in_the_same_way(tmp_path: Path) -> None:
    script = [cell("x = 1"), cell("x = 2"), "It is two."]
    client = ScriptedClient(script)
    logger = RLMLogger(log_dir=tmp_path)
    with RLM(client, logger=logger, limits=Limits(max_steps=2)) as rlm:
        assert rlm.ask("What?", CONTEXT).stop_reason == "steps"
    assert replay(str(logger.log_file_path), CONTEXT).differences == ()


@pytest.mark.parametrize("strategy", ["direct", "mapreduce"])
def test_runs_without_a_repl_can_be_replayed(tmp_path: Path, strategy: Any) -> None:
    client = ScriptedClient(rules=[("", "forty-two")])
    logger = RLMLogger(log_dir=tmp_path)
    with RLM(client, logger=logger, strategy=strategy) as rlm:
        rlm.ask("What?", CONTEXT)
    report: ReplayReport = replay(str(logger.log_file_path), CONTEXT)
    assert report.differences == ()
    assert report.answered >= 1


def test_runs_with_values_only_their_program_has_are_refused(tmp_path: Path) -> None:
    _, log = record(tmp_path, [cell("FINAL(LIMIT)")], tools={"LIMIT": 3})
    with pytest.raises(ConfigError, match="only the program that made this run"):
        replay(log, CONTEXT)
    with RLM(ScriptedClient([]), tools={"LIMIT": 3}, limits=Limits(max_depth=2)) as rlm:
        assert replay(log, CONTEXT, rlm=rlm).differences == ()


def test_a_missing_or_empty_recording_is_a_clear_error(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    with pytest.raises(ConfigError):
        replay(empty, CONTEXT)
    with pytest.raises(ConfigError):
        replay(tmp_path / "none.jsonl", CONTEXT)


# -- runs that were resumed, and turns of chats ---------------------------------------------------

STEPS = [
    cell("print(len(context))"),
    cell("kid = rlm_query('How many?', 'a b')\nprint(kid)"),
    cell("print(llm_query('Length of ' + context))"),
    cell("FINAL(kid)"),
]


def execute(
    folder: Path, limits: Limits, script: list[Any], run_id: str | None = None
) -> RunResult:
    """Execute a run, or go on with it; each execution is added to one log and one journal."""
    rules: list[Any] = [
        (re.compile(r"\nLength of \S"), lambda r: str(len(r.messages[-1].content) - 10)),
        (re.compile(r"How many\?\s"), cell("FINAL(llm_query('Length of ' + context))")),
    ]
    client = ScriptedClient(script, rules=rules, price=Price(1.0, 2.0))
    logger = RLMLogger(log_dir=folder, file_name="log")
    with RLM(client, logger=logger, journal=folder / "state", limits=limits) as rlm:
        return rlm.ask("What is it?", CONTEXT, run_id=run_id)


def records(folder: Path, run_id: str) -> list[Path]:
    return [folder / "state" / "runs" / f"{run_id}.sqlite", *sorted(folder.glob("*.jsonl"))]


@pytest.mark.parametrize(
    ("before", "after", "done"),
    [
        (Limits(max_steps=1, max_depth=2), Limits(max_steps=9, max_depth=2), 1),
        (Limits(max_steps=2, max_depth=2), Limits(max_steps=7, max_depth=2), 2),
        (Limits(max_steps=3, max_depth=2), Limits(max_steps=30, max_tokens=90_000, max_depth=2), 3),
        (Limits(max_tokens=25, max_depth=2), Limits(max_steps=5, max_depth=2), 0),
    ],
)
def test_a_run_resumed_with_other_limits_replays_without_differences(
    tmp_path: Path, before: Limits, after: Limits, done: int
) -> None:
    """What the model was shown under the first limits is part of the record, and no difference."""
    last_words = [cell("FINAL(1)")] if done else []
    first = execute(tmp_path, before, [*STEPS[:done], *last_words])
    assert first.stop_reason != "answer"
    second = execute(tmp_path, after, STEPS[done:], first.run_id)
    assert (second.stop_reason, second.steps) == ("answer", 4)
    journal, *logs = records(tmp_path, first.run_id)
    for each in (journal, *logs[-1:]):
        report = replay(each, CONTEXT)
        assert report.differences == ()
        assert report.answered >= 4
        assert report.compared > 20


def test_a_resumed_run_that_differs_is_still_noticed(tmp_path: Path) -> None:
    first = execute(tmp_path, Limits(max_steps=2, max_depth=2), [*STEPS[:2], cell("FINAL(1)")])
    execute(tmp_path, Limits(max_steps=8, max_depth=2), STEPS[2:], first.run_id)
    journal = records(tmp_path, first.run_id)[0]
    for other in (CONTEXT + " nine", CONTEXT.replace("eight", "night")):
        assert not replay(journal, other).same


def test_replaying_a_turn_of_a_chat_is_refused_with_a_reason(tmp_path: Path) -> None:
    client = ScriptedClient([cell("x = 5\nFINAL(x)"), cell("FINAL(x + 1)")])
    logger = RLMLogger(log_dir=tmp_path)
    with RLM(client, logger=logger, journal=tmp_path / "state") as rlm, rlm.chat(CONTEXT) as chat:
        turns = [chat.ask("First?"), chat.ask("Second?")]
    assert [turn.answer for turn in turns] == ["5", "6"]
    for turn in turns:
        with pytest.raises(ConfigError, match=r"turn of a chat.*variables of earlier turns"):
            replay(records(tmp_path, turn.run_id)[0], CONTEXT)


@pytest.mark.parametrize("name", ["inprocess", "modal", "someone-elses", ["local"], None])
def test_a_recording_cannot_choose_an_environment_without_isolation(
    name: Any, tmp_path: Path
) -> None:
    """It may be a stranger's, with code of theirs in its cells."""
    _, log = record(tmp_path, [cell("FINAL('done')")])
    mark = tmp_path / "reached"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if line["type"] == "run_started":
            line["settings"]["environment"] = name
        if "code" in line:
            line["code"] = f"open({str(mark)!r}, 'w')\n{line['code']}"
    log.write_text("\n".join(map(json.dumps, lines)) + "\n")
    with pytest.raises(ConfigError, match="which a recording may not choose"):
        replay(log, CONTEXT)
    assert not mark.exists()


def test_the_caller_may_choose_any_environment_for_a_replay(tmp_path: Path) -> None:
    _, log = record(tmp_path, [cell("FINAL('done')")], environment="inprocess")
    with pytest.raises(ConfigError, match="'inprocess', which a recording may not choose"):
        replay(log, CONTEXT)
    client = ScriptedClient([], price=Price(1.0, 2.0))
    with RLM(client, environment="inprocess", limits=Limits(max_depth=2)) as rlm:
        assert replay(log, CONTEXT, rlm=rlm).differences == ()
