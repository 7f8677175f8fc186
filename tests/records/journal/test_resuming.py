"""An interrupted run continues, and makes no paid request twice."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rlm import RLM, ConfigError, Limits, ModelError, ScriptedClient
from rlm.engine.task import Objection, Task
from rlm.events import CallEnded, Diverged, ModelReplied, RunStarted, ToolCalled
from rlm.messages import Price
from rlm.records.journal import Archive, Journal, Places
from rlm.records.journal.database import reading, replies_in
from rlm.results import RunResult, Submission
from rlm.wiring.runner import Runner

RUN_ID = "20261115-120000-000-abcdef01"
DOWN = ModelError("the provider is down")
CONTEXT = "alpha beta gamma"


def cell(code: str) -> str:
    return f"```repl\n{code}\n```"


class Runs:
    """The same question asked again and again, each time with another script."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.options = options

    def ask(self, script: list[Any], rules: Any = (), **more: Any) -> tuple[RunResult, list[str]]:
        """The result, and what the model was asked now."""
        client = ScriptedClient(script, rules=rules, price=Price(1.0, 1.0))
        query = more.pop("query", "Which words?")
        samples = more.pop("samples", 1)
        context = more.pop("context", CONTEXT)
        with RLM(client, journal=self.folder, **{**self.options, **more}) as rlm:
            try:
                result = rlm.ask(query, context, run_id=RUN_ID, samples=samples)
            finally:
                self.asked = [str(each.messages[-1].content) for each in client.requests]
        return result, self.asked

    def interrupt(self, script: list[Any], **more: Any) -> list[str]:
        with pytest.raises(ModelError, match="down"):
            self.ask([*script, DOWN], **more)
        return self.asked


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path / "state")


def test_an_interrupted_run_resumes_at_the_failed_request(runs: Runs) -> None:
    first = runs.interrupt([cell("x = context.split()"), cell("print(len(x))")])
    result, asked = runs.ask([cell("FINAL(x[-1])")])
    assert result.answer == "gamma"
    assert result.steps == 3
    assert asked == first[2:]  # the very request that had failed
    stored = [event.stored for event in result.events if isinstance(event, ModelReplied)]
    assert stored == [True, True, False]
    assert result.usage.total.requests == 3
    alone = Runs(runs.folder.parent / "other").ask(
        [cell("x = context.split()"), cell("print(len(x))"), cell("FINAL(x[-1])")]
    )[0]
    assert result.usage == alone.usage  # What was paid for then counts as if it were now.


def test_resuming_an_answered_run_sends_no_request(runs: Runs) -> None:
    first, _ = runs.ask([cell("FINAL(len(context))")])
    again, asked = runs.ask([])
    assert asked == []
    assert again == first


def test_calls_of_an_unfinished_step_are_sent_once(runs: Runs) -> None:
    """Two of five replies came before the third call failed for good; the step was not over."""
    code = cell("print([llm_query(f'word {n}') for n in range(5)])")
    rules: list[Any] = [("word 0", "zero"), ("word 1", "one"), ("word 2", DOWN)]
    first = runs.interrupt([code], rules=rules)
    assert len([each for each in first if each.startswith("word")]) == 3
    done = [("word 2", "two"), ("word 3", "three"), ("word 4", "four")]
    result, asked = runs.ask([cell("FINAL('ok')")], rules=done)
    assert result.answer == "ok"
    # The failed cell was over, with its error: that is what the model was told, and it stays so.
    assert [each for each in asked if each.startswith("word")] == []


def test_a_cell_that_prints_something_else_is_reported_and_changes_nothing(runs: Runs) -> None:
    runs.interrupt([cell("import time; t = time.time_ns(); print('now', t)")])
    result, asked = runs.ask([cell("FINAL('done')")])
    assert result.answer == "done"
    (diverged,) = [event for event in result.events if isinstance(event, Diverged)]
    assert diverged.recorded.startswith("now ")
    assert diverged.now.startswith("now ")
    assert diverged.recorded.split()[1] != diverged.now.split()[1]
    assert diverged.recorded.split()[1] in asked[0]


async def _not_yet(_: Submission) -> Objection:
    return Objection("Not yet.", "early")


