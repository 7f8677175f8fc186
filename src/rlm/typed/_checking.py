"""Jobs about schemas and answers; `rlm._util.limited` runs each in a process of its own."""

import importlib
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from rlm.errors import ConfigError
from rlm.results import Submission
from rlm.typed._problems import AnswerMismatch, mismatch, problems_of
from rlm.typed._readings import readings
from rlm.typed._schemas import SchemaCheck

__all__ = ["check", "preload", "read", "try_patterns"]

_MISFITS = (ArithmeticError, LookupError, RecursionError, TypeError, ValueError)
"""What a validator may raise on a value that nobody thought of."""


def preload() -> None:
    """Load what every check needs, and have the schemas of schemas ready."""
    with suppress(ImportError):
        importlib.import_module("jsonschema")
        SchemaCheck({"type": "object"})


def check(schema: str) -> str | None:
    """What speaks against a schema, if anything does."""
    try:
        SchemaCheck(json.loads(schema))
    except ConfigError as error:
        return str(error)
    except RecursionError:
        return "this JSON schema is nested too deeply"
    return None


def read(schema: str, text: str, as_json: str | None) -> dict[str, str]:
    """The first reading of a submission that fits a schema, as JSON, or the problem with it."""
    fits = SchemaCheck(json.loads(schema))
    problems: dict[bool, str] = {}
    for value in readings(Submission(text, "answer", as_json)):
        try:
            return {"value": json.dumps(fits(value))}
        except AnswerMismatch as error:
            problems.setdefault(isinstance(value, str), str(error))
        except _MISFITS as error:
            problems.setdefault(isinstance(value, str), str(mismatch(problems_of(error))))
    return {"problem": problems.get(False) or problems[True]}


def try_patterns(patterns: list[str], text: str, as_json: str | None) -> None:
    """Search every text of a submission for every pattern: this ends, or the job is stopped."""
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
