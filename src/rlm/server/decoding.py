"""How much memory a JSON body takes, and how it becomes a request; errors name the field."""

import json
import mmap
import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin

import msgspec
from msgspec import inspect

from rlm._util import slow_numbers
from rlm._util.text import meant_or_all
from rlm.server.errors import ApiError, bad_request

__all__ = ["Weight", "decode", "mistake", "weight_of"]

T = TypeVar("T")
SLICE_BYTES = 1 << 20
"""Bodies are scanned in slices, so that other threads can run in between."""

_TEXT_BYTES = 32
"""What each quotation mark of a string stands for."""

_MISTAKE = re.compile(r"(?P<what>.*?)(?: - at `(?P<key>key in )?\$(?P<where>.*)`)?", re.DOTALL)
_FIELD = re.compile(r"field `([^`]*)`")
MAX_MISTAKE_CHARS = 1_000


class Weight(NamedTuple):
    """The most memory that a decoded body takes: for its text, and for its values."""

    text: int
    values: int

    @property
    def total(self) -> int:
        return self.text + self.values


def weight_of(body: bytes | mmap.mmap) -> Weight:
    """Return an upper bound on the memory that a JSON body takes."""
    wide, quotes, values = False, 0, 0
    for part in _slices(body):
        wide = wide or not part.isascii() or b"\\u" in part
        quotes += part.count(b'"') - part.count(b'\\"')
        values += _of_values(part)
    if quotes <= len(body) // 16:
        outside = sum(map(_of_values, slow_numbers.outside_strings(body)))
        values = min(values, outside + _TEXT_BYTES * quotes)
    return Weight(len(body) * (8 if wide else 4), values)


def _slices(body: bytes | mmap.mmap) -> Iterator[bytes]:
    """Yield the body in slices; a pair of characters may be split between two."""
    for at in range(0, len(body), SLICE_BYTES):
        yield body[at : at + SLICE_BYTES + 1]


def _of_values(structure: bytes) -> int:
    """Estimate the memory of CPython objects: a list 56 bytes, a dict 64 or 184, a number 32."""
    objects = structure.count(b"{")
    return (
        96 * structure.count(b"[")
        + 72 * objects
        + 128 * (objects - structure.count(b"{}"))
        + 40 * structure.count(b":")
        + _TEXT_BYTES * structure.count(b'"')
        + 44 * structure.count(b",")
    )


def decode(body: bytes | memoryview, kind: type[T]) -> T:
    """Decode a body as that type. 2.0 counts as a whole number: JSON has one kind of number."""
    try:
        return slow_numbers.decode(body, kind)
    except msgspec.ValidationError as error:
        if "got `float`" not in str(error):
            raise
    plain = slow_numbers.decode(body, object)
    return msgspec.convert(_with_whole_numbers(plain, inspect.type_info(kind)), kind)


def _with_whole_numbers(value: Any, kind: inspect.Type) -> Any:
    """Return the value with 2.0 as 2 where only whole numbers are allowed, and nowhere else."""
    kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    if isinstance(value, float):
        found = {type(each) for each in kinds} & {inspect.IntType, inspect.FloatType}
        return int(value) if value.is_integer() and found == {inspect.IntType} else value
    for each in kinds:
        if isinstance(value, list) and isinstance(each, (inspect.ListType, inspect.VarTupleType)):
            return [_with_whole_numbers(item, each.item_type) for item in value]
        if isinstance(value, dict) and isinstance(each, inspect.DictType):
            items = value.items()
            return {name: _with_whole_numbers(item, each.value_type) for name, item in items}
        if isinstance(value, dict) and isinstance(each, inspect.StructType):
            known = {field.encode_name: field.type for field in each.fields}
            whole = {
                name: _with_whole_numbers(value[name], known[name])
                for name in known.keys() & value.keys()
            }
            value = {**value, **whole}
    return value


def mistake(error: msgspec.ValidationError, kind: type[Any]) -> ApiError:
    """Say what is wrong with a body of this type, and where; suggest known fields and values."""
    what, where = _cut(str(error)), ""
    if (found := _MISTAKE.fullmatch(what)) is not None:
        what, where = found["what"], found["where"] or ""
    field = _FIELD.search(what)
    hint = ""
    if field is not None:
        known = list(_fields_at(kind, where)) if "unknown field" in what else []
        hint = f"; {meant_or_all(field[1], known, 'choose one of')}" if known else ""
        where = f"{where}.{field[1]}"
        if "missing" in what:
            missing = where.lstrip(".")
            return bad_request(f"{missing} is missing", missing, "missing_required_parameter")
    elif what.startswith("Invalid enum value"):
        hint = _choice_hint(kind, where)
    param = where.lstrip(".") or None
    return bad_request(f"{what}{f' at {param}' if param else ''}{hint}", param, "invalid_type")


def _cut(text: str) -> str:
    """Return a message without the middle of a long name, which the client has chosen."""
    if len(text) <= 2 * MAX_MISTAKE_CHARS:
        return text
    return f"{text[:MAX_MISTAKE_CHARS]}…{text[-MAX_MISTAKE_CHARS:]}"


def _choice_hint(kind: type[msgspec.Struct], where: str) -> str:
    """Name the values that the field at a path may have."""
    parent, _, name = where.rpartition(".")
    of_field = _literals(_fields_at(kind, parent).get(name))
    choices = [each if isinstance(each, str) else json.dumps(each) for each in of_field]
    if len(choices) == 1:
        return f"; it can only be {choices[0]}"
    return f"; choose one of {', '.join(choices)}" if choices else ""


def _literals(annotation: Any) -> list[Any]:
    """Return the values of an annotation such as `Literal[1] | None`."""
    parts = get_args(annotation)
    if get_origin(annotation) is Literal:
        return list(parts)
    return [each for part in parts for each in _literals(part)]


def _fields_at(kind: type[msgspec.Struct], where: str) -> dict[str, Any]:
    """Return the fields that an object may have at a path such as `.rlm.limits`, with types."""
    here: type[msgspec.Struct] | None = kind
    for name in filter(None, where.split(".")):
        inside = {} if here is None else _types_of(here)
        here = _struct_in(inside.get(name.partition("[")[0]))  # An item of `messages[0]`.
    return {} if here is None else _types_of(here)


def _types_of(struct: type[msgspec.Struct]) -> dict[str, Any]:
    return {each.encode_name: each.type for each in msgspec.structs.fields(struct)}


def _struct_in(annotation: Any) -> type[msgspec.Struct] | None:
    """Return the struct of an annotation such as `LimitsField | None`, if there is just one."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation
    found = [each for part in get_args(annotation) if (each := _struct_in(part)) is not None]
    return found[0] if len(found) == 1 else None
