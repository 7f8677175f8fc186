"""Reading a submission: every value that it may stand for."""

import ast
import json
from collections.abc import Iterator
from typing import Any

from rlm.results import Submission
from rlm.worker import loose_json

__all__ = ["UNREADABLE", "readings"]

UNREADABLE = (ValueError, TypeError, SyntaxError, MemoryError, RecursionError)
"""What reading hostile text as JSON or as a Python literal may raise."""

_MOST_SEARCHED_CHARS = 200_000
_MOST_THOUGHTS = 100


def readings(submission: Submission) -> Iterator[Any]:
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
