"""A run without a language model: it ends with passages, and nothing shows them as an answer."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlm import RLM, Limits, NoAnswerError, completion, tables
from rlm.clients.offline import MODEL, NO_PASSAGES, NOT_A_TEXT, PASSAGES
from rlm.events import CellEnded, ModelReplied, RunEnded
from rlm.records.journal import Archive, Places
from rlm.results import RunResult

TEXT = "The storm was long.\n\nMira mended the sail.\n"
QUESTION = "Who mended the sail?"
FOUND = f"{PASSAGES}\n\n1. line 3\n   Mira mended the sail."


def asked(question: str = QUESTION, context: Any = TEXT, **options: Any) -> RunResult:
    with RLM(MODEL, **options) as engine:
        return engine.ask(question, context)


def test_the_result_and_the_last_event_have_the_status_passages() -> None:
    result = asked()
    assert (result.answer, result.stop_reason, result.limit) == (FOUND, "passages", None)
    assert result.detail.startswith("no language model is configured")
    last = result.events[-1]
    assert isinstance(last, RunEnded)
    assert (last.answer, last.stop_reason, last.detail) == (FOUND, "passages", result.detail)
    assert [(each.label, each.text) for each in result.citations] == [
        ("line 3", "Mira mended the sail.")
    ]


def test_no_match_is_reported_and_nothing_is_cited() -> None:
    result = asked("What does a zebra eat?")
    assert (result.answer, result.stop_reason) == (NO_PASSAGES, "passages")
    assert result.citations == ()
    assert asked(context=None).answer == NO_PASSAGES


@pytest.mark.parametrize("strategy", ["direct", "mapreduce"])
def test_other_strategies_end_with_passages_too(strategy: Any) -> None:
    result = asked(strategy=strategy)
    assert (result.answer, result.stop_reason) == ("Mira mended the sail.", "passages")


def test_one_step_is_enough() -> None:
    result = asked(limits=Limits(max_steps=1))
    assert (result.answer, result.stop_reason, result.steps) == (FOUND, "passages", 1)
    assert [each.label for each in result.citations] == ["line 3"]
    result = asked("What does a zebra eat?", limits=Limits(max_steps=1))
    assert (result.answer, result.stop_reason, result.steps) == (NO_PASSAGES, "passages", 1)


def test_reaching_a_limit_is_still_reported_as_a_limit() -> None:
    result = asked(limits=Limits(max_tokens=25))
    assert (result.stop_reason, result.limit) == ("limit", "tokens")


@pytest.mark.parametrize("steps", [1, 30])
def test_a_table_is_not_searched(tmp_path: Path, steps: int) -> None:
    table = tmp_path / "crew.csv"
    table.write_text("name,task\nMira,sail\n")
    result = asked(context=tables(table), limits=Limits(max_steps=steps))
    assert (result.answer, result.stop_reason, result.steps) == (NOT_A_TEXT, "passages", 1)
    assert not [each for each in result.events if isinstance(each, CellEnded)]


@pytest.mark.parametrize("quoted", ["`sail`", "```sail```", "````\nsail"])
def test_backticks_of_a_question_are_searched_and_shown_unchanged(quoted: str) -> None:
    result = asked(f"Who mended the {quoted}?")
    assert result.answer == FOUND
    (first, second) = [each.text for each in result.events if isinstance(each, ModelReplied)]
    assert "`" * 3 in first
    assert "run `rlm setup`" in second
    assert "x60" not in first + second


def test_strict_raises_as_passages_are_no_answer() -> None:
    with RLM(MODEL) as engine, pytest.raises(NoAnswerError, match="no language model"):
        engine.ask(QUESTION, TEXT, strict=True)


def test_a_typed_answer_is_not_made_from_passages() -> None:
    with RLM(MODEL) as engine:
        result = engine.ask(QUESTION, TEXT, response_model=int)
    assert (result.answer, result.stop_reason, result.limit) == (None, "passages", None)
    assert (result.rejected_answer, result.steps) == (FOUND, 2)
    assert str(result).startswith("(no answer: no language model is configured")
    assert "passages are text and can't become another type" in result.detail
    assert "these are passages" not in result.detail


def test_no_display_calls_passages_an_answer() -> None:
    result = asked()
    assert repr(result).endswith("s>")
    assert ", passages, 2 steps, " in repr(result)
    card = result._repr_html_()
    assert "no language model is configured: these are passages found by search" in card
    assert "✓" not in card


def test_the_journal_has_the_status_passages_and_the_run_has_ended(tmp_path: Path) -> None:
    with RLM(MODEL, journal=tmp_path) as engine:
        first = engine.ask(QUESTION, TEXT, run_id="one")
        again = engine.ask(QUESTION, TEXT, run_id="one")
    assert (again.answer, again.stop_reason) == (first.answer, "passages")
    archive = Archive(Places(tmp_path))
    (run,) = archive.places.listed()
    assert archive.summary(run).status == "passages"


def test_samples_agree_on_passages() -> None:
    with RLM(MODEL) as engine:
        result = engine.ask(QUESTION, TEXT, samples=2)
    assert (result.answer, result.stop_reason) == (FOUND, "passages")
    assert [each.votes for each in result.samples] == [2, 2]


def test_the_references_completion_returns_the_same_text() -> None:
    done = completion(TEXT, MODEL, root_prompt=QUESTION)
    assert done.response == FOUND
    assert done.error is None
    assert json.loads(json.dumps(done.to_dict()))["response"] == FOUND
