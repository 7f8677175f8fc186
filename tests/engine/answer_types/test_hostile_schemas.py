"""Schemas and answers made to take forever: they are refused, and the event loop goes round."""

import json
from typing import Annotated, Any

import msgspec
import pytest

from rlm.api import RLM
from rlm.engine import answer_types
from rlm.engine.answer_types import (
    MAX_SCHEMA_CHARS,
    AnswerMismatch,
    AnswerType,
    aanswer_type,
    answer_type,
)
from rlm.errors import ConfigError
from rlm.results import Submission
from rlm.testing.scripted import ScriptedClient
from tests.hostile import NEVER_MATCHES, SLOW_PATTERN, ends, reference_bomb, ticking


@pytest.fixture(autouse=True)
def shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits are for machines that are busy; what takes forever takes longer than any."""
    monkeypatch.setattr(answer_types, "_CHECK_SECONDS", 1.5)
    monkeypatch.setattr(answer_types, "_READ_SECONDS", 1.5)


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


REFUSED = [
    (reference_bomb(), "too much time"),
    (
        {"anyOf": [{"not": {"$ref": "#"}}], **reference_bomb(60)},
        "too much time|endlessly|could not be",
    ),
    ({"not": {"$ref": "#/$defs/a0"}, "$defs": reference_bomb()["$defs"]}, "too much time"),
    (nested(300), "200 levels"),
    ({"enum": ["x" * MAX_SCHEMA_CHARS]}, "maximum is"),
]


@pytest.mark.parametrize(("schema", "words"), REFUSED, ids=range(len(REFUSED)))
async def test_a_schema_that_takes_forever_is_refused(schema: dict[str, Any], words: str) -> None:
    async with ticking() as ticks:
        with pytest.raises(ConfigError, match=words):
            await aanswer_type(schema)
    if words == "too much time":
        assert ticks.count > 3


def test_a_schema_that_is_too_deep_to_be_written_is_refused() -> None:
    with pytest.raises(ConfigError, match="not a valid JSON schema"):
        answer_type(nested(100_000))


SLOW = {"type": "string", "pattern": SLOW_PATTERN}
ONLY_FOR_OBJECTS = {"type": "object", "properties": {"a": {"$ref": "#/$defs/a0"}}}
TAKES_FOREVER: list[tuple[dict[str, Any], Any]] = [
    (SLOW, NEVER_MATCHES),
    ({"type": "array", "items": SLOW}, [NEVER_MATCHES]),
    ({"type": "object", "patternProperties": {SLOW_PATTERN: {}}}, {NEVER_MATCHES: 1}),
    ({"type": "object", "propertyNames": SLOW}, {NEVER_MATCHES: 1}),
    ({"$defs": reference_bomb()["$defs"], **ONLY_FOR_OBJECTS}, {"a": {}}),
    ({"type": "array", "uniqueItems": True}, [{"n": [n]} for n in range(60_000)]),
]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        pytest.param(*TAKES_FOREVER[0]),
        *(pytest.param(*each, marks=pytest.mark.heavy) for each in TAKES_FOREVER[1:]),
    ],
    ids=range(len(TAKES_FOREVER)),
)
async def test_an_answer_that_takes_too_long_to_check_is_a_mismatch(
    schema: dict[str, Any], value: Any
) -> None:
    kind = await aanswer_type(schema)
    async with ticking() as ticks:
        with pytest.raises(AnswerMismatch, match="checking it takes too long"):
            await kind.aparse(Submission("", "FINAL", json.dumps(value)))
    assert ticks.count > 3


@pytest.mark.heavy
def test_schema_checks_have_a_time_limit_in_blocking_code_too() -> None:
    with ends():
        with pytest.raises(ConfigError, match="too much time"):
            answer_type(reference_bomb())
        with pytest.raises(AnswerMismatch, match="too long"):
            AnswerType(SLOW).parse(Submission(NEVER_MATCHES, "FINAL"))


class Named(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(pattern=SLOW_PATTERN)]


@pytest.mark.parametrize("model", [Named, list[Named], dict[str, Named]], ids=str)
async def test_a_slow_pattern_in_a_class_does_not_block_the_event_loop(model: Any) -> None:
    inside = {"name": NEVER_MATCHES}
    value = inside if model is Named else [inside] if model == list[Named] else {"a": inside}
    kind = await aanswer_type(model)
    async with ticking() as ticks:
        with pytest.raises(AnswerMismatch, match="takes too long"):
            await kind.aparse(Submission("", "FINAL", json.dumps(value)))
    assert ticks.count > 3
    good = await answer_type(Named).aparse(Submission("", "FINAL", '{"name": "aaa"}'))
    assert good == Named("aaa")
    with pytest.raises(AnswerMismatch, match="at name"):
        await answer_type(Named).aparse(Submission("", "FINAL", '{"name": "b"}'))


async def test_a_run_continues_after_an_answer_that_takes_too_long_to_check() -> None:
    replies = [f"```repl\nFINAL({NEVER_MATCHES!r})\n```", "```repl\nFINAL('aaa')\n```"]
    client = ScriptedClient(replies)
    rlm = RLM("test/model", clients={"test": client}, environment="inprocess")
    async with ticking() as ticks, rlm:
        result = await rlm.aask("which letters?", "text", response_model=SLOW)
    assert result.answer == "aaa"
    assert "checking it takes too long" in str(client.requests[1].messages)
    assert ticks.count > 3
