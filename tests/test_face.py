"""Tools and typed answers through the door and a real worker."""

import dataclasses
from typing import Any, Literal

import pydantic
import pytest

from rlm import RLM, ConfigError, Guards, Limits, NoAnswerError, RunResult, ScriptedClient
from rlm.events import RunEnded, ToolCalled
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


async def test_a_function_is_a_tool_with_its_name_in_the_prompt() -> None:
    one, client = engine(code("FINAL([add(2, b=3), add(4), call_tool('add', a=1)])"), tools=[add])
    result = await one.aask("q", "c")
    await one.aclose()
    assert result.answer == "[5, 5, 2]"
    assert "`add(a: int, b: int = 1) -> int`: Add two numbers." in str(
        client.requests[0].messages[0].content
    )
    called = [e for e in result.events if isinstance(e, ToolCalled)]
    assert [e.result for e in called] == ["5", "5", "2"]


async def test_wrong_arguments_and_failures_can_be_repaired_by_the_model() -> None:
    def fussy(x: int) -> int:
        raise ValueError("not today")

    script = [code("fussy('many')"), code("fussy(1)"), code("FINAL('ok')")]
    one, client = engine(*script, tools=[fussy])
    assert (await one.aask("q", "c")).answer == "ok"
    await one.aclose()
    assert "ToolFailed" in last(client.requests[1])
    assert "fussy" in last(client.requests[1])
    assert "not today" in last(client.requests[2])


async def test_tools_may_be_values_and_children_may_have_fewer_tools() -> None:
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


async def test_tools_may_run_models_by_awaited_and_by_blocking_calls() -> None:
    inner = RLM(ScriptedClient(rules=[("", "FINAL(inner)")]))

    async def good(question: str) -> str:
        return str((await inner.aask(question, "c")).answer)

    def blocking(question: str) -> str:
        return str(inner.ask(question, "c").answer)

    one, _ = engine(code("FINAL([good('a'), blocking('b')])"), tools=[good, blocking])
    assert (await one.aask("q", "c")).answer == "['inner', 'inner']"
    await one.aclose()
    await inner.aclose()


def test_a_tool_cannot_take_a_name_of_the_repl() -> None:
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
async def test_a_submitted_value_is_converted_to_the_response_type(
    model: Any, expected: Any
) -> None:
    one, client = engine(code(f"FINAL({VALUE!r})"))
    result = await one.aask("q", "c", response_model=model)
    await one.aclose()
    assert result.answer == expected
    assert "people" in str(client.requests[0].messages[1].content) or model == dict[str, Any]


async def test_an_answer_of_the_wrong_shape_is_returned_until_it_fits() -> None:
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


async def test_an_answer_that_never_fits_is_none_with_a_reason() -> None:
    one, _ = engine(*[code("FINAL('Bern')")] * 2, "Bern.", limits=Limits(max_steps=2))
    result = await one.aask("q", "c", response_model=City)
    await one.aclose()
    assert (result.answer, result.answer_source, result.stop_reason) == (None, "none", "steps")
    assert "no steps left" in result.detail
    assert "wrong shape" in result.detail
    assert result.rejected_answer == "Bern"
    agrees(result)


def agrees(result: RunResult) -> None:
    """Check that the last event states the same ending as the result."""
    ended = result.events[-1]
    assert isinstance(ended, RunEnded)
    assert (ended.stop_reason, ended.answer_source) == (result.stop_reason, result.answer_source)
    assert (ended.limit, ended.detail) == (result.limit, result.detail)
    assert (ended.answer is None) == (result.answer is None)
    assert ended.rejected_answer == result.rejected_answer


@pytest.mark.parametrize(
    "reply", [code("FINAL('Bern')"), "FINAL(Bern)", code("answer.update(content=1, ready=True)")]
)
async def test_the_same_wrong_shape_ends_a_run_at_the_third_time(reply: str) -> None:
    one, client = engine(*[reply] * 30)
    result = await one.aask("q", "c", response_model=City)
    await one.aclose()
    assert (result.stop_reason, result.limit) == ("error", "wrong_shape")
    assert (result.answer, result.answer_source, result.steps) == (None, "none", 3)
    assert "3 times in a row: the answer does not fit" in result.detail
    assert result.rejected_answer in {"Bern", "1"}
    assert len(client.requests) == 3
    agrees(result)


class Cities(pydantic.BaseModel):
    at: dict[str, City]


