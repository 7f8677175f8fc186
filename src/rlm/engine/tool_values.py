"""The arguments and results of tools: on their way from a cell to the tool, and back."""

import asyncio
import json
from typing import Any

from rlm._util.off_loop import LONG_CHARS
from rlm._util.own_exits import is_failure, named
from rlm.errors import CallRefused, ToolError
from rlm.protocols import Tool
from rlm.worker import tagged

__all__ = ["called", "decoded_arguments", "encoded_result"]


async def called(tool: Tool, values: dict[str, Any]) -> Any:
    """Return what a tool returns; if it raised something to end its task, raise ToolError."""
    task = asyncio.current_task()
    try:
        return await tool.call(values)
    except BaseException as error:
        if isinstance(error, Exception) or not is_failure(error, task):
            raise
        raise ToolError(f"{tool.name} failed: {named(error)}") from error


async def decoded_arguments(given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the arguments of a tool as canonical JSON, and as values; large ones in a thread."""
    if any(isinstance(each, list | dict) or _is_long(each) for each in given.values()):
        return await asyncio.to_thread(_both_forms, given)
    return _both_forms(given)


def _both_forms(given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    try:
        values = {name: tagged.unmarked(each) for name, each in given.items()}
    except ValueError as error:
        raise CallRefused(
            f"an argument of the tool could not be read: {error}", limit="kind"
        ) from None
    return json.dumps(given, sort_keys=True), values


async def encoded_result(value: Any) -> str:
    """Return the result of a tool as the worker reads it; a large one is encoded in a thread."""
    if isinstance(value, list | tuple | dict | set | frozenset) or _is_long(value):
        return await asyncio.to_thread(tagged.dumps, value)
    return tagged.dumps(value)


def _is_long(value: Any) -> bool:
    return isinstance(value, str) and len(value) > LONG_CHARS
