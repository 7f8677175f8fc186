"""Read an answer in several ways, and say what is wrong with it.

Every problem also has a kind: where it is, without the indices of lists, and the rule that is
broken. Answers with the same kinds of problems have the same mistakes, whatever their values are.
"""

import ast
import json
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from rlm.errors import ConfigError
from rlm.results import Submission
from rlm.worker import loose_json

__all__ = [
    "MAX_PROBLEMS",
    "UNREADABLE",
    "AnswerMismatch",
    "LibraryMissing",
    "Problem",
    "cut",
    "listed",
    "mismatch",
    "names_in",
    "problems_of",
    "readings",
    "schema_problem",
]

UNREADABLE = (ValueError, TypeError, SyntaxError, MemoryError, RecursionError)
"""The errors that reading hostile text as JSON or as a Python literal may raise."""

_MAX_SEARCHED_CHARS = 200_000
_MAX_THOUGHTS = 100


def readings(submission: Submission) -> Iterator[Any]:
    """Yield every value that a submission may mean, likeliest first."""
    if submission.json is not None:
        try:
            value = json.loads(submission.json)
        except UNREADABLE:
            value = ""
        yield value
        if not isinstance(value, str):
            return  # its text is only Python's form of the same value
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
    """Return the value of a Python literal, as `FINAL_VAR(name)` outside a cell gives it."""
    if len(text) > _MAX_SEARCHED_CHARS:
        raise ValueError("too long to parse as a literal")
    return json.loads(json.dumps(ast.literal_eval(text.strip())))


def _embedded(text: str) -> Any:
    """Return JSON within fences or prose, unless searching the text would take too long."""
    if len(text) > _MAX_SEARCHED_CHARS or text.count("<think") > _MAX_THOUGHTS:
        raise ValueError("too long to search")
    return loose_json.parse(text)


MAX_PROBLEMS = 100
"""How many problems are compared with those of the answer before."""

_MAX_SHOWN = 5
_MAX_CHARS = 200
_MSGSPEC_TEXT = re.compile(
    r"(?P<problem>.*?)(?: - at `(?P<key>key` in `)?(?P<path>.*)`)?", re.DOTALL
)
_MSGSPEC_VALUE = re.compile(
    r", got .*|(?<=^Invalid value ).*|(?<=^Invalid enum value ).*"
    r"|(?<=^Object contains unknown field ).*",
    re.DOTALL,
)
"""What depends on the value in a message of msgspec, which has no codes for its errors."""

_WRITTEN_VALUE = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|[-+]?\d[\d.,]*(?:e[-+]?\d+)?")
_INDEX = re.compile(r"\[[^\]]*\]")
_JSON_TYPES = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer"}


class Problem(NamedTuple):
    """One thing that is wrong with an answer; `kind` does not depend on the answer's values."""

    text: str
    kind: str


class AnswerMismatch(ValueError):
    """A submission does not have the right shape; the text tells the model why.

    `kind` is equal for submissions with the same mistakes.
    """

    def __init__(self, text: str, kind: str) -> None:
        super().__init__(text, kind)
        self.kind = kind

    def __str__(self) -> str:
        return str(self.args[0])


class LibraryMissing(ConfigError):
    """A package that checks answers is not installed."""


def mismatch(problems: Iterable[Problem]) -> AnswerMismatch:
    """Return the error that names the first few problems."""
    found = list(problems)
    text = "; ".join(each.text for each in found[:_MAX_SHOWN])
    return AnswerMismatch(
        f"the answer does not fit: {text}", "; ".join(sorted({each.kind for each in found}))
    )


def names_in(schema: Any) -> frozenset[str]:
    """Return the names of all properties that a schema knows."""
    found: set[str] = set()
    ahead = [schema]
    while ahead:
        here = ahead.pop()
        if isinstance(here, dict):
            properties = here.get("properties")
            found.update(properties if isinstance(properties, dict) else ())
            ahead += here.values()
        elif isinstance(here, list):
            ahead += here
    return frozenset(found)


def problems_of(error: Exception, names: Collection[str] | None = None) -> list[Problem]:
    """Return what is wrong with an answer; `names` are those that its schema gives properties."""
    if isinstance(error, RecursionError):
        return [Problem("it is nested too deeply", "depth")]
    if problems := listed(error):
        return [_pydantic_problem(each, names) for each in problems[:MAX_PROBLEMS]]
    if isinstance(error, msgspec.ValidationError):
        return _msgspec_problems(error, names)
    return [Problem(cut(f"{type(error).__name__}: {error}"), type(error).__name__)]


def listed(error: Exception) -> list[dict[str, Any]]:
    """Return the problems in a pydantic error; none for any other error."""
    errors = getattr(error, "errors", None)
    found = errors() if isinstance(error, ValueError) and callable(errors) else []
    return found if isinstance(found, list) else []


