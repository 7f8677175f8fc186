"""None among the items, such as NULL in a column: no model is asked, and it has no result."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlm import RLM, ScriptedClient, operators
from rlm.engine.operators import OperatorCall
from tests.operator_reader import Reader, codes_in

ITEMS = [None, "buy 1", "dear 2", None, "buy 3"]


def say(item: str, prompt: str) -> str:
    if "Labels:" in prompt:
        return codes_in(prompt)["spam" if item.startswith("buy") else "ham"]
    if "JSON" in prompt:
        return '{"word": "x"}'
    return "yes" if item.startswith("buy") else "no"


def asked(reader: Reader) -> set[str]:
    return {item for items in reader.asked for item in items}


@pytest.mark.parametrize("name", ["classify", "where", "extract", "answer_each"])
def test_none_items_have_no_result(name: str) -> None:
    reader = Reader(say)
    given: dict[str, tuple[Any, ...]] = {
        "classify": (ITEMS, ["spam", "ham"]),
        "where": (ITEMS, "wants money"),
        "extract": (ITEMS, ["word"]),
        "answer_each": ("Which?", ITEMS),
    }
    expected: dict[str, list[Any]] = {
        "classify": [None, "spam", "ham", None, "spam"],
        "where": ["buy 1", "buy 3"],
        "extract": [None, {"word": "x"}, {"word": "x"}, None, {"word": "x"}],
        "answer_each": [None, "yes", "no", None, "yes"],
    }
    found = getattr(operators, name)(*given[name], model=reader)
    assert found == expected[name]
    assert found.missing == [0, 3]
    assert "2 None, with no result" in found.note
    assert "no result:" not in found.note
    assert asked(reader) == {"buy 1", "dear 2", "buy 3"}


def test_none_items_are_not_ranked() -> None:
    found = operators.rank(ITEMS, "how early", model=ScriptedClient(["1: 3\n2: 2\n3: 1"] * 9))
    assert set(found) == {"buy 1", "dear 2", "buy 3"}
    assert found.missing == [0, 3]


def test_none_items_have_no_pairs() -> None:
    reader = Reader(lambda item, prompt: "ALL")
    found = operators.pairs(ITEMS, [None, "x"], "belong together", model=reader)
    assert all(None not in pair for pair in found)
    assert found.missing[:1] == [0]
    nothing = operators.pairs([None], ["x"], "belong together", model=reader)
    assert (list(nothing), nothing.missing) == ([], [0])


def test_no_request_is_sent_if_all_items_are_none() -> None:
    reader = Reader(say)
    found = operators.classify([None, None], ["spam", "ham"], model=reader)
    assert (list(found), found.missing, reader.prompts) == ([None, None], [0, 1], [])


def test_a_none_item_and_a_failure_are_reported_separately() -> None:
    reader = Reader(lambda item, prompt: None if item == "buy 1" else say(item, prompt))
    found = operators.classify(ITEMS, ["spam", "ham"], model=reader)
    assert found.missing == [0, 1, 3]
    assert "2 None, with no result" in found.note
    assert "1 has no result: the model gave no usable reply" in found.note


def test_none_in_a_cell() -> None:
    code = (
        "found = classify([None, 'buy 1'], ['spam', 'ham'])\n"
        "print(pairs(['buy 1'], [None], 'x'))\n"
        "FINAL(repr((list(found), found.missing)))"
    )
    root = ScriptedClient([f"```repl\n{code}\n```"])
    reader = Reader(say)
    with RLM(root, sub_model=reader) as engine:
        assert engine.ask("Which?", "").answer == "([None, 'spam'], [0])"
    assert asked(reader) == {"buy 1"}


def test_a_resumed_operator_remembers_none_items(tmp_path: Path) -> None:
    options: dict[str, Any] = {"journal": tmp_path, "run_id": "mine"}
    first = operators.classify(ITEMS, ["spam", "ham"], model=Reader(say), **options)
    again = operators.classify(ITEMS, ["spam", "ham"], model=Reader(say), **options)
    assert list(again) == list(first)
    assert again.missing == [0, 3]


def test_a_recorded_call_remembers_none_items() -> None:
    call = OperatorCall(name="classify", items=("", "a"), absent=(0,), options={})
    settings = json.loads(json.dumps(call.settings))
    assert OperatorCall.recorded(settings, json.dumps(call.context).encode()) == call
