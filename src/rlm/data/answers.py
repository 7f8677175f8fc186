"""What a cell received from a data source: how much, and which parts of which documents.

An answer may come from the record of an earlier execution, so it is read as untrusted input: what
can't be parsed counts as nothing returned.
"""

import json
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

__all__ = ["METHODS", "Answered", "Touched", "answered", "request_text"]

_TEXTS = {"sql": "query", "search": "query", "grep": "pattern", "rows": "table"}
"""The argument of each method that shows the request; `read` has documents instead."""

_KEY_CHARS = 1_000

Count = Annotated[int, Meta(ge=0, le=1 << 53)]


class Touched(Struct, frozen=True):
    """A document that occurs in an answer; `end` is 0 unless bytes of it were read."""

    id: int
    name: str
    bytes: int = 0
    start: int = 0
    end: int = 0


class Answered(Struct, frozen=True):
    """How many rows, hits, lines, parts or documents were returned, and which were touched."""

    returned: int = 0
    bytes: int = 0
    documents: tuple[Touched, ...] = ()


class _Rows(Struct):
    rows: list[msgspec.Raw]


class _Hit(Struct):
    id: Count
    name: str


class _Matches(Struct):
    matches: list[_Hit]


class _Part(Struct):
    end: Count
    size: Count
    id: Count = 0
    name: str = ""


_SHAPES: dict[str, Any] = {
    "sql": msgspec.json.Decoder(_Rows),
    "rows": msgspec.json.Decoder(_Rows),
    "search": msgspec.json.Decoder(list[_Hit]),
    "grep": msgspec.json.Decoder(_Matches),
    "read": msgspec.json.Decoder(_Part),
    "sample": msgspec.json.Decoder(list[msgspec.Raw]),
    "names": msgspec.json.Decoder(list[msgspec.Raw]),
}
METHODS = frozenset(_SHAPES)


def request_text(method: str, arguments: dict[str, Any]) -> str:
    """Return the text of a request, as its cell wrote it; empty if the documents show it."""
    value = arguments.get(_TEXTS.get(method, ""))
    return value if isinstance(value, str) else ""


def answered(method: str, arguments: dict[str, Any], answer: str) -> Answered:
    """Return what an answer holds. A long answer takes some milliseconds."""
    size = len(answer) if answer.isascii() else len(answer.encode("utf-8", "surrogatepass"))
    if (shape := _SHAPES.get(method)) is None:
        return Answered(bytes=size)
    try:
        found: Any = shape.decode(_standard(answer))
    except (ValueError, RecursionError):
        return Answered(bytes=size)
    if isinstance(found, _Part):
        return Answered(1, size, _part(arguments, found))
    if isinstance(found, _Rows):
        return Answered(len(found.rows), size)
    hits = found.matches if isinstance(found, _Matches) else found
    if method in ("sample", "names"):
        return Answered(len(hits), size)
    return Answered(len(hits), size, tuple(Touched(each.id, each.name) for each in hits))


def _standard(answer: str) -> str:
    """Return the same JSON with null for numbers that the standard lacks."""
    if "NaN" not in answer and "Infinity" not in answer:
        return answer
    return json.dumps(json.loads(answer, parse_constant=lambda _: None))


def _part(arguments: dict[str, Any], part: _Part) -> tuple[Touched, ...]:
    """Return the document that was read; none if a cell only asked whether it exists."""
    if arguments.get("size") == 0:
        return ()
    key, start = arguments.get("document"), arguments.get("start", 0)
    if not isinstance(start, int) or start < 0:
        return ()
    named = Touched(part.id, part.name)
    if not part.name:  # An older version wrote neither.
        number = key if isinstance(key, int) and 0 < key <= 1 << 53 else 0
        named = Touched(number, str(key)[:_KEY_CHARS])
    end = part.end if part.end > start else 0
    return (msgspec.structs.replace(named, bytes=part.size, start=start, end=end),)
