"""What callers hand in becomes a stored context. It blocks, and may run in any thread."""

import json
from os import PathLike, fsdecode
from pathlib import Path
from typing import Any

from rlm.context.describe import describe
from rlm.context.fileset import FileSet
from rlm.context.gathering import gather_folder, gather_paths, gather_set
from rlm.context.joining import store_files
from rlm.context.opening import is_folder
from rlm.context.parts import wire
from rlm.context.reading import store_file
from rlm.context.stored import StoredContext
from rlm.errors import ConfigError

__all__ = ["ContextValue", "StoredContext", "store_context"]

ContextValue = (
    str
    | bytes
    | bytearray
    | memoryview
    | list[Any]
    | tuple[Any, ...]
    | dict[str, Any]
    | PathLike[Any]
    | FileSet
    | None
)
"""A `str` is always text, never a path; files are `Path` objects, lists of those, or `files(…)`."""


def store_context(value: ContextValue) -> StoredContext:
    """Store what the caller handed in; None is an empty text."""
    if value is None:
        value = ""
    if isinstance(value, str):
        return StoredContext("text", wire(value), describe(value))
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
        return StoredContext("bytes", data, describe(data))
    if isinstance(value, PathLike):
        path = Path(fsdecode(value))
        return store_files(gather_folder(path)) if is_folder(path) else store_file(path)
    if isinstance(value, FileSet):
        return store_files(gather_set(value))
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], PathLike):
        return store_files(gather_paths(_paths(value)))
    return _store_json(value)


def _paths(values: list[Any] | tuple[Any, ...]) -> list[Path]:
    for value in values:
        if not isinstance(value, PathLike):
            raise ConfigError(f"a list of files may hold only paths, not {type(value).__name__}")
    return [Path(fsdecode(value)) for value in values]


def _store_json(value: Any) -> StoredContext:
    try:
        data = wire(json.dumps(value, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"a context must be text, bytes, files, or lists and dicts that JSON can hold: {error}"
        ) from error
    return StoredContext("json", data, describe(value))
