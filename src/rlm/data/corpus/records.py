"""Records of JSON lines: which field is the text, which the name, and what else can be searched."""

import codecs
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from rlm._util.slow_numbers import decode, loads
from rlm._util.text import sendable

__all__ = ["Fields", "Record", "Scalar", "read_record", "read_text"]

Scalar = str | int | float | bool

TEXT_FIELDS = ("text", "content", "contents", "body", "document", "passage", "abstract", "message")
ID_FIELDS = ("id", "_id", "doc_id", "docid", "document_id", "uid", "key", "url")
TITLE_FIELDS = ("title", "headline", "subject", "name")
MAX_FIELDS = 32
MAX_FIELD_CHARS = 256
_LARGEST = 1 << 63


class Fields(NamedTuple):
    """The fields that a user named; otherwise the first of the usual fields counts."""

    text: str | None = None
    id: str | None = None


class Record(NamedTuple):
    """One line: its text, its id and title if it has them, and its other short values."""

    text: str
    id: str | None
    title: str
    fields: dict[str, Scalar]


def read_record(line: bytes | bytearray | memoryview, wanted: Fields) -> Record | None:
    """Read a line of JSON; None if it is not an object or has no text."""
    found = _object(line)
    text_field = _text_field(found, wanted)
    if text_field is None:
        return None
    title_field = _first_text(found, TITLE_FIELDS)
    return Record(
        sendable(found[text_field]),
        _id(found, (wanted.id,) if wanted.id else ID_FIELDS),
        sendable(found[title_field])[:MAX_FIELD_CHARS] if title_field else "",
        _scalars(found, text_field),
    )


def read_text(line: bytes | bytearray | memoryview, wanted: Fields) -> str | None:
    """Read only the text of a line of JSON."""
    found = _object(line)
    field = _text_field(found, wanted)
    return None if field is None else sendable(found[field])


def _object(line: bytes | bytearray | memoryview) -> dict[str, Any]:
    """Decode a line; anything other than an object becomes an empty dict."""
    if bytes(line[:3]) == codecs.BOM_UTF8:  # at the beginning of a file
        line = line[3:]
    try:
        found = _decoded(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _decoded(line: bytes | bytearray | memoryview) -> object:
    try:
        return decode(line, object)
    except (msgspec.DecodeError, UnicodeDecodeError):  # Python's json also reads NaN and Infinity.
        return loads(bytes(line).decode("utf-8", "replace"))


def _text_field(found: Mapping[str, Any], wanted: Fields) -> str | None:
    return _first_text(found, (wanted.text,) if wanted.text else TEXT_FIELDS)


def _first_text(found: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    for name in names:
        if isinstance(found.get(name), str):
            return name
    return None


def _id(found: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    for name in names:
        value = found.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool):
            return sendable(str(value))[:MAX_FIELD_CHARS]
    return None


def _scalars(found: Mapping[str, Any], text_field: str) -> dict[str, Scalar]:
    """Return the short values, with names that tantivy can hold."""
    chosen: dict[str, Scalar] = {}
    for name, value in found.items():
        if len(chosen) == MAX_FIELDS:
            break
        if name == text_field or not name.isprintable() or not 0 < len(name) <= MAX_FIELD_CHARS:
            continue
        if isinstance(value, str):
            if len(value) <= MAX_FIELD_CHARS:
                chosen[sendable(name)] = sendable(value)
        elif (isinstance(value, float) and math.isfinite(value)) or (
            isinstance(value, int) and -_LARGEST <= value < _LARGEST
        ):
            chosen[sendable(name)] = value
    return chosen
