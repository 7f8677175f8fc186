"""Contexts for monty: the value of a stored context, unless monty can't hold it."""

import json
from typing import Any

from rlm.errors import SessionError
from rlm.protocols import ContextSource

__all__ = ["MOST_BYTES", "Misfit", "context_value"]

MOST_BYTES = 192 << 20
"""Frames to a worker hold 256 MiB, and values take more room in them than by themselves."""

_CHUNK_BYTES = 1 << 20


class Misfit(Exception):
    """The context needs another environment; the text says why."""


def context_value(context: ContextSource, most_bytes: int) -> Any:
    """The value itself; it is copied into the worker, so it must not be large."""
    size = context.size_bytes
    if size > most_bytes:
        raise Misfit(f"it has {size:,} bytes, and at most {most_bytes:,} are copied into monty")
    data = b"".join(context.chunks(_CHUNK_BYTES))
    if context.kind == "bytes":
        return data
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise Misfit("its text holds lone surrogates, which monty has not") from None
    if context.kind == "text":
        return text
    return _from_json(text)


def _from_json(text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SessionError(f"a context could not be loaded: {error}") from None
    if "\\ud" in text.lower() and not _is_sendable(value):
        raise Misfit("its text holds lone surrogates, which monty has not")
    return value


def _is_sendable(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
