"""Read open files and iterators within bounds, and explain values that are no context."""

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from rlm.errors import ConfigError

__all__ = ["advice_for", "is_open_file", "read_file", "read_items"]

MAX_READ_CHARS = 256 << 20
"""How much of an open file or iterator is read: unlike a `Path`, it is held in memory."""
MAX_ITEMS = 1_000_000
READ_AT_ONCE = 1 << 20


def is_open_file(value: object) -> bool:
    """Return whether a value can be read: a file, a pipe, a response."""
    return callable(getattr(value, "read", None)) and not isinstance(value, type)


def read_file(value: Any) -> str | bytes:
    """Return the rest of an open file, as text or bytes according to its mode."""
    name = f"the open file {getattr(value, 'name', '')!s}".strip()
    parts: list[Any] = []
    size = 0
    try:
        while part := value.read(READ_AT_ONCE):
            if not isinstance(part, str | bytes) or (parts and type(part) is not type(parts[0])):
                raise ConfigError(f"{name} reads as {type(part).__name__}, not as text or bytes")
            parts.append(part)
            size += len(part)
            _check_size(size, name)
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{name} is not {error.encoding}: open it with its encoding=, or pass its Path"
        ) from error
    except (OSError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{name} can't be read: {error}") from error
    return type(parts[0])().join(parts) if parts else ""


def read_items(value: Iterator[Any]) -> list[Any]:
    """Return the items of an iterator; they become the items of a list."""
    items: list[Any] = []
    size = 0
    name = f"the {type(value).__name__}"
    for item in value:
        items.append(item)
        size += len(item) if isinstance(item, str) else len(json.dumps(item, default=repr))
        _check_size(size, name)
        if len(items) > MAX_ITEMS:
            raise ConfigError(
                f"{name} yields more than {MAX_ITEMS:,} items; write them to a file, one per line, "
                "and pass its Path"
            )
    return items


def _check_size(size: int, name: str) -> None:
    if size > MAX_READ_CHARS:
        raise ConfigError(
            f"{name} contains more than {MAX_READ_CHARS:,} characters; write it to a file and pass "
            "its Path, which is not kept in memory"
        )


def advice_for(value: object) -> str:
    """Return what to write instead of a value that is, or contains, something that is no context.

    Return "" if there is no advice.
    """
    inside = [value]
    if isinstance(value, (list, tuple)):
        inside = list(value)
    elif isinstance(value, Mapping):
        inside = list(value.values())
    return next(filter(None, map(_advice_for_one, inside)), "")


def _advice_for_one(value: object) -> str:
    name = type(value).__name__
    if isinstance(value, AsyncIterator):
        return f"{name} is asynchronous: read it first, and pass a list"
    if isinstance(value, (set, frozenset)):
        return f"pass a {name} as a list, sorted(values)"
    for methods, advice in _ADVICE:
        if all(callable(getattr(value, method, None)) for method in methods):
            return f"{advice.format(name=name)}; see docs/guides/contexts.md"
    return ""


_ADVICE = (
    (
        ("to_frame", "to_list"),
        "pass a {name} as a table, values.to_frame(), or as a list, values.to_list()",
    ),
    (
        ("to_csv", "to_dict"),
        "pass a {name} as text, df.to_csv(index=False), or as a list, df.to_dict('records')",
    ),
    (("write_csv", "to_dicts"), "pass a {name} as text, df.write_csv(), or as df.to_dicts()"),
    (("to_pylist",), "pass a {name} as a list, table.to_pylist()"),
    (("tolist",), "pass a {name} as a list, values.tolist()"),
    (("to_list",), "pass a {name} as a list, values.to_list()"),
    (("collect", "lazy"), "collect a {name} first, and pass the frame: df.collect()"),
    (("model_dump",), "pass a {name} as a dict, value.model_dump(mode='json')"),
)
"""Methods that identify a value without importing its library, and what to write instead."""