def _pydantic_problem(problem: dict[str, Any], names: Collection[str] | None) -> Problem:
    got = "" if problem["type"] == "missing" else f", got {_value_text(problem['input'])}"
    text = f"{_place(problem['loc'], names)}{cut(problem['msg'])}{got}"
    rule = problem["type"]
    if rule in ("value_error", "assertion_error"):  # a validator's own, which only its words name
        rule += f" {_without_values(problem['msg'], problem['input'])}"
    return Problem(text, f"{_kind_of_place(problem['loc'], names)}: {rule}")


def _without_values(message: str, given: object = None) -> str:
    """Return the words of a validator without what may be a part of the answer."""
    if isinstance(given, str) and given:
        message = message.replace(given, "…")
    return cut(_WRITTEN_VALUE.sub("…", message))


def _msgspec_problems(
    error: msgspec.ValidationError, names: Collection[str] | None
) -> list[Problem]:
    """Return the problem that msgspec found, or those that the caller's own check raised."""
    found = _MSGSPEC_TEXT.fullmatch(str(error))
    problem, path = (found["problem"], found["path"]) if found else (str(error), None)
    place, cause = _INDEX.sub("[]", path or ""), error.__cause__
    if isinstance(cause, Exception):
        if problems := listed(cause):
            inner = [_pydantic_problem(each, names) for each in problems[:MAX_PROBLEMS]]
            return [each._replace(kind=f"{place} {each.kind}") for each in inner]
        kind = f"{type(cause).__name__} {_without_values(str(cause))}"
    else:
        kind = _MSGSPEC_VALUE.sub("", problem)
    inside = (path or "").removeprefix("$").removeprefix(".")
    where = f"at {inside}: " if inside else ""
    if found and found["key"]:
        where, place = f"a key {where}" if where else "a key: ", f"key in {place}"
    return [Problem(where + cut(problem.replace("`", "")), f"{place}: {kind}")]


_WITH_MESSAGE = frozenset(
    {"required", "dependentRequired", "additionalProperties", "unevaluatedProperties", None}
)
"""The keywords whose own message says most, and holds no value that is as long as the answer."""


def schema_problem(error: Any, names: Collection[str] | None = None) -> Problem:
    keyword, wanted = error.validator, error.validator_value
    if keyword == "type":
        types = wanted if isinstance(wanted, list) else [wanted]
        problem = f"expected {' or '.join(map(str, types))}, got {_value_text(error.instance)}"
    elif keyword == "enum":
        problem = f"expected one of {cut(json.dumps(wanted))}, got {_value_text(error.instance)}"
    elif keyword in _WITH_MESSAGE:
        problem = cut(error.message)
    else:
        problem = f"{keyword} must be {cut(json.dumps(wanted))}, got {_value_text(error.instance)}"
    path = error.absolute_path
    kind = f"{_kind_of_place(path, names)}: {keyword}{_missing_in(error)}"
    return Problem(_place(path, names) + problem, kind)


def _missing_in(error: Any) -> str:
    """Return the required properties that an object lacks: each is a mistake of its own."""
    wanted, given = error.validator_value, error.instance
    if error.validator == "dependentRequired":
        wanted = [name for key, names in wanted.items() if key in given for name in names]
    elif error.validator != "required" or not isinstance(wanted, list):
        return ""
    return " " + ", ".join(sorted({name for name in wanted if name not in given}))


def _kind_of_place(path: Iterable[str | int], names: Collection[str] | None) -> str:
    """Return a place without what the answer chose: the indices of lists and the keys of dicts."""
    return "".join(
        f".{step}" if isinstance(step, str) and (names is None or step in names) else "[]"
        for step in path
    )


def _place(path: Iterable[str | int], names: Collection[str] | None) -> str:
    """Say where a problem is; keys that are none of the `names` are in quotes, if any are given."""
    steps = [
        f".{step}" if isinstance(step, str) and (names is None or step in names) else _key(step)
        for step in path
    ]
    return f"at {cut(''.join(steps).removeprefix('.'))}: " if steps else ""


def _key(key: str | int) -> str:
    text = str(key) if isinstance(key, int) else json.dumps(cut(key, 40), ensure_ascii=False)
    return f"[{text}]"


def _value_text(value: Any) -> str:
    kind = _JSON_TYPES.get(type(value), "null" if value is None else "number")
    if isinstance(value, dict | list):
        return f"{kind} of {len(value)}"
    return kind if value is None else f"{kind} {cut(repr(value), 80)}"


def cut(text: str, most: int = _MAX_CHARS) -> str:
    text = " ".join(text[: 2 * most].split())
    return text if len(text) <= most else text[: most - 1] + "…"