OBJECTS = {"additionalProperties": {"properties": {"b": {"type": "integer"}}}}
KEYS = ("north", 'a "quoted" one; with: more.', "long " * 30)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (list[int], ["[1, 2, 'x']", "['y; z', 1]", "[1, 'x', 'x' * 300]"]),
        (dict[str, list[int]], ["{'a': [1, 'x']}", "{'a': ['y']}", "{'a': [1, 2, 'z']}"]),
        (City, ["'Bern'", "'Basel'", "'Basel or so; I am not sure'"]),
        ({"type": "array", "minItems": 3}, ["[1]", "[]", "[1, 2]"]),
        ({"type": "array", "items": {"type": "integer"}}, ["[1, 0.5]", "[2.5, 1]", "[0.25]"]),
        ({"type": "object", "additionalProperties": False}, ["{'a': 1}", "{'b': 1}", "{'c': 1}"]),
        (dict[str, City], [f"{{'{key}': {{'name': 'Bern', 'people': 'x'}}}}" for key in KEYS]),
        (Cities, [f"{{'at': {{'{key}': {{'name': 'Bern', 'people': 1.5}}}}}}" for key in KEYS]),
        (OBJECTS, [f"{{'{key}': {{'b': 'x'}}}}" for key in KEYS]),
        ({"minProperties": 3}, ["{'a': 1}", "{'b': 2}", "{'c': 3, 'd': 4}"]),
        (
            {"additionalProperties": False, "patternProperties": {"^x": {}}},
            ["{'a': 1}", "{'b': 1}", "{'c': 1, 'd e': 2}"],
        ),
        ({"properties": {"a": False}}, ["{'a': 1}", "{'a': 2}", "{'a': 'x'}"]),
        (Literal["a", "b"], ["'c'", "'d' * 900", "'it\\'s \"e\"'"]),
    ],
    ids=str,
)
async def test_a_mistake_is_the_same_with_other_indices_and_values(
    kind: Any, values: list[str]
) -> None:
    one, client = engine(*[code(f"FINAL({value})") for value in values * 2])
    result = await one.aask("q", "c", response_model=kind)
    await one.aclose()
    assert (result.limit, result.steps) == ("wrong_shape", 3)
    assert len(client.requests) == 3


async def test_another_field_is_another_mistake() -> None:
    wrong = ["{'name': 1, 'people': 1}", "{'name': 'Bern', 'people': 'x'}", "{'name': 'Bern'}"]
    script = [code(f"FINAL({value})") for value in wrong * 2]
    one, _ = engine(*script, "Bern.", limits=Limits(max_steps=6))
    result = await one.aask("q", "c", response_model=City)
    await one.aclose()
    assert (result.stop_reason, result.steps) == ("steps", 6)


async def test_wrong_shape_limit_sets_how_often_a_mistake_may_be_repeated() -> None:
    for limit, steps in ((1, 1), (5, 5), (None, 8)):
        limits, guards = Limits(max_steps=8), Guards(wrong_shape_limit=limit)
        one, _ = engine(*[code("FINAL('Bern')")] * 8, "Bern.", limits=limits, guards=guards)
        result = await one.aask("q", "c", response_model=City)
        await one.aclose()
        assert result.steps == steps
        assert result.stop_reason == ("error" if limit else "steps")


async def test_different_mistakes_are_limited_only_by_the_steps() -> None:
    script = [code("FINAL('Bern')"), code("FINAL({'name': 'Bern'})")] * 4
    one, _ = engine(*script, "Bern.", limits=Limits(max_steps=8))
    result = await one.aask("q", "c", response_model=City)
    await one.aclose()
    assert (result.stop_reason, result.steps) == ("steps", 8)
    agrees(result)


async def test_an_old_answer_that_is_still_set_does_not_count_as_another_mistake() -> None:
    wrong = code("answer['content'] = 'Bern'; answer['ready'] = True")
    right = code("answer['content'] = {'name': 'Bern', 'people': n}")
    one, _ = engine(wrong, code("n = 1"), code("n += 1"), code("n += 1"), right)
    result = await one.aask("q", "c", response_model=City)
    await one.aclose()
    assert result.answer == City(name="Bern", people=3)


KEPT = code("answer['content'] = 'Bern'; answer['ready'] = True")
LOOKS_AND_FIXES = {
    "a second cell": code("n = 5")
    + "\n"
    + code("answer['content'] = {'name': 'Bern', 'people': n}"),
    "FINAL in a second cell": code("n = 5") + "\n" + code("FINAL({'name': 'Bern', 'people': n})"),
    "FINAL in the text": code("n = 5") + "\n\nFINAL({'name': 'Bern', 'people': 5})",
}


@pytest.mark.parametrize("reply", LOOKS_AND_FIXES.values(), ids=LOOKS_AND_FIXES)
async def test_an_old_answer_that_is_still_set_does_not_hide_a_new_one(reply: str) -> None:
    one, client = engine(KEPT, reply, reply, limits=Limits(max_steps=4))
    result = await one.aask("q", "c", response_model=City)
    await one.aclose()
    assert result.answer == City(name="Bern", people=5)
    assert len(client.requests) <= 3, "a literal beside code is confirmed once"


async def test_an_answer_in_a_dict_of_the_cell_counts_when_it_is_set_again() -> None:
    first = code("answer = {'content': 'Bern', 'ready': True}")
    again = code("answer['content'] = 'Bern'; answer['ready'] = True")
    look = code("print(answer['content'] == 'Bern')")
    one, _ = engine(first, look, *[again] * 6, limits=Limits(max_steps=7))
    result = await one.aask("q", "c", response_model=City)
    await one.aclose()
    assert (result.limit, result.steps) == ("wrong_shape", 4)


