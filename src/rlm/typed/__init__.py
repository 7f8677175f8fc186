"""Typed answers: a model class or a JSON schema as instructions, and a submission as its value.

What does not fit is told in a few short lines that a model can act on. Nothing here reaches the
network: a schema that refers to another one elsewhere is refused at the start.
"""

import ast
import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from rlm.errors import ConfigError
from rlm.results import RunResult, Submission
from rlm.typed._problems import AnswerMismatch, cut, listed, mismatch, problems_of
from rlm.typed._schemas import UNREADABLE, SchemaCheck
from rlm.worker import loose_json

__all__ = ["AnswerMismatch", "AnswerType", "answer_type", "with_typed_answer"]

_MOST_SEARCHED_CHARS = 200_000
_MOST_THOUGHTS = 100
_INSTRUCTIONS = (
    "Submit a value of this JSON shape: {schema}\n"
    "FINAL(value) takes Python dicts, lists, strings, numbers, True, False and None directly; "
    "do not turn the value into text first."
)
_NO_SCHEMA = (AttributeError, LookupError, NameError, RuntimeError, TypeError, ValueError)
"""What asking somebody's class for its schema may raise."""


class AnswerType(msgspec.Struct, frozen=True):
    """The wanted shape: how the model is told, and how its answer is read and checked."""

    schema: dict[str, Any]
    validate: Callable[[Any], Any]

    @property
    def instructions(self) -> str:
        """A short paragraph for the prompt, with the schema."""
        compact = json.dumps(self.schema, ensure_ascii=False, separators=(",", ":"))
        return _INSTRUCTIONS.format(schema=compact)

    def parse(self, submission: Submission) -> Any:
        """The answer as the wanted type; AnswerMismatch if no reading of it fits."""
        mismatches: dict[bool, AnswerMismatch] = {}
        for value in _readings(submission):
            try:
                return self._checked(value)
            except AnswerMismatch as mismatch:
                mismatches.setdefault(isinstance(value, str), mismatch)
        raise mismatches.get(False) or mismatches[True]

    def _checked(self, value: Any) -> Any:
        """Validators are the caller's code, and whatever they raise is about the answer."""
        try:
            return self.validate(value)
        except AnswerMismatch:
            raise
        except Exception as error:
            raise mismatch(problems_of(error)) from error


def with_typed_answer(result: RunResult, kind: AnswerType) -> RunResult:
    """The same result with a typed answer, or without any if what there is does not fit."""
    if result.answer is None:
        return result
    try:
        value = kind.parse(Submission(result.answer, "answer", result.answer_json))
    except AnswerMismatch as mismatch:  # of a run that was asked for another type before
        return replace(
            result,
            answer=None,
            stop_reason="error" if result.stop_reason == "answer" else result.stop_reason,
            answer_source="none",
            limit=result.limit or "wrong_shape",
            detail=f"the answer has the wrong shape: {mismatch}",
            rejected_answer=result.answer,
        )
    return replace(result, answer=value)


def answer_type(model: Any) -> AnswerType:
    """The shape given by a JSON schema, a pydantic model, or any type that msgspec knows."""
    if isinstance(model, dict):
        return AnswerType(model, SchemaCheck(model))
    try:
        schema = _schema_of(model)
        json.dumps(schema)
    except _NO_SCHEMA as error:
        name = getattr(model, "__name__", None) or repr(model)
        reason = cut(str(error))
        raise ConfigError(f"{cut(name)} can't be the type of an answer: {reason}") from error
    return AnswerType(schema, lambda value: _instance(model, value))


# -- reading a submission -------------------------------------------------------------------------


def _readings(submission: Submission) -> Iterator[Any]:
    """Every value that a submission may stand for, the likeliest first."""
    if submission.json is not None:
        try:
            value = json.loads(submission.json)
        except UNREADABLE:
            value = ""
        yield value
        if not isinstance(value, str):
            return  # its text is only Python's spelling of the same value
    text = submission.text
    for read in (json.loads, _literal, _embedded):
        try:
            value = read(text)
        except UNREADABLE:
            continue
        yield value
        break
    yield text
    yield text.strip()


def _literal(text: str) -> Any:
    """A value in Python's spelling, as `FINAL_VAR(name)` outside a cell gives it."""
    if len(text) > _MOST_SEARCHED_CHARS:
        raise ValueError("too long to be read as a literal")
    return json.loads(json.dumps(ast.literal_eval(text.strip())))


def _embedded(text: str) -> Any:
    """JSON with fences or prose around it, unless the text is made so that searching takes long."""
    if len(text) > _MOST_SEARCHED_CHARS or text.count("<think") > _MOST_THOUGHTS:
        raise ValueError("too long to be searched")
    return loose_json.parse(text)


# -- classes --------------------------------------------------------------------------------------


def _schema_of(model: Any) -> dict[str, Any]:
    if model is None:
        raise TypeError("give a class or a JSON schema")
    if _is_pydantic(model):
        found: dict[str, Any] = model.model_json_schema()
        return found
    definitions: dict[str, Any] = {}

    def of_custom_type(kind: Any) -> dict[str, Any]:
        """A pydantic model somewhere inside; its own definitions belong to the top."""
        if not _is_pydantic(kind):
            raise TypeError(f"there is no JSON form of {kind.__name__}")
        inner: dict[str, Any] = kind.model_json_schema()
        definitions.update(inner.pop("$defs", {}))
        return inner

    schema = msgspec.json.schema(model, schema_hook=of_custom_type)
    if definitions:
        schema["$defs"] = {**schema.get("$defs", {}), **definitions}
    return schema


def _instance(model: Any, value: Any) -> Any:
    if _is_pydantic(model):
        return _pydantic_instance(model, value)
    return msgspec.convert(value, model, strict=False, dec_hook=_pydantic_instance)


def _pydantic_instance(model: Any, value: Any) -> Any:
    """Validate as Python, then as JSON: a strict model takes a date only from JSON's text."""
    try:
        return model.model_validate(value)
    except ValueError as error:
        as_python = error
    try:
        return model.model_validate_json(json.dumps(value))
    except (AttributeError, ValueError) as as_json:
        told = listed(as_json)
        unread = not told or told[0].get("type") == "json_invalid"
        raise (as_python if unread else as_json) from None


def _is_pydantic(model: Any) -> bool:
    names = ("model_json_schema", "model_validate")
    return isinstance(model, type) and all(callable(getattr(model, name, None)) for name in names)
