"""A run's conversation only grows, in every dialect, so that providers' prompt caches hit.

Measured on what goes over the wire: how much of one step's messages the next step repeats, byte by
byte. Marks that say what to cache move on with the conversation and are no part of the prompt.
"""

import json
from itertools import pairwise, takewhile
from typing import Any

import pytest

from rlm import RLM, Limits
from rlm.messages import Reply, ToolCall
from rlm.testing.fake_server import FakeServer

STEPS = 8
DIALECTS = {
    "openai-compatible/m": ("messages",),
    "anthropic/claude-sonnet-5-5": ("messages",),
    "gemini/gemini-3.5-flash": ("contents",),
    "openai-responses/gpt-5.2-pro": ("input",),
}
ALWAYS_ALIKE = {"system", "tools", "instructions", "systemInstruction", "model"}


def script(protocol: str) -> list[str | Reply]:
    cells = [f"print('step {step} ' + 'x' * 300)" for step in range(1, STEPS)] + ["FINAL('done')"]
    if protocol == "fences":
        return [f"Let me look further.\n```repl\n{cell}\n```" for cell in cells]
    return [
        Reply(text="", tool_calls=(ToolCall(f"call_{step}", "execute_python", {"code": cell}),))
        for step, cell in enumerate(cells)
    ]


def unmarked(value: Any) -> Any:
    """Without the marks for the cache."""
    if isinstance(value, dict):
        return {name: unmarked(item) for name, item in value.items() if name != "cache_control"}
    return [unmarked(item) for item in value] if isinstance(value, list) else value


def written(messages: list[Any]) -> str:
    """The messages as bytes would have them, without the bracket that closes the list."""
    return json.dumps(messages, ensure_ascii=False)[:-1]


async def bodies_of_a_run(model: str, protocol: Any = "fences") -> list[dict[str, Any]]:
    with FakeServer(script(protocol)) as server:
        address = server.openai_url if model.startswith("openai") else server.url
        made = {"base_url": address, "api_key": "key-0123456789"}
        engine = RLM(
            model,
            client_options={model: made},
            limits=Limits(max_steps=STEPS + 2),
            protocol=protocol,
        )
        result = await engine.aask("What is it?", "nothing much")
        await engine.aclose()
        assert result.answer == "done"
        asked = [each.asked for each in server.requests]
    assert len(asked) == STEPS
    return [each.body for each in asked if each is not None]


@pytest.mark.parametrize("model", DIALECTS)
@pytest.mark.parametrize("protocol", ["fences", "tools"])
async def test_each_step_repeats_the_previous_one(model: str, protocol: str) -> None:
    bodies = [unmarked(body) for body in await bodies_of_a_run(model, protocol)]
    (name,) = DIALECTS[model]
    for before, after in pairwise(bodies):
        assert {n: v for n, v in before.items() if n in ALWAYS_ALIKE} == {
            n: v for n, v in after.items() if n in ALWAYS_ALIKE
        }
        first, second = written(before[name]), written(after[name])
        alike = sum(
            1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
        )
        assert alike >= 0.9 * len(first)
        assert len(second) > len(first)


async def test_anthropic_requests_mark_where_the_stable_prefix_ends() -> None:
    """The mark that one step sets on its last message is there again when the next one reads."""
    bodies = await bodies_of_a_run("anthropic/claude-sonnet-5-5")
    for before, after in pairwise(bodies):
        assert 0 < json.dumps(before).count('"cache_control"') <= 4
        last = len(before["messages"]) - 1
        assert "cache_control" in json.dumps(before["messages"][last])
        assert "cache_control" in json.dumps(after["messages"][last])


async def test_sub_calls_are_not_marked_for_caching() -> None:
    cell = "```repl\nFINAL(llm_query('hello'))\n```"
    with FakeServer([cell, "hi"]) as server:
        made = {"base_url": server.url, "api_key": "key-0123456789"}
        model = "anthropic/claude-sonnet-5-5"
        engine = RLM(model, client_options={model: made})
        result = await engine.aask("What is it?", "nothing much")
        await engine.aclose()
        root, sub = (json.dumps(each.asked and each.asked.body) for each in server.requests)
    assert result.answer == "hi"
    assert "cache_control" in root
    assert "cache_control" not in sub
