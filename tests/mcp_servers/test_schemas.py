"""Schemas of strangers: what is shown of them, what is checked, and that none makes it fail."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.tools._mcp.tool import ServerParameters, free_name, python_name
from rlm.tools._results import one_line, with_notes
from rlm.tools._schemas import Schemas

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
WORDS = (
    *(
        "type",
        "properties",
        "required",
        "items",
        "anyOf",
        "oneOf",
        "enum",
        "const",
        "$ref",
        "$defs",
    ),
    *("default", "minimum", "maxLength", "additionalProperties", "description"),
)
KINDS = st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object", "x"])
SCHEMAS = st.recursive(
    KINDS.map(lambda kind: {"type": kind}) | JSON,
    lambda inner: (
        st.dictionaries(
            st.sampled_from(WORDS),
            inner
            | st.lists(inner, max_size=3)
            | st.sampled_from(["#/$defs/a", "#", "#/properties/a"]),
            max_size=5,
        )
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=20,
)


@pytest.mark.hypothesis
@given(schema=SCHEMAS, value=JSON)
def test_any_schema_is_shown_on_one_line_and_checks_any_value(schema: Any, value: Any) -> None:
    document = schema if isinstance(schema, dict) else {"properties": {"a": schema}}
    schemas = Schemas(document)
    shown = schemas.shown(document)
    assert len(shown) <= 80
    assert shown == " ".join(shown.split())
    problem = schemas.problem(value, document)
    assert problem is None or isinstance(problem, str)


@pytest.mark.hypothesis
@given(schema=SCHEMAS, arguments=st.dictionaries(st.text(max_size=5) | st.just("*"), JSON))
def test_any_arguments_are_bound_or_refused(schema: Any, arguments: dict[str, Any]) -> None:
    parameters = ServerParameters(schema if isinstance(schema, dict) else {"properties": schema})
    assert "`" not in parameters.shown
    assert "\n" not in parameters.shown
    try:
        bound = parameters.bind(arguments)
    except TypeError:
        return
    json.dumps(bound)


@pytest.mark.hypothesis
@given(name=st.text(max_size=100), prefix=st.sampled_from(["", "dock"]))
def test_any_tool_name_becomes_a_python_name(name: str, prefix: str) -> None:
    made = python_name(name, prefix)
    assert made.isidentifier()
    assert not made.startswith("_")
    assert made == python_name(name, prefix)
    assert free_name(made, {made}) != made


@pytest.mark.hypothesis
@given(text=st.text(max_size=300), most=st.integers(2, 50))
def test_any_text_becomes_one_line(text: str, most: int) -> None:
    line = one_line(text, most)
    assert len(line) <= most
    assert line.isprintable()
    assert "`" not in line


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({"type": "string"}, "str"),
        ({"type": ["integer", "null"]}, "int | None"),
        ({"type": "array", "items": {"type": "number"}}, "list[float]"),
        ({"type": "array"}, "list"),
        ({"type": "object"}, "dict"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "str | None"),
        ({"enum": ["a", 1, None]}, "Literal['a', 1, None]"),
        ({"const": "a"}, "Literal['a']"),
        ({"$ref": "#/$defs/p"}, "{'x': int, 'y'?: str}"),
        ({"$ref": "#/$defs/nowhere"}, "Any"),
        ({}, "Any"),
        (True, "Any"),
    ],
)
def test_types_are_shown_as_in_python(schema: Any, shown: str) -> None:
    members = {"x": {"type": "integer"}, "y": {"type": "string"}}
    point = {"type": "object", "properties": members, "required": ["x"]}
    assert Schemas({"$defs": {"p": point}}).shown(schema) == shown


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        ({"type": "integer"}, 1, None),
        ({"type": "integer"}, 1.0, None),
        ({"type": "integer"}, 1.5, "expected int, got 1.5"),
        ({"type": "integer"}, True, "expected int, got True"),
        ({"type": "number"}, 1, None),
        ({"type": "boolean"}, 1, "expected bool, got 1"),
        ({"type": "integer", "minimum": 3}, 2, "must be at least 3, got 2"),
        ({"type": "integer", "exclusiveMaximum": 3}, 3, "must be less than 3, got 3"),
        ({"type": "string", "maxLength": 2}, "abc", "must have at most 2 characters, has 3"),
        ({"type": "array", "minItems": 1}, [], "must have at least 1 items, has 0"),
        ({"enum": [1]}, True, "expected Literal[1], got True"),
        ({"type": "array", "items": {"type": "string"}}, ["a", 2], "item 1: expected str, got 2"),
        ({"type": "object", "required": ["a"]}, {}, "'a' is missing"),
        (
            {"properties": {"a": {"properties": {"b": {"type": "null"}}}}},
            {"a": {"b": 1}},
            "'a': 'b': expected None, got 1",
        ),
        (
            {"oneOf": [{"type": "string"}, {"type": "integer"}]},
            None,
            "expected str | int, got None",
        ),
        ({"type": "string", "pattern": "^(a+)+$"}, "a" * 50 + "!", None),
    ],
)
def test_values_are_checked_for_simple_schemas(
    schema: Any, value: Any, problem: str | None
) -> None:
    assert Schemas({}).problem(value, schema) == problem


def test_parameters_with_names_python_lacks_have_an_alias() -> None:
    members: dict[str, Any] = {
        "user-id": {"type": "integer"},
        "class": {"type": "string"},
        "user id": {},
    }
    parameters = ServerParameters({"properties": members, "required": ["class"]})
    assert parameters.shown == "(class_: str, user_id: int = ..., user_id_2: Any = ...)"
    bound = {"class": "a", "user-id": 1, "user id": 2}
    assert parameters.bind({"class_": "a", "user_id": 1, "user_id_2": 2}) == bound
    assert parameters.bind(bound) == parameters.bind({"*": ["a", 1, 2]}) == bound
    with pytest.raises(TypeError, match="'user_id' was given twice"):
        parameters.bind({"class": "a", "user-id": 1, "user_id": 2})


def test_additional_arguments_are_accepted_only_if_the_schema_says_so() -> None:
    assert ServerParameters({"type": "object"}).bind({"a": 1}) == {"a": 1}
    members: dict[str, Any] = {"properties": {"a": {}}}
    assert ServerParameters({**members, "additionalProperties": True}).bind({"b": 1}) == {"b": 1}
    for closed in (members, {"additionalProperties": False}):
        with pytest.raises(TypeError, match="unknown argument 'b'"):
            ServerParameters(closed).bind({"b": 1})


def test_descriptions_of_parameters_are_short() -> None:
    assert with_notes("Text.", {}) == "Text."
    assert with_notes("", {"a": "one."}) == "(a: one)"
    assert with_notes("Text.", {"a": "one\ntwo", "b": "three"}) == "Text. (a: one two; b: three)"
    assert len(with_notes("", {f"p{n}": "x" * 1_000 for n in range(100)})) < 500
