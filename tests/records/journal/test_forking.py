"""A run continued from one of its steps with another reply."""

from pathlib import Path
from typing import Any

import pytest

from rlm import RLM, ConfigError, Limits, ScriptedClient
from rlm.events import ModelReplied
from rlm.messages import Price
from rlm.records.journal import Archive, Places, fork
from rlm.results import RunResult

CONTEXT = "alpha beta gamma"


def cell(code: str) -> str:
    return f"```repl\n{code}\n```"


class Runs:
    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder, self.options = folder, options
        self.archive = Archive(Places(folder))

    def ask(self, script: list[Any], run_id: str | None = None) -> RunResult:
        self.client = ScriptedClient(script, price=Price(1.0, 1.0))
        with RLM(self.client, journal=self.folder, **self.options) as rlm:
            return rlm.ask("Which word?", CONTEXT, run_id=run_id)

    def fork(self, result: RunResult, step: int, edited: str | None = None) -> str:
        return fork(self.archive, self.archive.places.find(result.run_id), step, edited)


SCRIPT = [
    cell("words = context.split()"),
    cell("print(len(words))"),
    cell("FINAL(words[0])"),
]


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path / "state", limits=Limits(max_depth=2))


def test_a_fork_replaces_one_reply(runs: Runs) -> None:
    first = runs.ask(SCRIPT)
    run_id = runs.fork(first, 2, cell("words = words[1:]; print(words)"))
    result = runs.ask([cell("FINAL(words[0])")], run_id)
    assert result.answer == "beta"
    assert result.steps == 3
    assert result.run_id == run_id != first.run_id
    assert len(runs.client.requests) == 1
    assert "['beta', 'gamma']" in str(runs.client.requests[0].messages[-1].content)
    stored = [event.stored for event in result.events if isinstance(event, ModelReplied)]
    assert stored == [True, True, False]


def test_a_fork_pays_only_for_new_requests(runs: Runs) -> None:
    first = runs.ask(SCRIPT)
    result = runs.ask([cell("FINAL(words[2])")], runs.fork(first, 3))
    assert result.answer == "gamma"
    assert len(runs.client.requests) == 1
    assert result.usage.total.requests == 1
    assert result.cost_usd is not None
    assert first.cost_usd is not None
    assert 0 < result.cost_usd < first.cost_usd


def test_a_fork_requests_every_reply_from_its_step_on(runs: Runs) -> None:
    """Even where it was asked the same before: what came after the step is not taken over."""
    first = runs.ask(SCRIPT)
    result = runs.ask(SCRIPT[1:], runs.fork(first, 2))
    assert result.answer == "alpha"
    assert len(runs.client.requests) == 2
    from_the_start = runs.ask(SCRIPT, runs.fork(first, 1))
    assert from_the_start.answer == "alpha"
    assert len(runs.client.requests) == 3


def test_forking_leaves_the_original_run_unchanged(runs: Runs) -> None:
    first = runs.ask(SCRIPT)
    before = runs.archive.places.find(first.run_id).path.read_bytes()
    runs.ask([cell("FINAL('other')")], runs.fork(first, 2))
    assert runs.archive.places.find(first.run_id).path.read_bytes() == before
    newest = runs.archive.facts(next(iter(runs.archive.places.listed())))
    assert newest.forked_from is not None
    assert (newest.forked_from.run_id, newest.forked_from.step) == (first.run_id, 2)


def test_a_fork_does_not_rerun_children_of_earlier_steps(runs: Runs) -> None:
    script = [cell("a = rlm_query('How many?', context)"), cell("FINAL(len(context))"), *SCRIPT]
    first = runs.ask(script)
    result = runs.ask([cell("FINAL(a)")], runs.fork(first, 2))
    assert result.answer == str(len(CONTEXT))
    assert len(runs.client.requests) == 1
    assert result.usage.by_depth.keys() == {0}


def test_a_fork_can_be_forked(runs: Runs) -> None:
    first = runs.ask(SCRIPT)
    second = runs.ask([cell("FINAL(words[1])")], runs.fork(first, 3))
    third = runs.ask([cell("FINAL(words[2])")], runs.fork(second, 3))
    assert [second.answer, third.answer] == ["beta", "gamma"]


def test_a_fork_at_a_missing_step_is_refused(runs: Runs) -> None:
    first = runs.ask(SCRIPT)
    for step in (0, 4, -1):
        with pytest.raises(ConfigError, match=f"at steps 1 to 3, not at {step}"):
            runs.fork(first, step)
    assert len(list(runs.archive.places.listed())) == 1


def test_editing_a_step_without_a_reply_leaves_nothing_behind(runs: Runs) -> None:
    result = Runs(runs.folder, limits=Limits(max_steps=1)).ask([cell("x = 1"), "It is 1."])
    with pytest.raises(ConfigError, match=r"step 2 .* has no reply that can be edited"):
        runs.fork(result, 2, "FINAL('x')")
    assert len(list(runs.archive.places.listed())) == 1


def test_a_turn_of_a_chat_cannot_be_forked(runs: Runs) -> None:
    client = ScriptedClient([cell("FINAL(1)")])
    with RLM(client, journal=runs.folder) as rlm, rlm.chat(CONTEXT) as chat:
        result = chat.ask("Which?")
    with pytest.raises(ConfigError, match="was a turn of a chat"):
        runs.fork(result, 1)
