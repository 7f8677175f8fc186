"""The names that cells have in `environment="agent"`, in a real session."""

import json
from typing import Any

import pytest

from rlm import RLM, ScriptedClient
from rlm.messages import Request
from rlm.worker.agent_names import AGENT_NAMES
from rlm.worker.agent_thinking import PIECE_CHARS


def code(text: str) -> str:
    return f"```repl\n{text}\n```"


def sub_prompts(client: ScriptedClient) -> list[str]:
    """Return the prompts of sub-calls, without the steps of the run itself."""
    return [
        str(request.messages[1].content)
        for request in client.requests
        if "sub-LLM" in str(request.messages[0].content)
    ]


async def run(cell: str, answer: Any = "ok", context: Any = None) -> tuple[Any, list[str]]:
    """Return the value that a cell submits, and the prompts of its calls; `answer` answers them."""
    client = ScriptedClient([code(cell)])

    def reply(request: Request) -> str:
        prompt = str(request.messages[1].content)
        return str(answer(prompt) if callable(answer) else answer)

    client.add_rule("You are a sub-LLM", reply)
    one = RLM(client, environment="agent")
    result = await one.aask("Go.", context)
    await one.aclose()
    assert result.answer_json is not None, result.answer
    return json.loads(result.answer_json), sub_prompts(client)


async def test_every_name_exists_and_is_described() -> None:
    names = [entry.name for entry in AGENT_NAMES]
    client = ScriptedClient([code(f"FINAL([n in globals() for n in {names!r}])")])
    one = RLM(client, environment="agent")
    result = await one.aask("Which are there?")
    await one.aclose()
    assert result.answer == str([True] * len(names))
    told = str(client.requests[0].messages[0].content)
    assert [name for name in names if f"`{name}" not in told] == []


async def test_other_environments_have_no_agent_names() -> None:
    names = [entry.name for entry in AGENT_NAMES]
    client = ScriptedClient([code(f"FINAL([n in globals() for n in {names!r}])")])
    one = RLM(client)
    assert (await one.aask("Which are there?")).answer == str([False] * len(names))
    await one.aclose()
    assert "stream_output" not in str(client.requests[0].messages[0].content)


async def test_agent_names_are_restored_before_each_cell() -> None:
    client = ScriptedClient(
        [code("stream_output = analyze_text = 1"), code("FINAL(stream_output)")]
    )
    one = RLM(client, environment="agent")
    assert "function" in str((await one.aask("Break it.")).answer)
    await one.aclose()


async def test_aspects_are_requested_concurrently() -> None:
    found, asked = await run(
        "FINAL(analyze_text('The ferry is late.', ['tone', 'facts']))",
        lambda prompt: "sour" if ": tone" in prompt else "late",
    )
    assert found == {"tone": "sour", "facts": "late"}
    assert len(asked) == 2
    assert all(prompt.endswith("---\nThe ferry is late.") for prompt in asked)


async def test_entities_of_a_long_text_are_merged_in_order() -> None:
    def reply(prompt: str) -> str:
        people = ["Ada", "Mira"] if "first" in prompt else ["Mira", "Noor"]
        return f"```json\n{json.dumps({'people': people, 'boats': 'none'})}\n```"

    cell = f"FINAL(extract_entities('first\\n' + 'x' * {PIECE_CHARS}, ['people', 'boats']))"
    found, asked = await run(cell, reply)
    assert found == {"people": ["Ada", "Mira", "Noor"], "boats": []}
    assert len(asked) == 2


async def test_a_reply_that_is_not_json_yields_no_entities() -> None:
    found, _ = await run("FINAL(extract_entities('Ada', 'people'))", "no idea")
    assert found == {"people": []}


async def test_several_solutions_are_compared() -> None:
    found, asked = await run(
        "FINAL(reason_step_by_step('2 + 2', attempts=2))",
        lambda prompt: "Conclusion: 4" if "Solution 1" in prompt else "4?",
    )
    assert found == "Conclusion: 4"
    assert len(asked) == 3
    assert asked[0] == asked[1]
    one, asked = await run("FINAL(reason_step_by_step('2 + 2', attempts=1))", "four")
    assert (one, len(asked)) == ("four", 1)


@pytest.mark.parametrize("score", ["7", "70", "-3", "true", '"9"', "NaN", "null"])
async def test_options_are_judged_one_by_one_and_scores_clamped(score: str) -> None:
    def reply(prompt: str) -> str:
        said = score if "The option: north" in prompt else "5"
        return f'{{"score": {said}, "reason": "deep"}}'

    found, asked = await run("FINAL(evaluate_options(['north', 'south'], 'depth'))", reply)
    scores = {each["option"]: each["score"] for each in found}
    held = {"7": 7, "70": 10, "-3": 0, "true": 1}.get(score, 0)
    assert scores == {"north": held, "south": 5}
    assert found[0]["score"] == max(held, 5)
    assert len(asked) == 2


async def test_make_decision_requests_options_if_it_has_none() -> None:
    def reply(prompt: str) -> str:
        if prompt.startswith("List"):
            return '["stay", "sail"]'
        return f'{{"score": {9 if "The option: sail" in prompt else 2}, "reason": "wind"}}'

    found, asked = await run("FINAL(make_decision('Stay or sail?', criteria=['wind']))", reply)
    assert (found["decision"], found["reason"]) == ("sail", "wind")
    assert [each["score"] for each in found["evaluations"]] == [9.0, 2.0]
    assert len(asked) == 3


async def test_a_long_value_is_summarized_in_pieces() -> None:
    cell = (
        f"context_data['log'] = 'line\\n' * {PIECE_CHARS // 2}\n"
        "FINAL(summarize_context('log', focus='wind'))"
    )
    found, asked = await run(cell, lambda p: "whole" if p.startswith("These") else "part")
    assert found == "whole"
    assert len(asked) == 4
    assert all("wind" in prompt.splitlines()[0] for prompt in asked[:3])


async def test_search_covers_contexts_notes_and_history() -> None:
    cell = (
        "context_data['shed'] = ['a red anchor', 'ropes']\nFINAL(search_context('red anchor', k=2))"
    )
    found, asked = await run(cell, context="nothing\n\nthe anchor of the ferry\n\nnothing")
    assert [each["source"] for each in found] == ["context_data['shed']", "context"]
    assert found[1] == {**found[1], "text": "the anchor of the ferry", "start": 9}
    assert asked == []


async def test_a_missing_name_is_reported_with_the_known_ones() -> None:
    client = ScriptedClient(
        [
            code("get_agent_context('boat')"),
            code("context_data = 3\nget_agent_context()"),
            code("search_context('?!')"),
            code("add_to_context(1, 2)"),
            code("evaluate_options([])"),
            "FINAL(done)",
        ]
    )
    one = RLM(client, environment="agent")
    await one.aask("Go.")
    await one.aclose()
    told = "\n".join(str(request.messages[-1].content) for request in client.requests[1:])
    for text in (
        "context_data has no 'boat'; its keys: none yet",
        "context_data is no longer a dict",
        "the query contains no words to search for",
        "a key must be a str, not int",
        "no options to judge",
    ):
        assert text in told
