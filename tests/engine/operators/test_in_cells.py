"""Operators in cells: the same code, through the sandbox, with figures that the model sees."""

import json
from typing import Any

from rlm import RLM, Limits, ScriptedClient
from rlm.events import CellEnded, CellOutput, OperatorEnded
from rlm.results import RunResult
from tests.operator_reader import Reader, codes_in, user_text

LINES = "\n".join(("buy " if number % 3 == 0 else "dear ") + str(number) for number in range(60))


def label(item: str, prompt: str) -> str:
    if "Condition:" in prompt:
        return "yes" if item.startswith("buy") else "no"
    if "JSON" in prompt:
        return json.dumps({"word": item.split()[0], "number": item.split()[1]})
    if "Labels:" not in prompt:
        return item
    return codes_in(prompt)["spam" if item.startswith("buy") else "ham"]


def run(code: str, reader: ScriptedClient | None = None, **options: Any) -> RunResult:
    root = ScriptedClient([f"```repl\n{code}\n```", "FINAL(nothing more)"])
    sub = reader or Reader(label)
    with RLM(root, sub_model=sub, **options) as engine:
        return engine.ask("Which lines are spam?", LINES, limits=Limits(max_steps=2))


def printed(result: RunResult) -> str:
    return "".join(event.text for event in result.events if isinstance(event, CellOutput))


def test_a_cell_classifies_and_counts() -> None:
    result = run(
        "labels = classify(context.splitlines(), ['spam', 'ham'])\n"
        "FINAL(sum(label == 'spam' for label in labels))"
    )
    assert result.answer == "20"
    assert printed(result) == "classify: 60 items, 2 prompts\n"
    (ended,) = [event for event in result.events if isinstance(event, OperatorEnded)]
    assert ended.summary == "classify: 60 items, 2 prompts"


def test_every_operator_works_in_a_cell() -> None:
    result = run(
        "lines = context.splitlines()\n"
        "chosen = where(lines, 'wants money')\n"
        "print(len(chosen), chosen.indexes[:2])\n"
        "print(extract(lines[:2], {'word': str, 'number': int}))\n"
        "print(answer_each('Which?', lines[:2]))\n"
        "print(type(merge(['a', None, 'b'], 'Which?')).__name__)\n"
        "print(classify(ctx.chunk(30)[:1], ['spam', 'ham']))\n"
        "print(classify([{'a': 1}, 7], ['spam', 'ham']))\n"
        "FINAL('ok')"
    )
    lines = printed(result).splitlines()
    assert result.answer == "ok"
    assert "20 [0, 3]" in lines
    assert "[{'word': 'buy', 'number': 0}, {'word': 'dear', 'number': 1}]" in lines
    assert "str" in lines
    assert "['spam']" in lines
    assert "['ham', 'ham']" in lines


def test_an_operator_can_be_awaited_and_gathered() -> None:
    result = run(
        "import asyncio\n"
        "async def main():\n"
        "    return await asyncio.gather(\n"
        "        classify(['buy 1'], ['spam', 'ham']), classify(['x 1'], ['spam', 'ham']))\n"
        "FINAL(await main())"
    )
    assert result.answer == "[['spam'], ['ham']]"


def test_wrong_arguments_are_an_error_that_the_model_can_act_on() -> None:
    result = run("classify(context.splitlines(), ['spam'])")
    (ended,) = [event for event in result.events if isinstance(event, CellEnded)]
    assert ended.error_type == "CallFailed"
    assert ended.error_message == (
        "classify: labels must be two or more different, non-empty strings"
    )
    result = run("classify('one text', ['spam', 'ham'])")
    (ended,) = [event for event in result.events if isinstance(event, CellEnded)]
    assert ended.error_type == "TypeError"


def test_a_budget_that_ends_inside_an_operator_keeps_what_was_found() -> None:
    code = (
        "labels = classify(context.splitlines(), ['spam', 'ham'])\n"
        "print(len(labels.missing), labels[:2])"
    )
    root = ScriptedClient([f"```repl\n{code}\n```", "FINAL(40)"])
    with RLM(root, sub_model=Reader(label), limits=Limits(max_calls=1)) as engine:
        result = engine.ask("Which?", LINES)
    assert "10 have no result: the only call is used (max_calls)" in printed(result)
    assert "10 ['spam', 'ham']" in printed(result)


def test_variables_and_tools_may_take_the_names_of_operators() -> None:
    def extract(text: str) -> str:
        """Return the text in capitals."""
        return text.upper()

    result = run("pairs = [(1, 2)]\nFINAL(extract('mine') + str(pairs))", tools=[extract])
    assert result.answer == "MINE[(1, 2)]"
    (ended,) = [event for event in result.events if isinstance(event, CellEnded)]
    assert list(ended.new_variables) == ["pairs"]


def test_llm_query_with_a_schema_gives_a_checked_value() -> None:
    replies = ["no JSON", '{"age": "old"}', '```json\n{"name": "Ada", "age": "36"}\n```']
    sub = ScriptedClient(replies)
    result = run("FINAL(llm_query('Who?', schema={'name': 'str', 'age': int})['age'] + 1)", sub)
    assert result.answer == "37"
    first, second, third = map(user_text, sub.requests)
    assert "Avoid this mistake" not in first
    assert "the reply contains no JSON" in second
    assert "'age' must be int" in third


def test_llm_query_batched_with_a_schema_reports_what_stays_wrong() -> None:
    sub = ScriptedClient(rules=[("bad", "nothing"), ("good", '{"n": 1}')])
    result = run(
        "one, two = llm_query_batched(['good', 'bad'], schema=['n'])\n"
        "FINAL([one, two.failed, two.reason])",
        sub,
    )
    assert isinstance(result.answer, str)
    assert result.answer.startswith("[{'n': 1}, True,")
    assert len(sub.requests) == 1 + 3


def test_an_empty_schema_is_refused() -> None:
    result = run("llm_query('Who?', schema={})")
    (ended,) = [event for event in result.events if isinstance(event, CellEnded)]
    assert ended.error_type == "CallFailed"
