"""Typed answers: turn a class or JSON schema into instructions, and a submission into its value.

Mismatches are reported in a few short lines that a model can act on. Nothing here uses the network:
a schema that refers to a schema elsewhere is refused at the start.

A JSON schema and the value that is checked against it may be untrusted. Both are read in a process
with limits: a few lines of nested references, or one pattern, can keep a validator busy for years.
"""

import dataclasses
import importlib.util
import json
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from rlm._util.distribution import install_command
from rlm._util.limited import JobLimits, Jobs, JobStopped
from rlm.engine.answer_types._problems import (
    UNREADABLE,
    AnswerMismatch,
    LibraryMissing,
    Problem,
    cut,
    listed,
    mismatch,
    names_in,
    problems_of,
    readings,
)
from rlm.errors import ConfigError
from rlm.results import RunResult, Submission

__all__ = [
    "MAX_SCHEMA_CHARS",
    "AnswerMismatch",
    "AnswerType",
    "LibraryMissing",
    "aanswer_type",
    "answer_type",
    "with_typed_answer",
]

MAX_SCHEMA_CHARS = 200_000
_CHECK_SECONDS = 5.0
_READ_SECONDS = 5.0
_PATTERN_SECONDS = 1.0
_JOBS = Jobs(
    "rlm.engine.answer_types._checking",
    JobLimits(memory_bytes=512 << 20, output_bytes=32 << 20),
    at_once=4,
)
_INSTRUCTIONS = (
    "Submit a value of this JSON shape: {schema}\n"
    "FINAL(value) takes Python dicts, lists, strings, numbers, True, False and None directly; "
    "do not turn the value into text first."
)
_NO_SCHEMA = (AttributeError, LookupError, NameError, RuntimeError, TypeError, ValueError)
"""The errors that asking a class for its schema may raise."""


class AnswerType(msgspec.Struct, frozen=True):
    """The shape of an answer: how it is described to the model, and how an answer is checked.

    `build` makes an instance of a class; without it, the answer is a value that fits the schema.
    """

    schema: dict[str, Any]
    build: Callable[[Any], Any] | None = None
    patterns: tuple[str, ...] = ()

    @property
    def instructions(self) -> str:
        """Return a short paragraph for the prompt, with the schema."""
        compact = json.dumps(self.schema, ensure_ascii=False, separators=(",", ":"))
        return _INSTRUCTIONS.format(schema=compact)

    def parse(self, submission: Submission) -> Any:
        """Return the answer as its type; raise AnswerMismatch if no reading fits. May block."""
        job = self._job(submission)
        return self._parsed(submission, None if job is None else _outcome(job))

    async def aparse(self, submission: Submission) -> Any:
        """The async form of `parse`."""
        job = self._job(submission)
        return self._parsed(submission, None if job is None else await _aoutcome(job))

    def _job(self, submission: Submission) -> "_Job | None":
        """Return the job for another process; for a class, it only tries the patterns."""
        given = submission.text, submission.json
        if self.build is None:
            return _Job("read", (json.dumps(self.schema), *given), _READ_SECONDS)
        if self.patterns:
            return _Job("try_patterns", (self.patterns, *given), _PATTERN_SECONDS)
        return None

    def _parsed(self, submission: Submission, outcome: Any) -> Any:
        if isinstance(outcome, JobStopped):
            raise mismatch([Problem(_TOO_MUCH[outcome.reason], outcome.reason)])
        if self.build is None:
            return _value_in(outcome)
        mismatches: dict[bool, AnswerMismatch] = {}
        for value in readings(submission):
            try:
                return self._built(value)
            except AnswerMismatch as mismatch_:
                mismatches.setdefault(isinstance(value, str), mismatch_)
        raise mismatches.get(False) or mismatches[True]

    def _built(self, value: Any) -> Any:
        """Build the instance; an error of the caller's validators is a problem of the answer."""
        assert self.build is not None
        try:
            return self.build(value)
        except AnswerMismatch:
            raise
        except Exception as error:
            raise mismatch(problems_of(error, names_in(self.schema))) from error


async def with_typed_answer(result: RunResult, kind: AnswerType) -> RunResult:
    """Return the result with a typed answer, or without one if it does not fit."""
    if result.answer is None:
        return result
    try:
        value = await kind.aparse(Submission(result.answer, "answer", result.answer_json))
    except AnswerMismatch as mismatch:  # an earlier execution had another type
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
    """Return the shape of a JSON schema, a pydantic model, or a type that msgspec knows.

    A schema is checked in another process: in a coroutine, use `aanswer_type`.
    """
    if not isinstance(model, dict):
        return _of_class(model)
    _refuse(_outcome(_check_job(model)))
    return AnswerType(model)


