"""Typed answers: the prompt, how a submission is read, and the message about a misfit."""

import dataclasses
import datetime
import enum
import json
import sys
import time
from typing import Any, Literal, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.engine.answer_types import AnswerMismatch, answer_type
from rlm.errors import ConfigError
from rlm.results import Submission


class Item(pydantic.BaseModel):
    name: str
    price: float = 0.0


class Order(pydantic.BaseModel):
    items: list[Item]
    note: str | None = None


class StrictVisit(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    day: datetime.date
    tags: set[str]


class Point(msgspec.Struct):
    x: int
    y: int = 0


@dataclasses.dataclass
class Row:
    id: int
    day: datetime.date


class Entry(TypedDict):
    word: str
    count: int


class Answer(enum.Enum):
    YES = "yes"
    NO = "no"


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 2},
        "rows": {"type": "array", "items": {"$ref": "#/$defs/row"}},
    },
    "required": ["title"],
    "additionalProperties": False,
    "$defs": {"row": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0}}}},
}


NUMBER_INSIDE = {
    "anyOf": [{"type": "null"}, {"type": "object", "properties": {"a": {"type": "number"}}}]
}


def submitted(value: Any) -> Submission:
    """Return a submission as FINAL(value) in a cell makes it."""
    return Submission(str(value), "FINAL", json.dumps(value, ensure_ascii=False))


def written(text: str) -> Submission:
    """Return a submission as a final in prose makes it."""
    return Submission(text, "FINAL")


def problem(model: Any, submission: Submission) -> str:
    with pytest.raises(AnswerMismatch) as caught:
        answer_type(model).parse(submission)
    text = str(caught.value)
    assert text.startswith("the answer does not fit: ")
    assert "\n" not in text
    assert len(text) < 2_500
    return text.removeprefix("the answer does not fit: ")


GOOD: list[tuple[Any, Any, Any]] = [
    (Order, {"items": [{"name": "a"}]}, Order(items=[Item(name="a")])),
    (Item, {"name": "a", "price": "2.5"}, Item(name="a", price=2.5)),
    (
        StrictVisit,
        {"day": "2024-01-31", "tags": ["a"]},
        StrictVisit(day=datetime.date(2024, 1, 31), tags={"a"}),
    ),
    (list[Item], [{"name": "a"}], [Item(name="a")]),
    (dict[str, Order], {"a": {"items": []}}, {"a": Order(items=[])}),
    (Point, {"x": 1}, Point(1)),
    (Row, {"id": 1, "day": "2024-01-31"}, Row(1, datetime.date(2024, 1, 31))),
    (Entry, {"word": "a", "count": 2}, {"word": "a", "count": 2}),
    (list[int], [1, 2], [1, 2]),
    (tuple[int, str], [1, "a"], (1, "a")),
    (int, 5, 5),
    (int, "5", 5),
    (bool, True, True),
    (float, 1, 1.0),
    (str, "text", "text"),
    (Answer, "yes", Answer.YES),
    (Literal["a", "b"], "a", "a"),
    (int | None, None, None),
    (Any, {"a": 1}, {"a": 1}),
    (SCHEMA, {"title": "ab", "rows": [{"n": 0}]}, {"title": "ab", "rows": [{"n": 0}]}),
    ({"type": "integer"}, 3, 3),
    ({"enum": ["x", None]}, None, None),
    ({}, [1], [1]),
]


@pytest.mark.parametrize(("model", "value", "answer"), GOOD, ids=str)
def test_a_submitted_value_becomes_the_wanted_type(model: Any, value: Any, answer: Any) -> None:
    wanted = answer_type(model)
    parsed = wanted.parse(submitted(value))
    assert parsed == answer
    assert type(parsed) is type(answer)
    assert wanted.parse(written(json.dumps(value))) == answer


def test_the_instructions_hold_the_schema() -> None:
    text = answer_type(list[int]).instructions
    assert text.startswith(
        'Submit a value of this JSON shape: {"type":"array","items":{"type":"integer"}}\n'
    )
    assert "FINAL(value) takes Python dicts" in text
    assert answer_type(SCHEMA).schema is SCHEMA
    assert answer_type(Order).schema == Order.model_json_schema()
    assert "{braces}" in answer_type({"type": "string", "description": "{braces}"}).instructions


def test_definitions_of_nested_models_move_to_the_top_of_the_schema() -> None:
    schema = answer_type(dict[str, Order]).schema
    assert set(schema["$defs"]) == {"Item"}
    assert "$defs" not in schema["additionalProperties"]
    assert answer_type(schema).parse(submitted({"a": {"items": []}})) == {"a": {"items": []}}


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "a", "price": 1}',
        '"{\\"name\\": \\"a\\", \\"price\\": 1}"',
        '```json\n{"name": "a", "price": 1}\n```',
        'Here you are:\n```\n{"name": "a", "price": 1}\n```\nAnything else?',
        'The item is {"name": "a", "price": 1}, as asked.',
        '<think>{"name": "b"}</think> {"name": "a", "price": 1}',
        "{'name': 'a', 'price': 1}",
        "\n  {'name': 'a', 'price': 1.0}\n",
    ],
)
def test_json_is_found_in_text(text: str) -> None:
    if not text.startswith('"'):
        assert answer_type(Item).parse(written(text)) == Item(name="a", price=1)
    assert answer_type(Item).parse(submitted(text.strip('"').replace("\\", ""))) == (
        Item(name="a", price=1)
    )