async def test_a_mistake_that_is_repaired_beside_one_that_stays_is_progress() -> None:
    schema = {
        "type": "object",
        "required": ["name", "age", "city"],
        "patternProperties": {"^[a-z]+$": {"type": ["string", "integer"]}},
        "additionalProperties": False,
    }
    better = [{"X": 1}, {"name": "a", "X": 1}, {"name": "a", "age": 3, "X": 1}]
    right = {"name": "a", "age": 3, "city": "b"}
    one, _ = engine(*[code(f"FINAL({each})") for each in (*better, right)])
    result = await one.aask("q", "c", response_model=schema)
    await one.aclose()
    assert result.answer == right


HELPER = "def done(value):\n    answer['content'] = value\n    answer['ready'] = True\ndone('Bern')"
ALIAS = "it = answer\nit.update(content='Bern', ready=True)"
SET_ELSEWHERE = {
    "a helper": (HELPER, ["done('Bern')", "done('Bern')"]),
    "a helper, with other values": (HELPER, ["done('Basel')", "done('Chur')"]),
    "another name": (ALIAS, ["it['content'] = 'Bern'", "it['content'] = 'Bern'"]),
    "a list that grows": (
        "rows = []\nanswer.update(content=rows, ready=True)\nrows.append(1)",
        ["rows.append(2)", "rows.append(3)"],
    ),
}


@pytest.mark.parametrize("environment", ["local", "inprocess"])
@pytest.mark.parametrize(("first", "more"), SET_ELSEWHERE.values(), ids=SET_ELSEWHERE)
async def test_an_answer_set_without_naming_it_counts_as_a_mistake(
    first: str, more: list[str], environment: str
) -> None:
    client = ScriptedClient([code(each) for each in (first, *more, *more)])
    async with RLM(client, environment=environment) as one:
        result = await one.aask("q", "c", response_model=City)
    assert (result.limit, result.steps) == ("wrong_shape", 3)
    assert len(client.requests) == 3


async def test_looking_at_an_old_answer_is_no_mistake() -> None:
    wrong = code("answer['content'] = 'Bern'; answer['ready'] = True")
    right = code("answer['content'] = {'name': 'Bern', 'people': 1}")
    one, _ = engine(wrong, *[code("print(answer)")] * 3, right)
    result = await one.aask("q", "c", response_model=City)
    await one.aclose()
    assert (result.answer, result.steps) == (City(name="Bern", people=1), 5)


async def test_at_a_limit_an_answer_that_fits_is_preferred() -> None:
    script = [code("result = {'name': 'Bern', 'people': 1}\nFINAL('Bern')")]
    one, _ = engine(*script, limits=Limits(max_steps=1))
    result = await one.aask("q", "c", response_model=City)
    await one.aclose()
    assert (result.answer, result.answer_source) == (City(name="Bern", people=1), "variable")
    agrees(result)


@pytest.mark.parametrize("strategy", ["direct", "mapreduce"])
async def test_the_same_wrong_shape_ends_runs_without_a_repl_too(strategy: Any) -> None:
    client = ScriptedClient(rules=[("", "Bern")])
    async with RLM(client, strategy=strategy) as one:
        result = await one.aask("q", "Bern is a city.", response_model=City)
    assert (result.stop_reason, result.limit, result.answer) == ("error", "wrong_shape", None)
    assert result.rejected_answer == "Bern"
    repairs = [r for r in client.requests if "Your answer was" in last(r)]
    assert len(repairs) == 2
    agrees(result)


async def test_strict_raises_if_there_is_no_answer() -> None:
    one, _ = engine(*[code("FINAL('Bern')")] * 3)
    with pytest.raises(NoAnswerError, match="3 times in a row") as raised:
        await one.aask("q", "c", response_model=City, strict=True)
    assert raised.value.result.rejected_answer == "Bern"
    await one.aclose()
    one, _ = engine(code("x = 1"), limits=Limits(max_steps=1))
    with pytest.raises(NoAnswerError, match="no steps left"):
        await one.aask("q", "c", strict=True)
    await one.aclose()


def test_strict_returns_an_answer_and_works_in_chats() -> None:
    one, _ = engine(code("FINAL(1)"), code("FINAL(2)"), *[code("FINAL('Bern')")] * 3)
    with one:
        assert one.ask("q", "c", strict=True).answer == "1"
        with one.chat("c") as chat:
            assert chat.ask("q", strict=True).answer == "2"
            with pytest.raises(NoAnswerError):
                chat.ask("q", response_model=City, strict=True)
            assert len(chat.turns) == 2


@pytest.mark.parametrize("strategy", ["direct", "mapreduce"])
async def test_types_and_prologues_apply_to_runs_without_a_repl_too(strategy: Any) -> None:
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


async def test_an_invalid_schema_is_reported_at_once() -> None:
    one, client = engine("never")
    with pytest.raises(ConfigError):
        await one.aask("q", "c", response_model={"type": "no such type"})
    assert client.requests == []


async def test_blocking_calls_and_chats_accept_a_response_type() -> None:
    one, _ = engine("FINAL(7)", "FINAL(8)")
    assert one.ask("q", "c", response_model=int).answer == 7
    chat = one.chat("c")
    assert (await chat.aask("q", response_model=int)).answer == 8
    await chat.aclose()
