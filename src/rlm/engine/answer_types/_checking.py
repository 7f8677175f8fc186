"""Check answers against schemas. Runs in a process with limits."""

import importlib
import itertools
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from rlm._util.distribution import install_command
from rlm.engine.answer_types._problems import (
    MAX_PROBLEMS,
    UNREADABLE,
    AnswerMismatch,
    cut,
    mismatch,
    names_in,
    problems_of,
    readings,
    schema_problem,
)
from rlm.errors import ConfigError
from rlm.results import Submission

__all__ = ["SchemaCheck", "check", "preload", "read", "try_patterns"]

_MAX_LEVELS = 200


class SchemaCheck:
    """A check of values against a JSON schema; raises ConfigError if it is not one.

    It can take any amount of time and memory, so use it only in processes with limits.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        library = _library("jsonschema")
        try:
            _check_depth(schema)
            if not isinstance(schema.get("$schema", ""), str):
                raise TypeError("$schema must be a string")
            latest = library.Draft202012Validator
            kind = library.validators.validator_for(schema, default=latest)
            kind.check_schema(schema)
        except library.exceptions.SchemaError as error:
            # Of `"type": "str"`, the choices say more than that neither they nor a list fit.
            clearest = next((each for each in error.context if each.validator == "enum"), error)
            problem = schema_problem(clearest).text
            raise ConfigError(f"not a valid JSON schema: {problem}") from error
        except UNREADABLE as error:
            raise ConfigError(f"not a valid JSON schema: {cut(str(error))}") from error
        if schema and schema.keys().isdisjoint(kind.VALIDATORS):
            listed = cut(", ".join(map(str, schema)))
            raise ConfigError(f'not a JSON schema: it has no keyword such as "type", only {listed}')
        _check_references(kind, schema)
        registry = _library("jsonschema_specifications").REGISTRY  # or it would download
        self._validator = kind(schema, registry=registry, format_checker=kind.FORMAT_CHECKER)
        self._names = names_in(schema)
        self._most_relevant = library.exceptions.best_match
        try:
            self._validator.is_valid(None)
        except RecursionError:
            raise ConfigError("this JSON schema refers to itself endlessly") from None

    def __call__(self, value: Any) -> Any:
        """Return the value itself, or raise AnswerMismatch."""
        errors = list(itertools.islice(self._validator.iter_errors(value), MAX_PROBLEMS))
        if errors:
            relevant = (self._most_relevant([each]) for each in errors)
            raise mismatch(schema_problem(each, self._names) for each in relevant)
        return value


def _check_depth(schema: dict[str, Any]) -> None:
    level: list[Any] = [schema]
    for _ in range(_MAX_LEVELS):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return
    raise ConfigError(f"this JSON schema is nested more than {_MAX_LEVELS} levels deep")


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(f"a JSON schema for answers needs: {install_command('typed')}") from error


def _check_references(kind: Any, schema: dict[str, Any]) -> None:
    referencing = _library("referencing")
    specification = _library("referencing.jsonschema").specification_with(
        kind.ID_OF(kind.META_SCHEMA)
    )
    seen: set[int] = set()

    def check(contents: Any, resolver: Any) -> None:
        if not isinstance(contents, dict) or id(contents) in seen:
            return
        seen.add(id(contents))
        for keyword in ("$ref", "$dynamicRef"):
            if isinstance(contents.get(keyword), str):
                found = resolver.lookup(contents[keyword])
                check(found.contents, found.resolver)
        for inner in specification.subresources_of(contents):
            check(inner, resolver.in_subresource(specification.create_resource(inner)))

    registry = _library("jsonschema_specifications").REGISTRY
    try:
        check(schema, registry.resolver_with_root(specification.create_resource(schema)))
    except referencing.exceptions.Unresolvable as error:
        missing = cut(str(getattr(error, "ref", error)))
        raise ConfigError(
            f"the JSON schema refers to {missing!r}, which is not in it; references are never "
            "downloaded"
        ) from error
    except RecursionError:
        raise ConfigError("this JSON schema is nested too deeply") from None


_MISFITS = (ArithmeticError, LookupError, RecursionError, TypeError, ValueError)
"""The errors that a validator may raise on an unexpected value."""


def preload() -> None:
    """Load what every check needs, including the metaschemas."""
    with suppress(ImportError):
        importlib.import_module("jsonschema")
        SchemaCheck({"type": "object"})


def check(schema: str) -> str | None:
    """Return what is wrong with a schema, if anything."""
    try:
        SchemaCheck(json.loads(schema))
    except ConfigError as error:
        return str(error)
    except RecursionError:
        return "this JSON schema is nested too deeply"
    return None


def read(schema: str, text: str, as_json: str | None) -> dict[str, str]:
    """Return the first reading of a submission that fits a schema, as JSON, or the problem."""
    fits = SchemaCheck(json.loads(schema))
    mismatches: dict[bool, AnswerMismatch] = {}
    for value in readings(Submission(text, "answer", as_json)):
        try:
            return {"value": json.dumps(fits(value))}
        except AnswerMismatch as error:
            mismatches.setdefault(isinstance(value, str), error)
        except _MISFITS as error:
            mismatches.setdefault(isinstance(value, str), mismatch(problems_of(error)))
    found = mismatches.get(False) or mismatches[True]
    return {"problem": str(found), "kind": found.kind}


def try_patterns(patterns: list[str], text: str, as_json: str | None) -> None:
    """Search every text of a submission for every pattern; too slow a job is stopped."""
    known = []
    for each in patterns:
        with suppress(re.error):  # another dialect, which only its own library can read
            known.append(re.compile(each))
    for value in readings(Submission(text, "answer", as_json)):
        for found in _texts_in(value):
            for pattern in known:
                pattern.search(found)


def _texts_in(value: Any) -> Iterator[str]:
    ahead = [value]
    while ahead:
        here = ahead.pop()
        if isinstance(here, str):
            yield here
        elif isinstance(here, dict):
            ahead += [*here, *here.values()]
        elif isinstance(here, list):
            ahead += here