def test_python_literals_are_read_as_json() -> None:
    assert answer_type(list[bool | None]).parse(written("[True, None]")) == [True, None]
    assert answer_type(list[list[int]]).parse(written("[(1, 2)]")) == [[1, 2]]
    assert "expected array" in problem({"type": "array"}, written("{1, 2}"))


@pytest.mark.parametrize(
    ("model", "text", "answer"),
    [
        (str, "Paris, see [1]", "Paris, see [1]"),
        (str, "42", "42"),
        (str, '"quoted"', "quoted"),
        (Answer, " yes\n", Answer.YES),
        (bool, "True", True),
        (datetime.date, "2024-01-31", datetime.date(2024, 1, 31)),
        ({"type": "string", "format": "date"}, "2024-01-31", "2024-01-31"),
        ({"type": "string"}, "lone \ud800", "lone \ud800"),
    ],
)
def test_text_is_an_answer_where_text_is_wanted(model: Any, text: str, answer: Any) -> None:
    assert answer_type(model).parse(written(text)) == answer


def test_a_value_of_the_wrong_type_is_not_searched_for_a_fitting_part() -> None:
    assert problem(list[int], submitted({"x": [1]})) == "Expected array, got object"


@pytest.mark.parametrize(
    ("model", "value", "words"),
    [
        (Item, {}, "at name: Field required"),
        (Item, {"name": 5}, "at name: Input should be a valid string, got integer 5"),
        (Order, {"items": [{"name": "a"}, {"price": 1}]}, "at items[1].name: Field required"),
        (Item, [1], "got array of 1"),
        (StrictVisit, {"day": "2024-01-31", "tags": 5}, "at tags: Input should be a valid array"),
        (list[Item], [{"price": 1}], "at name: Field required"),
        (Point, {"x": "many"}, "at x: Expected int, got str"),
        (Point, {}, "Object missing required field x"),
        (list[int], [1, "b"], "at [1]: Expected int, got str"),
        (dict[int, str], {"a": "b"}, "a key: Expected int, got str"),
        (dict[str, dict[int, str]], {"c": {"a": "b"}}, "a key at [...]: Expected int"),
        (Answer, "maybe", "Invalid enum value 'maybe'"),
        (SCHEMA, {"rows": []}, "'title' is a required property"),
        (SCHEMA, {"title": "ab", "rows": [{"n": "x"}]}, "at rows[0].n: expected integer"),
        (SCHEMA, {"title": "ab", "rows": [{"n": -1}]}, "at rows[0].n: minimum must be 0, got"),
        (SCHEMA, {"title": "a"}, "at title: minLength must be 2, got string 'a'"),
        (SCHEMA, {"title": "ab", "x": 1}, "not allowed ('x' was unexpected)"),
        (SCHEMA, [], "expected object, got array of 0"),
        ({"type": ["string", "null"]}, 1.5, "expected string or null, got number 1.5"),
        ({"type": "string"}, None, "expected string, got null"),
        ({"enum": ["a", "b"]}, "c", 'expected one of ["a", "b"], got string \'c\''),
        ({"type": "string", "format": "date"}, "soon", 'format must be "date", got string'),
        (NUMBER_INSIDE, {"a": "x"}, "at a: expected number, got string 'x'"),
        (NUMBER_INSIDE, [], 'anyOf must be [{"type": "null"}'),
        ({"not": {}}, 1, "not must be {}"),
        ({"properties": {"a": False}}, {"a": 1}, "False schema does not allow 1"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_reported(model: Any, value: Any, words: str) -> None:
    assert words in problem(model, submitted(value))


def test_at_most_five_problems_are_reported() -> None:
    wrong = submitted({"items": [{} for _ in range(50)]})
    assert problem(Order, wrong).count("Field required") == 5
    schema = {"type": "array", "items": {"type": "integer"}}
    assert problem(schema, submitted(["x" * 10_000] * 50)).count("expected integer") == 5


def test_the_reported_problem_is_about_the_intended_value() -> None:
    assert problem(Item, submitted('{"price": 1}')) == "at name: Field required"
    assert problem(Item, written('So: {"price": 1}')) == "at name: Field required"
    assert "got string 'I do not know'" in problem(SCHEMA, written("I do not know"))
    assert "got string ''" in problem(SCHEMA, written(""))


def test_a_validator_may_raise_anything() -> None:
    class Strange(pydantic.BaseModel):
        pair: str

        @pydantic.field_validator("pair")
        @classmethod
        def check(cls, value: str) -> str:
            return value.split(",")[1]

    assert problem(Strange, submitted({"pair": "a"})) == "IndexError: list index out of range"


@pytest.mark.parametrize("model", [Order, list[Any], list[Order], SCHEMA, {"$ref": "#/$defs/t"}])
@pytest.mark.parametrize("text", ["[" * 100_000, "{'a':" * 5_000, "-" * 100_000 + "1", "9" * 5_000])
def test_hostile_text_is_a_mismatch(model: Any, text: str) -> None:
    if isinstance(model, dict) and "$ref" in model:
        model = {**model, "$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}}
    problem(model, written(text))
    problem(model, Submission(text, "FINAL", text))


@pytest.mark.parametrize(
    "text",
    ["<think>" * 1_000_000, "<think>" * 20_000, "```\n" * 1_000_000, '["' * 50_000, "1+" * 99_000,
     "```" + "a" * 190_000, "[1, " * 200_000, "x" * 9_000_000, "(" * 150, "'a' " * 200_000],
    ids=lambda text: f"{len(text)} of {text[:7]!r}",
)  # fmt: skip
def test_hostile_text_is_checked_quickly(text: str) -> None:
    started = time.monotonic()
    problem(list[int], written(text))
    problem(list[int], submitted(text))
    assert time.monotonic() - started < 20


def test_deep_values_are_a_mismatch() -> None:
    depth = sys.getrecursionlimit() // 2
    deep = "[" * depth + "]" * depth
    tree = {"type": "array", "items": {"$ref": "#"}}
    assert problem(tree, Submission("", "FINAL", deep)) == "it is nested too deeply"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"type": "objekt"}, "at type: "),
        ({"type": "object", "properties": []}, "at properties: expected object, got array"),
        ({"type": "string", "pattern": "("}, "at pattern: format must be"),
        ({"name": "str", "age": "int"}, "only name, age"),
        ({"type": "json_schema", "json_schema": {}}, "at type: "),
        ({"$schema": 5, "type": "object"}, "JSON schema"),
        ({"$schema": [], "type": "object"}, "JSON schema"),
        ({"enum": {1, 2}}, "not JSON serializable"),
        ({"$ref": "https://example.com/a.json"}, "a.json', which is not in it"),
        ({"properties": {"a": {"$ref": "#/$defs/a"}}}, "'/$defs/a', which is not in it"),
        ({"$ref": "#/x/a", "x": {"a": {"items": {"$ref": "#b"}}}}, "is not in it"),
        ({"$ref": "#"}, "refers to itself endlessly"),
        (None, "pass a class or a JSON schema"),
        ("int", "'int' can't be an answer type"),
        (object, "object can't be an answer type"),
        (5, "5 can't be an answer type"),
        (Item(name="a"), "can't be an answer type"),
        (list[object], "object has no JSON form"),
    ],
)  # fmt: skip
def test_what_is_no_type_or_schema(wrong: Any, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        answer_type(wrong)
    text = str(caught.value)
    assert words in text
    assert "\n" not in text


def test_models_without_a_schema_are_refused() -> None:
    class Odd(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
        thing: json.JSONDecoder

    with pytest.raises(ConfigError, match="Odd can't be an answer type"):
        answer_type(Odd)


def test_older_drafts_and_known_schemas_need_no_network() -> None:
    draft = "http://json-schema.org/draft-07/schema#"
    old = {"$schema": draft, "definitions": {"a": {"type": "integer"}}, "$ref": "#/definitions/a"}
    assert answer_type(old).parse(submitted(1)) == 1
    assert answer_type({"$ref": draft}).parse(submitted({"type": "object"})) == {"type": "object"}
    unknown = {"$schema": "https://example.com/mine", "type": "integer"}
    assert answer_type(unknown).parse(submitted(1)) == 1


def test_a_property_may_be_called_ref() -> None:
    schema = {"type": "object", "properties": {"$ref": {"type": "string"}}, "const": {"$ref": "#x"}}
    assert answer_type(schema).parse(submitted({"$ref": "#x"})) == {"$ref": "#x"}


def test_without_jsonschema_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(ConfigError, match=r"pip install 'recursivelm\[typed\]'"):
        answer_type(SCHEMA)
    assert answer_type(Item).parse(submitted({"name": "a"})) == Item(name="a")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
TYPES = [answer_type(model) for model in (Order, StrictVisit, Point, list[int], SCHEMA, int, str)]


@given(st.sampled_from(TYPES), st.text() | JSON.map(json.dumps) | JSON.map(str), JSON | st.none())
def test_any_submission_either_fits_or_is_a_mismatch(wanted: Any, text: str, value: Any) -> None:
    for submission in (written(text), submitted(value)):
        try:
            wanted.parse(submission)
        except AnswerMismatch:
            continue


@given(JSON)
def test_plain_values_come_back_unchanged(value: Any) -> None:
    assert answer_type({}).parse(submitted(value)) == value
    assert answer_type(Any).parse(submitted(value)) == value