def test_a_cell_that_submits_only_when_resumed_does_not_end_the_run(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second execution is not the first one: what the model was shown then is what counts."""
    code = cell("import time\nif time.time() > 0: FINAL('early')\nprint('going on')")
    objections = iter([_not_yet, None, None])
    original = Runner.answer

    async def answer(self: Runner, task: Task, *given: Any, **named: Any) -> RunResult:
        return await original(self, replace(task, objection_to=next(objections)), *given, **named)

    monkeypatch.setattr(Runner, "answer", answer)
    runs.interrupt([code])
    result, asked = runs.ask([cell("FINAL('late')")])
    assert (result.answer, result.steps) == ("late", 2)
    assert "Not yet." in asked[0]


def test_a_resumed_run_does_not_call_a_tool_again(tmp_path: Path) -> None:
    called: list[str] = []

    def send(to: str) -> str:
        """Send a message."""
        called.append(to)
        if to == "nobody":
            raise ValueError("no such person")
        return f"sent to {to}"

    runs = Runs(tmp_path, tools=[send])
    code = "a = send('ann')\ntry: send('nobody')\nexcept Exception as e: b = str(e)\nprint(a, b)"
    runs.interrupt([cell(code)])
    assert called == ["ann", "nobody"]
    result, _ = runs.ask([cell("FINAL(a + b)")])
    assert "sent to ann" in str(result.answer)
    assert "no such person" in str(result.answer)
    assert called == ["ann", "nobody"]
    stored = [event.stored for event in result.events if isinstance(event, ToolCalled)]
    assert stored == [True, True]


def test_a_resumed_run_does_not_rerun_a_finished_child(tmp_path: Path) -> None:
    runs = Runs(tmp_path, limits=Limits(max_depth=2))
    parent = cell("a = rlm_query('How many?', context)\nprint(a)")
    first = runs.interrupt([parent, cell("FINAL(len(context))")])
    assert len(first) == 3
    result, asked = runs.ask([cell("FINAL(a)")])
    assert result.answer == str(len(CONTEXT))
    assert len(asked) == 1
    started = [event.depth for event in result.events if isinstance(event, RunStarted)]
    assert started == [0]
    (ended,) = [event for event in result.events if isinstance(event, CallEnded)]
    assert ended.stored
    assert ended.child_run_id is not None
    assert ended.child_run_id.startswith(RUN_ID)
    assert result.usage.by_depth.keys() == {0, 1}
    assert result.usage.total.requests == 3


def test_a_run_resumes_after_its_limit_is_raised(runs: Runs) -> None:
    first, _ = runs.ask([cell("x = 1"), cell("x = 2"), "It is 2."], limits=Limits(max_steps=2))
    assert first.stop_reason == "steps"
    result, asked = runs.ask([cell("FINAL(x)")], limits=Limits(max_steps=5))
    assert (result.answer, result.stop_reason, result.steps) == ("2", "answer", 3)
    assert len(asked) == 1
    assert result.usage.total.requests == 4  # The first execution asked for an answer, too.


def test_final_calls_of_earlier_executions_count_towards_usage_and_limits(runs: Runs) -> None:
    paid = spent = 0
    limits = Limits(max_steps=1, max_tokens=150_000, call_output_tokens=2_000)
    result = None
    for steps in range(1, 40):
        script = [cell(f"x = {steps}  # {'-' * 4_000}"), "No idea."]
        result, asked = runs.ask(script, limits=replace(limits, max_steps=steps))
        paid += len(asked)
        assert result.usage.total.requests == paid
        spent = result.usage.total.total_tokens
        assert spent <= 150_000
        if result.stop_reason == "limit":
            break
    assert result is not None
    assert result.limit == "tokens"
    assert spent > 75_000


def test_a_lower_limit_does_not_lower_what_was_paid(runs: Runs) -> None:
    script = [*(cell(f"x = {number}") for number in range(4)), "It is 3."]
    first, _ = runs.ask(script, limits=Limits(max_steps=4))
    again, asked = runs.ask([], limits=Limits(max_steps=2), rules=[("", "It is 1.")])
    assert (again.steps, len(asked)) == (2, 1)
    assert again.usage.total.requests == first.usage.total.requests + 1
    listed = Archive(Places(runs.folder)).summary(next(Places(runs.folder).listed()))
    assert listed.requests == again.usage.total.requests


def test_limits_of_the_last_execution_are_recorded_for_the_next(runs: Runs) -> None:
    runs.ask([cell("x = 1"), "It is 1."], limits=Limits(max_steps=1))
    runs.ask([cell("x = 2"), "It is 2."], limits=Limits(max_steps=2))
    archive = Archive(Places(runs.folder))
    facts = archive.facts(next(archive.places.listed()))
    assert facts.settings["config"]["limits"]["max_steps"] == 2


def test_a_child_is_counted_once_if_something_new_is_asked_before_it(tmp_path: Path) -> None:
    runs = Runs(tmp_path, limits=Limits(max_depth=2))
    code = "import uuid\nllm_query(uuid.uuid4().hex)\nprint(rlm_query('How many?', context))"
    first = runs.interrupt([cell(code), "noted", cell("FINAL(len(context))")])
    assert len(first) == 4
    result, asked = runs.ask(["noted", cell("FINAL(1)")])
    assert len(asked) == 2  # Another number, and the step after it.
    assert result.usage.total.requests == 3 + 2
    assert {depth: each.requests for depth, each in result.usage.by_depth.items()} == {0: 4, 1: 1}


def test_another_query_context_or_setting_is_not_the_same_run(runs: Runs) -> None:
    runs.interrupt([cell("x = 1")])
    with pytest.raises(ConfigError, match="was asked 'Which words\\?', not 'Why\\?'"):
        runs.ask([], query="Why?")
    with pytest.raises(ConfigError, match="had a different context"):
        runs.ask([], context="something else")
    with pytest.raises(ConfigError, match="step 1 was requested with other settings"):
        runs.ask([], sampling={"temperature": 0.5})
    result, asked = runs.ask([cell("FINAL(x)")])
    assert (result.answer, len(asked)) == ("1", 1)


def test_a_run_id_needs_a_journal_and_a_safe_name(tmp_path: Path) -> None:
    with RLM(ScriptedClient([])) as rlm, pytest.raises(ConfigError, match="set journal=True"):
        rlm.ask("Why?", run_id="x")
    with (
        RLM(ScriptedClient([]), journal=tmp_path) as rlm,
        pytest.raises(ConfigError, match="is not a run id"),
    ):
        rlm.ask("Why?", run_id="../x")
    number: Any = 3
    with pytest.raises(ConfigError, match="journal must be True or a folder"):
        RLM(ScriptedClient([]), journal=number)


def test_the_list_shows_the_status_of_each_run(runs: Runs) -> None:
    runs.interrupt([cell("x = 1")])
    archive = Archive(Places(runs.folder))
    (found,) = archive.summaries()
    assert not isinstance(found, ConfigError)
    assert (found.run_id, found.status, found.steps, found.requests) == (RUN_ID, "error", 2, 1)
    assert found.cost_usd
    result, _ = runs.ask([cell("FINAL(x)")])
    (found,) = archive.summaries()
    assert not isinstance(found, ConfigError)
    assert (found.status, found.steps, found.answer) == ("answer", 2, "1")
    assert found.cost_usd == result.cost_usd
    run = archive.places.find(RUN_ID)
    assert archive.context_of(archive.facts(run)).text() == CONTEXT


def test_mapreduce_continues_after_its_model_was_down(runs: Runs) -> None:
    runs.interrupt(["find"], strategy="mapreduce")
    result, asked = runs.ask(["beta", "beta"], strategy="mapreduce")
    assert (result.answer, result.stop_reason, len(asked)) == ("beta", "answer", 2)


def test_mapreduce_continues_when_its_limit_is_raised(runs: Runs) -> None:
    given: dict[str, Any] = {"strategy": "mapreduce", "context": "beta " * 2_000}
    stopped, asked = runs.ask(["find"], **given, limits=Limits(max_tokens=6_000))
    assert (stopped.limit, len(asked)) == ("tokens", 1)
    result, asked = runs.ask(["beta", "beta"], **given, limits=Limits(max_tokens=600_000))
    assert (result.answer, result.stop_reason, len(asked)) == ("beta", "answer", 2)


def test_samples_that_ran_out_of_steps_continue_when_there_are_more(runs: Runs) -> None:
    script, rules = [cell("print(len(context))")] * 2, [("Stop here", "A guess.")]
    stopped, asked = runs.ask(script, rules, samples=2, limits=Limits(max_steps=1))
    assert (stopped.answer, stopped.stop_reason, len(asked)) == ("A guess.", "steps", 4)
    script = [cell("FINAL('beta')")] * 2
    result, asked = runs.ask(script, samples=2, limits=Limits(max_steps=3))
    assert (result.answer, result.stop_reason, len(asked)) == ("beta", "answer", 2)


@pytest.mark.parametrize("stored", [None, "beta", {"answer": "beta"}, {"steps": "many"}])
def test_a_damaged_result_of_a_sample_is_a_clear_error(runs: Runs, stored: Any) -> None:
    runs.ask([cell("FINAL('beta')")] * 2, samples=2)
    path = Places(runs.folder).journal_of(RUN_ID)
    with closing(Journal(path)) as journal, reading(path) as connection:
        journal.describe(end=None, result=None)  # as if it had been killed before its end
        for *_, key, reply in replies_in(connection):
            if key.kind == "child":
                journal.copy(key, replace(reply, opaque={**reply.opaque, "result": stored}))
    with pytest.raises(ConfigError, match="the result of a sample in the journal can't be read"):
        runs.ask([], samples=2)