async def aanswer_type(model: Any) -> AnswerType:
    """The async form of `answer_type`."""
    if not isinstance(model, dict):
        return _of_class(model)
    _refuse(await _aoutcome(_check_job(model)))
    return AnswerType(model)


# -- schemas, in a process with limits ------------------------------------------------------------

_TOO_MUCH = {
    "time": "checking it takes too long; submit something shorter and simpler",
    "memory": "checking it takes too much memory; submit something smaller",
    "output": "it is too large; submit something smaller",
    "crash": "it could not be checked; submit something simpler",
}


class _Job(msgspec.Struct, frozen=True):
    function: str
    arguments: tuple[Any, ...]
    seconds: float

    @property
    def limits(self) -> JobLimits:
        return dataclasses.replace(_JOBS.limits, seconds=self.seconds)


def _check_job(schema: dict[str, Any]) -> _Job:
    if importlib.util.find_spec("jsonschema") is None:
        raise LibraryMissing(f"a JSON schema for answers needs: {install_command('typed')}")
    try:
        text = json.dumps(schema)
    except UNREADABLE as error:
        raise ConfigError(f"not a valid JSON schema: {cut(str(error))}") from error
    if len(text) > MAX_SCHEMA_CHARS:
        raise ConfigError(
            f"this JSON schema has {len(text):,} characters; the maximum is {MAX_SCHEMA_CHARS:,}"
        )
    return _Job("check", (text,), _CHECK_SECONDS)


def _outcome(job: _Job) -> Any:
    try:
        return _JOBS.call(job.function, *job.arguments, limits=job.limits)
    except JobStopped as stopped:
        return stopped


async def _aoutcome(job: _Job) -> Any:
    try:
        return await _JOBS.acall(job.function, *job.arguments, limits=job.limits)
    except JobStopped as stopped:
        return stopped


def _refuse(problem: Any) -> None:
    """Raise what is wrong with a schema."""
    if isinstance(problem, JobStopped):
        if problem.reason == "crash":
            raise ConfigError(f"this JSON schema could not be checked: {cut(str(problem))}")
        raise ConfigError(
            f"checking this JSON schema takes too much {problem.reason}; use fewer nested "
            "references and simpler patterns"
        )
    if problem is not None:
        raise ConfigError(problem)


def _value_in(outcome: dict[str, str]) -> Any:
    if "problem" in outcome:
        raise AnswerMismatch(outcome["problem"], outcome["kind"])
    try:
        return json.loads(outcome["value"])
    except UNREADABLE:
        raise mismatch([Problem("it is nested too deeply", "depth")]) from None


# -- classes --------------------------------------------------------------------------------------


def _of_class(model: Any) -> AnswerType:
    try:
        schema = _schema_of(model)
        json.dumps(schema)
    except _NO_SCHEMA as error:
        name = getattr(model, "__name__", None) or repr(model)
        reason = cut(str(error))
        raise ConfigError(f"{cut(name)} can't be an answer type: {reason}") from error
    return AnswerType(schema, lambda value: _instance(model, value), _patterns_in(schema))


def _patterns_in(schema: dict[str, Any]) -> tuple[str, ...]:
    """Return the regular expressions of a class; slow ones must not run in this process."""
    found: dict[str, None] = {}
    ahead: list[Any] = [schema]
    while ahead:
        here = ahead.pop()
        if isinstance(here, dict):
            if isinstance(here.get("pattern"), str):
                found[here["pattern"]] = None
            ahead += here.values()
        elif isinstance(here, list):
            ahead += here
    return tuple(found)


def _schema_of(model: Any) -> dict[str, Any]:
    if model is None:
        raise TypeError("pass a class or a JSON schema")
    if _is_pydantic(model):
        found: dict[str, Any] = model.model_json_schema()
        return found
    definitions: dict[str, Any] = {}

    def of_custom_type(kind: Any) -> dict[str, Any]:
        """Return the schema of a nested pydantic model; its definitions move to the top."""
        if not _is_pydantic(kind):
            raise TypeError(f"{kind.__name__} has no JSON form")
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
    """Validate as Python, then as JSON: a strict model takes a date as text only from JSON."""
    try:
        return model.model_validate(value)
    except ValueError as error:
        as_python = error
    try:
        return model.model_validate_json(json.dumps(value))
    except (AttributeError, ValueError) as as_json:
        problems = listed(as_json)
        unread = not problems or problems[0].get("type") == "json_invalid"
        raise (as_python if unread else as_json) from None


def _is_pydantic(model: Any) -> bool:
    names = ("model_json_schema", "model_validate")
    return isinstance(model, type) and all(callable(getattr(model, name, None)) for name in names)
