"""The shape of extracted values: named fields, or a JSON schema."""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from rlm.engine.answer_types import AnswerMismatch, AnswerType, aanswer_type
from rlm.errors import CallRefused, ConfigError
from rlm.results import Submission

__all__ = ["Shape", "shape_of"]

MAX_FIELDS = 100
MAX_FIELD_CHARS = 500
JSON_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
SCHEMA_KEYS = ("$ref", "$schema", "anyOf", "allOf", "oneOf", "enum", "const")
TEXT_KEYS = ("$comment", "$id", "const", "default", "description", "format", "pattern", "title")
"""Keys of a schema whose value is a text, besides "type" and those above."""

TRUE, FALSE = ("true", "yes", "1"), ("false", "no", "0")


class Shape(Struct, frozen=True):
    """How a shape is described to the model, and what checks a value; ValueError if it is wrong."""

    description: str
    check: Callable[[Any], Awaitable[Any]]


async def shape_of(schema: Any, kind: AnswerType | None = None) -> Shape:
    """Return the shape of a JSON schema, a dict of fields and their types, or a list of fields.

    `kind` is the answer type made from a class, if the caller has one.
    """
    if kind is None and not _is_json_schema(schema):
        return _of_fields(_fields(schema))
    try:
        kind = kind or await aanswer_type(schema)
    except ConfigError as error:
        raise CallRefused(str(error), limit="kind") from error
    return Shape(f"JSON schema: {json.dumps(kind.schema, ensure_ascii=False)}", _checker(kind))


def _checker(kind: AnswerType) -> Callable[[Any], Awaitable[Any]]:
    async def check(value: Any) -> Any:
        text = json.dumps(value, ensure_ascii=False)
        try:
            await kind.aparse(Submission(text, "extract", text))
        except AnswerMismatch as mismatch:
            raise ValueError(str(mismatch)) from mismatch
        return value  # Results are JSON; a caller that wants instances builds them.

    return check


def _is_json_schema(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return False
    if all(isinstance(each, str) for each in schema.values()) and not schema.keys() <= {
        *("type", *SCHEMA_KEYS, *TEXT_KEYS)
    }:
        return False  # Fields and their types; one field is called "type" or "const".
    kind = schema.get("type")
    return (
        (isinstance(kind, str) and kind in JSON_TYPES)
        or isinstance(kind, list)
        or isinstance(schema.get("properties"), Mapping)
        or any(key in schema for key in SCHEMA_KEYS)
    )


def _fields(schema: Any) -> dict[str, str]:
    """Return fields with their types or descriptions, from a dict or a list of names."""
    if isinstance(schema, list | tuple):
        schema = dict.fromkeys(map(str, schema), "")
    if not isinstance(schema, Mapping) or not schema:
        raise CallRefused(
            'a schema is {"field": "type or description", …}, a list of fields, or a JSON schema',
            limit="kind",
        )
    fields = {str(name): str(kind or "") for name, kind in schema.items()}
    if len(fields) > MAX_FIELDS or any(
        len(name) + len(kind) > MAX_FIELD_CHARS for name, kind in fields.items()
    ):
        raise CallRefused(
            f"a schema can have at most {MAX_FIELDS} fields of {MAX_FIELD_CHARS} characters",
            limit="size",
        )
    return fields


def _of_fields(fields: dict[str, str]) -> Shape:
    lines = [f'"{name}": {kind}' if kind else f'"{name}"' for name, kind in fields.items()]

    async def check(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError("it must be a JSON object with these fields")
        return {name: _of_type(name, value.get(name), kind) for name, kind in fields.items()}

    return Shape("A JSON object with these fields:\n" + "\n".join(lines), check)


def _of_type(name: str, value: Any, kind: str) -> Any:
    """Return a value as the named type; words that name no type are a description."""
    convert = _CONVERSIONS.get(kind.strip().lower())
    if value is None or convert is None:
        return value
    try:
        return convert(value)
    except (ValueError, TypeError, OverflowError):
        raise ValueError(f"{name!r} must be {kind}, not {json.dumps(value)[:80]}") from None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError
    number = float(value.replace(",", "").strip()) if isinstance(value, str) else float(value)
    if number != number or number in (float("inf"), float("-inf")):
        raise ValueError
    return number


def _integer(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    number = _number(value)
    if number != int(number):
        raise ValueError
    return int(number)


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().casefold()
    if word in (*TRUE, *FALSE):
        return word in TRUE
    raise ValueError


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError
    return value


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("str", "string", "text"), _text),
    **dict.fromkeys(("int", "integer"), _integer),
    **dict.fromkeys(("float", "number"), _number),
    **dict.fromkeys(("bool", "boolean"), _boolean),
    **dict.fromkeys(("list", "array"), _list),
    **dict.fromkeys(("dict", "object"), _object),
}
