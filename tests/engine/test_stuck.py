"""Stuck runs whose sub-model is down end with the best answer available."""

from pathlib import Path
from typing import Any

import pytest

from rlm import RLM, ModelError, ScriptedClient
from rlm.results import RunResult

DOWN = ModelError("the sub-model is down")
LOOK = "```repl\nprint(3)\n```"
ASSIGN = "```repl\nanswer = 3\n```"
ANSWER_NOW = "Stop here"


def ask(
    root: list[Any], now: str | ModelError, sub: list[Any], folder: Path | None = None
) -> tuple[RunResult, int]:
    """Return the result, and how often the sub-model was asked."""
    client = ScriptedClient(root, rules=[(ANSWER_NOW, now)])
    sub_client = ScriptedClient(sub)
    with RLM(client, sub_model=sub_client, journal=folder) as rlm:
        result = rlm.ask("How many words?", "one two three", run_id="r1" if folder else None)
    return result, len(sub_client.requests)


@pytest.mark.parametrize(
    ("step", "now", "answer", "source"),
    [
        (ASSIGN, "Three words.", "3", "variable"),
        (LOOK, "Three words.", "Three words.", "asked"),
        (LOOK, DOWN, "3", "last_output"),
        ("```repl\nlen(context.split())\n```", DOWN, "3", "last_output"),
        ("```repl\nrows = context.split()\n```", DOWN, None, "none"),
    ],
)
def test_the_best_answer_is_kept(
    step: str, now: str | ModelError, answer: str | None, source: str
) -> None:
    result, asked = ask([step] * 9, now, [DOWN] * 9)
    assert (result.answer, result.answer_source) == (answer, source)
    assert (result.stop_reason, result.limit, result.steps, asked) == ("error", None, 6, 1)
    assert result.detail.endswith("; map/reduce failed: the sub-model is down")


def test_a_resumed_run_asks_the_sub_model_again(tmp_path: Path) -> None:
    result, _ = ask([LOOK] * 9, "A guess.", [DOWN], tmp_path)
    assert (result.answer, result.stop_reason) == ("A guess.", "error")
    result, asked = ask([], "never", ["find", "3 words", "3 words"], tmp_path)
    assert (result.answer, result.stop_reason, asked) == ("3 words", "answer", 3)
