"""The kind of a mistake: the rule that an answer breaks and where, whatever its values are."""

import dataclasses
import datetime
import json
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest

from rlm import RLM, ScriptedClient
from rlm.engine.answer_types import AnswerMismatch, answer_type
from rlm.results import Submission


class Checked(pydantic.BaseModel):
    """Pydantic and validators put values, lengths and quotes into messages."""

    model_config = pydantic.ConfigDict(extra="forbid")
    code: str = pydantic.Field(default="AB", max_length=2)
    tags: list[str] = pydantic.Field(default=[], max_length=1)
    day: datetime.date = datetime.date(2024, 1, 1)
    even: int = 0

    @pydantic.field_validator("even")
    @classmethod
    def check(cls, value: int) -> int:
        if value % 2:
            raise ValueError(f'it\'s odd: {value}, "half" is {value / 2}')
        return value


@dataclasses.dataclass
class Pair:
    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"{self.low} exceeds {self.high}")


class Entry(TypedDict):
    word: str
    count: Annotated[int, msgspec.Meta(ge=0)]


class Tagged(msgspec.Struct, forbid_unknown_fields=True):
    tag: Literal["a", "b"]


PATTERN = {"properties": {"a": {"type": "string", "pattern": "^x"}}}
CLOSED = {"properties": {"a": {}}, "additionalProperties": False}
QUOTED = 'it\'s "c"; at e: (d)'


def kind_of(model: Any, value: Any) -> str:
    submission = Submission(str(value), "FINAL", json.dumps(value))
    with pytest.raises(AnswerMismatch) as caught:
        answer_type(model).parse(submission)
    return caught.value.kind


@pytest.mark.parametrize(
    ("model", "values"),
    [
        (Checked, [{"code": "ABC"}, {"code": QUOTED}, {"code": "long " * 99}]),
        (Checked, [{"tags": ["a"] * 2}, {"tags": ["a"] * 7}, {"tags": ["b", "c", "d"]}]),
        (Checked, [{"day": "soon"}, {"day": "2024-13-01"}, {"day": QUOTED}]),
        (Checked, [{"even": 3}, {"even": -5}, {"even": 1_001}]),
        (Checked, [{"x": 1}, {QUOTED: "y; z"}, {"x": 1, "y": 2}]),
        (list[Checked], [[{"even": 3}], [{}, {"even": 5}], [{}, {}, {"even": 77}]]),
        (dict[str, Checked], [{"a": {"even": 3}}, {QUOTED: {"even": 5}}]),
        (Pair, [{"low": 2, "high": 1}, {"low": 9, "high": -1}]),
        (list[Pair], [[{"low": 2, "high": "x"}], [{"low": 1, "high": 2}, {"low": 1, "high": "y"}]]),
        (Entry, [{"word": 1, "count": 1}, {"word": [2], "count": 1}, {"word": {}, "count": 1}]),
        (Entry, [{"word": "a", "count": -1}, {"word": "b", "count": -30}]),
        (Tagged, [{"tag": "c"}, {"tag": QUOTED}, {"tag": "long " * 99}]),
        (Tagged, [{"tag": "a", "x": 1}, {"tag": "b", QUOTED: 1}]),
        (int, ["x", QUOTED, [1], None]),
        (tuple[int, str], [[1], [1, "a", 3]]),
        ({"type": "string"}, [1, 1.5, None, True]),
        (PATTERN, [{"a": "b"}, {"a": QUOTED}]),
        (CLOSED, [{"b": 1}, {"b": 1, "c": 2}, {QUOTED: 1}]),
        ({"patternProperties": {"^x": {}}, **CLOSED}, [{"b": 1}, {"b": 1, "c": 2}, {QUOTED: 1}]),
        ({"dependentRequired": {"a": ["b"]}}, [{"a": 1}, {"a": 2, "c": QUOTED}]),
        ({"properties": {"a": False}}, [{"a": 1}, {"a": QUOTED}]),
        ({"enum": [1, 2]}, [3, "a", None]),
    ],
)  # fmt: skip
def test_other_values_are_the_same_mistake(model: Any, values: list[Any]) -> None:
    assert len({kind_of(model, value) for value in values}) == 1


@pytest.mark.parametrize(
    ("model", "values"),
    [
        (Checked, [{"code": "ABC"}, {"even": 1}, {"code": "ABC", "even": 1}, {"x": 1}]),
        (Checked, [{"day": "soon"}, {"day": [1]}, {"tags": ["a", "b"]}, {"tags": [1]}]),
        (Pair, [{}, {"low": 1}, {"low": "x", "high": 1}, {"low": 2, "high": 1}]),
        (Entry, [{"word": "a"}, {"word": 1, "count": 1}, {"word": "a", "count": -1}]),
        ({"required": ["a", "b"]}, [{}, {"a": 1}, {"b": 1}]),
        ({"dependentRequired": {"a": ["b", "c"]}}, [{"a": 1}, {"a": 1, "b": 1}]),
        (PATTERN, [{"a": 1}, {"a": "b"}]),
        ({"items": {"type": "integer"}, "minItems": 2}, [["x", 1], [1], ["x"]]),
    ],
)
def test_another_rule_or_place_is_another_mistake(model: Any, values: list[Any]) -> None:
    assert len({kind_of(model, value) for value in values}) == len(values)


async def test_a_mistake_with_other_values_ends_a_run_at_the_third_time() -> None:
    schema = {"properties": {"a": {"type": "string"}}}
    wrong = ({"a": 1}, {"a": 0.5}, {"a": None})
    client = ScriptedClient([f"```repl\nFINAL({value!r})\n```" for value in wrong * 2])
    async with RLM(client) as rlm:
        result = await rlm.aask("q", "c", response_model=schema)
    assert (result.limit, result.steps, len(client.requests)) == ("wrong_shape", 3, 3)


RULES = ("must be a SELECT", "must name a table", "must have 3 columns")


def complete(sql: str) -> str:
    for rule in RULES:
        if rule not in sql:
            raise ValueError(f"{sql} {rule}")
    return sql


class Ruled(pydantic.BaseModel):
    sql: str

    @pydantic.field_validator("sql")
    @classmethod
    def is_complete(cls, sql: str) -> str:
        return complete(sql)


@dataclasses.dataclass
class RuledPair:
    sql: str

    def __post_init__(self) -> None:
        complete(self.sql)


@pytest.mark.parametrize("model", [Ruled, RuledPair])
def test_each_rule_of_a_validator_is_a_mistake_of_its_own(model: Any) -> None:
    """A model that satisfies one rule after another makes progress."""
    answers = ["x", RULES[0], "".join(RULES[:2])]
    assert len({kind_of(model, {"sql": each}) for each in answers}) == 3


def test_the_same_rule_of_a_validator_is_the_same_mistake_for_any_text() -> None:
    assert len({kind_of(Ruled, {"sql": each}) for each in ("x", "y z", QUOTED, "long " * 99)}) == 1
