"""What sandboxed code may call by name: functions and objects of the program, and MCP tools.

`FunctionTool` makes a tool of a function, `ObjectTool` of an object and its methods, and `mcp`
stands for all tools of a server; `as_tools` accepts what callers pass as tools. Data may be passed
too: it becomes variables in the REPL.
"""

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from rlm.errors import ConfigError
from rlm.protocols import ReleasableTool, Tool
from rlm.tools._function import FunctionTool, checked_name, prompt_line
from rlm.tools._mcp import McpServer, mcp, tools_of_all
from rlm.tools._objects import ObjectTool, has_methods, is_data, is_data_class, refusal
from rlm.worker import tagged

__all__ = [
    "FunctionTool",
    "McpServer",
    "ObjectTool",
    "as_tools",
    "describe_values",
    "mcp",
    "release_tools",
]


def as_tools(given: Any) -> tuple[tuple[Tool, ...], dict[str, Any]]:
    """Return the tools and the REPL variables that a caller passed.

    `given` is None, a list of functions, Tool objects or servers, or a dict from names to these, to
    objects, data, or {"tool": any of them, "description": text, "expose": names}. An object comes
    with a tool for each of its methods, `name.method`. The name of a server is put before the names
    of its tools; a name that is taken gets a number. Call `release_tools` when done.
    """
    tools: dict[str, Tool] = {}
    entries = _entries(given)
    values = _values(entries)
    for name, entry, description in entries:
        for made in _tools(name, entry, description):
            if made.name in tools:
                raise ConfigError(f"two tools are named {made.name!r}")
            tools[made.name] = made
    servers: list[tuple[str, McpServer]] = []
    for name, entry, description in entries:
        if isinstance(entry, McpServer):
            if description is not None:
                raise ConfigError(f"{name!r}: a server's tools have their own descriptions")
            servers.append(("" if name is None else checked_name(name), entry))
    theirs = tools_of_all(servers, {*tools, *values})
    return (*tools.values(), *theirs), values


async def release_tools(tools: Iterable[Tool]) -> None:
    """Close the servers behind these tools, except those still used elsewhere."""
    for tool in tools:
        if isinstance(tool, ReleasableTool):
            await tool.release()


def describe_values(given: Any) -> tuple[str, ...]:
    """Return one line per value for the prompt, such as `` `LIMIT` (int): text ``."""
    entries = _entries(given)
    values = _values(entries)
    texts = {name: text for name, _, text in entries}
    lines = []
    for name, value in values.items():
        text = " ".join((texts[name] or "").split())
        lines.append(f"`{name}` ({type(value).__name__})" + (f": {text}" if text else ""))
    return tuple(lines)


def _entries(given: Any) -> list[tuple[str | None, Any, str | None]]:
    """Return (name, function or value, description) for everything passed; lists give no names."""
    if given is None:
        return []
    if isinstance(given, Mapping):
        return [(name, *_unwrapped(name, entry)) for name, entry in given.items()]
    if not isinstance(given, Sequence) or isinstance(given, str | bytes | bytearray):
        kind = type(given).__name__
        raise ConfigError(f"tools must be a list of functions or a dict by name, not {kind}")
    for index, entry in enumerate(given):
        if not callable(entry) and not _is_tool(entry) and not isinstance(entry, McpServer):
            kind = type(entry).__name__
            raise ConfigError(
                f"tools[{index}] is {kind}, not a function; to pass values, use a dict with names"
            )
    return [(None, entry, None) for entry in given]


def _values(entries: list[tuple[str | None, Any, str | None]]) -> dict[str, Any]:
    """Return the entries that are data, by name."""
    return {checked_name(name): entry for name, entry, _ in entries if _is_value(entry, name)}


def _unwrapped(name: Any, entry: Any) -> tuple[Any, str | None]:
    wrapped = isinstance(entry, Mapping) and "tool" in entry
    if not wrapped or not entry.keys() <= {"tool", "description", "expose"}:
        return entry, None
    tool, description, expose = entry["tool"], entry.get("description"), entry.get("expose")
    if description is not None and not isinstance(description, str):
        raise ConfigError(f"tool {name!r}: the description must be a str")
    if expose is None:
        return tool, description
    if inspect.isroutine(tool) or isinstance(tool, McpServer) or _is_tool(tool):
        raise ConfigError(f"tool {name!r}: expose works only for objects, modules and classes")
    return ObjectTool(tool, name=name, description=description, expose=expose), None


def _tools(name: str | None, entry: Any, description: str | None) -> Iterator[Tool]:
    """Yield the tools that an entry means; none if it is data or a server."""
    if isinstance(entry, McpServer) or _is_value(entry, name):
        return
    if isinstance(entry, ObjectTool):
        yield from entry.renamed(name, description).tools
    elif _is_tool(entry):
        renamed = name not in (None, entry.name) or description is not None
        tool: Tool = _Named(entry, name, description) if renamed else entry
        _check_tool_name(tool.name)
        yield tool
    elif isinstance(entry, ModuleType) or (isinstance(entry, type) and not is_data_class(entry)):
        raise refusal(checked_name(entry.__name__ if name is None else name), entry)
    elif callable(entry) and not has_methods(entry):
        yield FunctionTool(entry, name=name, description=description)
    else:
        yield from ObjectTool(entry, name=name, description=description).tools


def _check_tool_name(name: Any) -> None:
    """Check the name of a Tool; a recorded one may be a member, `object.method`."""
    owner, dot, member = str(name).partition(".")
    checked_name(owner if dot else name)
    if dot and (not member.isidentifier() or member.startswith("_")):
        raise ConfigError(f"a tool can't be named {name!r}: it must be a Python name")


def _is_value(entry: Any, name: str | None) -> bool:
    """Return whether an entry is data; a container that holds something else is refused."""
    if isinstance(entry, McpServer) or callable(entry) or _is_tool(entry):
        return False
    if is_data(entry):
        return True
    if not isinstance(entry, list | tuple | dict | set | frozenset):
        return False
    try:
        tagged.marked(entry)
    except TypeError as error:
        raise ConfigError(f"tool {name!r} contains something that is not data: {error}") from None
    except RecursionError:
        raise ConfigError(f"tool {name!r} refers to itself or is nested too deeply") from None
    return True


class _Named:
    """Another tool under the name and description that a dict gives it."""

    def __init__(self, tool: Tool, name: str | None, description: str | None) -> None:
        self.name = tool.name if name is None else name
        self.description = tool.description.replace(f"`{tool.name}", f"`{self.name}", 1)
        if description is not None:
            usage = self.description.removeprefix("`").partition("`")[0]
            known = usage.partition("(")[0] == self.name
            self.description = prompt_line(usage if known else self.name, description)
        self._tool = tool

    async def call(self, arguments: dict[str, Any]) -> Any:
        return await self._tool.call(arguments)

    async def release(self) -> None:
        await release_tools([self._tool])


def _is_tool(entry: Any) -> bool:
    texts = (getattr(entry, "name", None), getattr(entry, "description", None))
    is_class = isinstance(entry, type)
    return not is_class and callable(getattr(entry, "call", None)) and all(map(_is_text, texts))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)
