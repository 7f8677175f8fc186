"""JSON with marks for values that JSON has no types for, so that they keep their types.

    {"$set": [...]}  {"$frozenset": [...]}  {"$tuple": [...]}  {"$bytes": "base64"}
    {"$bytearray": "base64"}  {"$dict": [[key, value], ...]}

A dict is written as `$dict` if it has a key that is not text, or a single key that begins with `$`,
so no value is mistaken for a mark. Both sides use this file, the host also for what cells send.
"""

from __future__ import annotations

import json
from binascii import a2b_base64, b2a_base64

__all__ = ["dumps", "loads", "marked", "plain_json", "unmarked"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

MAX_EQUAL_HASHES = 100
"""How many members of a set may have the same hash: Python compares each with all the others."""

_ATOMS = frozenset({str, int, float, bool, type(None)})
_LISTS: tuple[tuple[Any, str], ...] = (
    (tuple, "$tuple"),
    (set, "$set"),
    (frozenset, "$frozenset"),
)


def dumps(value: Any) -> str:
    """Return a value as text; raise TypeError if something in it is not data."""
    return json.dumps(marked(value))


def loads(text: str) -> Any:
    """Return the value that `dumps` wrote; raise ValueError for any other text."""
    return json.loads(text, object_hook=_revived if '"$' in text else None)


def marked(value: Any) -> Any:
    """Return a value in JSON's types, with marks; raise TypeError if part of it is not data."""
    if type(value) in _ATOMS:
        return value
    if isinstance(value, dict):
        return _marked_dict(value)
    if isinstance(value, list):
        return [marked(each) for each in value]
    for kind, mark in _LISTS:
        if isinstance(value, kind):
            return {mark: [marked(each) for each in value]}
    if isinstance(value, (bytes, bytearray)):
        mark = "$bytes" if isinstance(value, bytes) else "$bytearray"
        return {mark: b2a_base64(value, newline=False).decode("ascii")}
    if isinstance(value, (str, int, float)):
        return value  # It is of a subclass, which JSON writes as its base class.
    raise TypeError(
        f"a {type(value).__name__} is not data: data must be None, bool, int, float, str, bytes, "
        "or a list, tuple, set or dict of data"
    )


def _marked_dict(value: dict[Any, Any]) -> dict[str, Any]:
    is_plain = all(isinstance(key, str) for key in value)
    if is_plain and not (len(value) == 1 and next(iter(value)).startswith("$")):
        return {key: marked(each) for key, each in value.items()}
    return {"$dict": [[marked(key), marked(each)] for key, each in value.items()]}


def unmarked(value: Any) -> Any:
    """Return the value of parsed JSON with marks; raise ValueError if a mark is malformed."""
    if isinstance(value, dict):
        return _revived({key: unmarked(each) for key, each in value.items()})
    return [unmarked(each) for each in value] if isinstance(value, list) else value


def plain_json(value: Any) -> Any:
    """Return data in JSON's types without marks: sets become lists, bytes base64, keys texts."""
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else json.dumps(plain_json(key)): plain_json(each)
            for key, each in value.items()
        }
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain_json(each) for each in value]
    if isinstance(value, (bytes, bytearray)):
        return b2a_base64(value, newline=False).decode("ascii")
    return value


def _revived(found: dict[str, Any]) -> Any:
    """Return what a mark stands for; its contents have already been revived."""
    if len(found) != 1:
        return found
    ((mark, content),) = found.items()
    revive = _REVIVERS.get(mark)
    if revive is None:
        return found
    try:
        return revive(content)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{mark} is malformed: {error}") from None


def _listed(content: Any) -> list[Any]:
    if not isinstance(content, list):
        raise ValueError("it contains no list")
    return content


def _hashable(members: Iterable[Any]) -> None:
    """Refuse members chosen so that a set or dict of them takes minutes to build."""
    counts: dict[int, int] = {}
    for each in members:
        key = hash(each)
        counts[key] = count = counts.get(key, 0) + 1
        if count > MAX_EQUAL_HASHES:
            raise ValueError(f"more than {MAX_EQUAL_HASHES} members have the same hash")


def _set(content: Any) -> set[Any]:
    members = _listed(content)
    _hashable(members)
    return set(members)


def _pairs(content: Any) -> dict[Any, Any]:
    pairs = _listed(content)
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise ValueError("it contains no pairs")
    _hashable(key for key, _ in pairs)
    return dict(pairs)


def _data(content: Any) -> bytes:
    if not isinstance(content, str):
        raise ValueError("it contains no text")
    return a2b_base64(content)


_REVIVERS: dict[str, Callable[[Any], Any]] = {
    "$tuple": lambda content: tuple(_listed(content)),
    "$set": _set,
    "$frozenset": lambda content: frozenset(_set(content)),
    "$bytes": _data,
    "$bytearray": lambda content: bytearray(_data(content)),
    "$dict": _pairs,
}
