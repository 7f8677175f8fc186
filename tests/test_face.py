"""Tools and typed answers through the door and a real worker."""

import dataclasses
from typing import Any

import pydantic
import pytest

from rlm import RLM, ConfigError, Limits, ScriptedClient
from rlm.errors import PortalError
from rlm.events import ToolCalled
from rlm.messages import Request


def code(text: str) -> str:
    return f"```repl\n{text}\n```"


def engine(*script: str, **more: Any) -> tuple[RLM, ScriptedClient]:
    client = ScriptedClient(script, more.pop("rules", ()))
    return RLM(client, **more), client


def last(request: Request) -> str:
    return str(request.messages[-1].content)


# -- tools ---------------------------------------------------------------------------------


def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


async def test_a_function_is_a_tool_by_its_name_and_in_the_prompt() -> None:
    one, client = engine(code("FINAL([add(2, b=3), add(4), call_tool('add', a=1)])"), tools=[add])
    result = await one.aask("q", "c")
    await one.aclose()
    assert result.answer == "[5, 5, 2]"
    assert "`add(a: int, b: int = 1) -> int`: Add two numbers." in str(
        client.requests[0].messages[0].content
    )
    called = [e for e in result.events if isinstance(e, ToolCalled)]
    assert [e.result for e in called] == ["5", "5", "2"]


async def test_wrong_arguments_and_failures_are_repairable() -> None:
    def fussy(x: int) -> int:
        raise ValueError("not today")

    script = [code("fussy('many')"), code("fussy(1)"), code("FINAL('ok')")]
    one, client = engine(*script, tools=[fussy])
    assert (await one.aask("q", "c")).answer == "ok"
    await one.aclose()
    assert "ToolFailed" in last(client.requests[1])
    assert "fussy" in last(client.requests[1])
    assert "not today" in last(client.requests[2])


async def test_values_and_children_with_fewer_tools() -> None:
    rules = [("Query: sub task", code("FINAL([limit_of, 'add' in dir(), 'rate' in dir()])"))]
    one, _ = engine(
        code("FINAL([rate, rlm_query('sub task', context='x')])"),
        rules=rules,
        limits=Limits(max_depth=2),
        custom_tools={"add": add, "rate": 0.25},
        custom_sub_tools={"limit_of": {"tool": 7, "description": "a number"}},
    )
    assert (await one.aask("q", "c")).answer == "[0.25, '[7, False, False]']"
    await one.aclose()


async def test_async_tools_may_run_models_and_blocking_calls_in_tools_are_refused() -> None:
    inner = RLM(ScriptedClient(rules=[("", "FINAL(inner)")]))

    async def good(question: str) -> str:
        return str((await inner.aask(question, "c")).answer)

    def bad(question: str) -> str:
        with pytest.raises(PortalError, match="aask"):
            inner.ask(question, "c")
        return "refused"

    one, _ = engine(code("FINAL([good('a'), bad('b')])"), tools=[good, bad])
    assert (await one.aask("q", "c")).answer == "['inner', 'refused']"
    await one.aclose()
    await inner.aclose()


def test_a_tool_may_not_take_the_name_of_a_repl_name() -> None:
    with pytest.raises(ConfigError, match="llm_query"):
        engine(tools={"llm_query": add})


# -- typed answers -------------------------------------------------------------------------


class City(pydantic.BaseModel):
    name: str
    people: int


@dataclasses.dataclass
class Row:
    name: str
    people: int


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["name", "people"],
}
VALUE = {"name": "Bern", "people": 134_000}


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (City, City(name="Bern", people=134_000)),
        (Row, Row("Bern", 134_000)),
        (SCHEMA, VALUE),
        (dict[str, Any], VALUE),
    ],
)
async def test_a_submitted_value_becomes_the_type(model: Any, expected: Any) -> None:
    one, client = engine(code(f"FINAL({VALUE!r})"))
    result = await one.aask("q", "c", response_model=model)
    await one.aclose()
    assert result.answer == expected
    assert "people" in str(client.requests[0].messages[1].content) or model == dict[str, Any]


async def test_a_wrong_shape_is_sent_back_until_it_fits() -> None:
    script = [
        code("FINAL('Bern')"),
        'FINAL({"name": "Bern"})',
        'Final Answer: ```json\n{"name": "Bern", "people": 134000}\n```',
    ]
    one, client = engine(*script)
    result = await one.aask("q", "c", response_model=City)
    await one.aclose()
    assert result.answer == City(name="Bern", people=134_000)
    assert result.steps == 3
    assert "does not have the right shape" in last(client.requests[1])
    assert "people" in last(client.requests[2])


async def test_an_answer_that_never_fits_is_none_and_says_why() -> None:
    one, _ = engine(*[code("FINAL('Bern')")] * 3, "Bern.", limits=Limits(max_steps=3))
    result = await one.aask("q", "c", response_model=City)
    await one.aclose()
    assert (result.answer, result.answer_source, result.stop_reason) == (None, "none", "steps")
    assert "wrong shape" in result.detail


@pytest.mark.parametrize("strategy", ["direct", "mapreduce"])
async def test_types_and_prologues_reach_runs_without_a_repl_too(strategy: Any) -> None:
    def answer(request: Request) -> str:
        return (
            '{"name": "Bern", "people": 134000}' if "Your answer was" in last(request) else "Bern"
        )

    client = ScriptedClient(rules=[("", answer)])
    one = RLM(client, strategy=strategy, prologue="Mind the tides.")
    result = await one.aask("q", "c", response_model=City)
    assert result.answer == City(name="Bern", people=134_000)
    told = [last(request) for request in client.requests]
    assert any("Mind the tides." in text for text in told)
    assert sum("does not have the right shape" in text for text in told) == 1


async def test_a_schema_that_is_none_is_told_at_once() -> None:
    one, client = engine("never")
    with pytest.raises(ConfigError):
        await one.aask("q", "c", response_model={"type": "no such type"})
    assert client.requests == []


async def test_the_blocking_form_and_chats_take_a_type_too() -> None:
    one, _ = engine("FINAL(7)", "FINAL(8)")
    assert one.ask("q", "c", response_model=int).answer == 7
    chat = one.chat("c")
    assert (await chat.aask("q", response_model=int)).answer == 8
    await chat.aclose()
