"""`rlm resume` of a run of `rlm.operators` prints what the function would have returned."""

import json
from pathlib import Path

import pytest

from rlm import ScriptedClient, operators
from rlm.cli._operator_results import with_results
from rlm.errors import ConfigError
from rlm.results import RunResult, UsageSummary
from tests.cli.running import rlm

ITEMS = ["an apple", "a stone", "a pear"]


def test_labels_of_a_resumed_operator_are_printed(tmp_path: Path) -> None:
    script = ScriptedClient(["1: A\n2: B\n3: A"])
    labels = ["food", "other"]
    found = operators.classify(
        ITEMS, labels, model=script, journal=tmp_path, run_id="mine", check="none"
    )
    done = rlm("resume", "mine", RLM_STATE_DIR=str(tmp_path))
    assert (done.returncode, json.loads(done.stdout)) == (0, list(found)), done.stderr
    assert "Classify: 3 items" in done.stderr
    facts = json.loads(rlm("resume", "mine", "--json", RLM_STATE_DIR=str(tmp_path)).stdout)
    assert facts["answer"] == list(found)


def test_a_merged_text_is_printed_unchanged(tmp_path: Path) -> None:
    script = ScriptedClient(["Fruit and a stone."] * 3)
    merged = operators.merge(ITEMS, "What is there?", model=script, journal=tmp_path, run_id="m")
    done = rlm("resume", "m", RLM_STATE_DIR=str(tmp_path))
    assert done.stdout == f"{merged}\n"


def result(value: object) -> RunResult:
    told = json.dumps({"value": value, "note": "where: 3 items"})
    return RunResult(
        answer=told,
        stop_reason="answer",
        answer_source="submitted",
        run_id="one",
        steps=0,
        usage=UsageSummary(),
        cost_usd=None,
        seconds=1,
        answer_json=told,
    )


@pytest.mark.parametrize(
    ("name", "value", "printed"),
    [
        ("where", [0, 2], ["an apple", "a pear"]),
        ("rank", [2, 0], ["a pear", "an apple"]),
        ("pairs", [[0, 1]], [["an apple", "a stone"]]),
        ("extract", [{"kind": "fruit"}, None, None], [{"kind": "fruit"}, None, None]),
    ],
)
def test_chosen_items_are_printed(name: str, value: object, printed: object) -> None:
    context = json.dumps({"items": ITEMS}).encode()
    shown = with_results(result(value), {"name": name, "options": {}}, context, quiet=True)
    assert shown.answer == printed
    places = with_results(result(value), {"name": name, "options": {}}, None, quiet=True)
    assert places.answer == value


@pytest.mark.parametrize("value", [[7], [-1], ["x"], None])
def test_a_record_with_invalid_items_is_refused(value: object) -> None:
    context = json.dumps({"items": ITEMS}).encode()
    with pytest.raises(ConfigError, match="can't be read"):
        with_results(result(value), {"name": "where", "options": {}}, context, quiet=True)
