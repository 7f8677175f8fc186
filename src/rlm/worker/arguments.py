"""Converts the arguments that cells pass to calls to the form in which they are sent."""

from __future__ import annotations

import json

__all__ = [
    "chunk_text",
    "context_kind",
    "context_text",
    "plain_schema",
    "positive",
    "several",
    "tool_names",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


def several(items: Iterable[Any]) -> list[Any]:
    """Return the items of a batch; refuse a single text, which would become a list of letters."""
    if isinstance(items, (str, bytes, dict)):
        raise TypeError(f"expected a list with one item per call, not one {type(items).__name__}")
    return list(items)


def positive(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be an integer of at least 1, not {value!r}")
    return value


def plain_schema(schema: Any) -> Any:
    """Return a schema as JSON, with the names of types in place of types such as `int`."""
    if isinstance(schema, type):
        return schema.__name__
    if isinstance(schema, dict):
        return {str(name): plain_schema(each) for name, each in schema.items()}
    if isinstance(schema, (list, tuple, set)):
        return [plain_schema(each) for each in schema]
    if schema is None or isinstance(schema, (str, int, float, bool)):
        return schema
    return str(schema)


def tool_names(tools: Iterable[Any] | None) -> list[str] | None:
    """Return the names of a child's tools, given as names or as functions of the REPL."""
    if tools is None:
        return None
    if isinstance(tools, (str, bytes)) or callable(tools):
        raise TypeError('tools must be a list, such as tools=["search"]; [] gives a child none')
    names = []
    for each in tools:
        name = each if isinstance(each, str) else getattr(each, "__name__", None)
        if not isinstance(name, str):
            raise TypeError("tools must contain names of tools, or the tools themselves")
        names.append(name)
    return names


def context_kind(context: Any) -> dict[str, str] | None:
    if context is None:
        return None
    if _source_id(context) is not None:
        return {"kind": "source"}
    return {"kind": "text" if isinstance(context, str) else "json"}


def context_text(context: Any) -> str:
    """Return the text of a context, or the id of its source if it stays on the host."""
    source_id = _source_id(context)
    if source_id is not None:
        return source_id
    return context if isinstance(context, str) else json.dumps(context, ensure_ascii=False)


def _source_id(context: Any) -> str | None:
    """Return the id of a context's source; None if the context is not on the host."""
    return getattr(context, "_source_id", None)


def chunk_text(chunk: Any) -> str:
    """Return the text of a chunk from `ctx.chunk`, or of anything else."""
    if isinstance(chunk, tuple) and len(chunk) == 3 and isinstance(chunk[2], str):
        return chunk[2]
    return str(chunk)
