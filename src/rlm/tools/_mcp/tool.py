"""A tool of an MCP server: its name, its parameters, its calls and its answers."""

import asyncio
import builtins
import keyword
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from rlm.errors import ToolError
from rlm.tools import _results
from rlm.tools._arguments import DICT_HINT, POSITIONAL
from rlm.tools._function import is_taken, prompt_line
from rlm.tools._mcp.connection import Listed
from rlm.tools._mcp.server import Lease
from rlm.tools._results import cut, one_line, with_notes
from rlm.tools._schemas import Schemas, properties_of, required_of
from rlm.worker import tagged

if TYPE_CHECKING:
    from mcp.types import CallToolResult

__all__ = ["McpTool", "ServerParameters", "free_name", "python_name", "value_of"]

MAX_CHARS = 64
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_]+")
_BUILTINS = frozenset(dir(builtins))


def python_name(name: str, prefix: str = "") -> str:
    """Return the name of a tool in cells, before clashes are resolved; deterministic."""
    plain = _NOT_A_NAME.sub("_", name[: 4 * MAX_CHARS]).strip("_")
    if prefix:
        plain = f"{prefix}_{plain}"
    plain = plain[:MAX_CHARS].rstrip("_") or "tool"
    if plain[0].isdigit():
        plain = f"tool_{plain}"
    if keyword.iskeyword(plain) or plain in _BUILTINS or is_taken(plain):
        plain = f"{plain}_tool"
    return plain


def free_name(name: str, used: Collection[str]) -> str:
    """Return the name, with a number if it is already taken."""
    found, number = name, 2
    while found in used:
        found, number = f"{name}_{number}", number + 1
    return found


MAX_PARAMETERS = 100
MAX_SHOWN_CHARS = 400
MAX_NAME_CHARS = 60


class ServerParameters:
    """The parameters of a tool, required ones first; each by its own name or a Python name."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schemas = Schemas(schema)
        members, needed = properties_of(schema), required_of(schema)
        order = sorted(list(members)[:MAX_PARAMETERS], key=lambda name: name not in needed)
        self._required = [name for name in order if name in needed]
        self._members = {name: members[name] for name in order}
        self._python = _python_names(order)
        more = schema.get("additionalProperties")
        self._takes_more = bool(more) if members else more is not False
        self.shown = self._signature()
        self.notes = {
            python: told
            for python, name in self._python.items()
            if isinstance(told := _member(members[name], "description"), str) and told.strip()
        }

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return arguments by the server's names; TypeError says what does not fit."""
        named = dict(arguments)
        positional = named.pop(POSITIONAL, [])
        if not isinstance(positional, list):
            raise TypeError(f"{POSITIONAL!r} must contain a list of positional arguments")
        if len(positional) > len(self._members):
            raise TypeError(f"it takes {len(self._members)} arguments, not {len(positional)}")
        bound = dict(zip(self._members, positional, strict=False))
        if not positional and self._is_one_dict(named):
            named = {next(iter(self._members)): named}
        for given, value in named.items():
            name = given if given in self._members else self._python.get(given, given)
            if name in bound:
                raise TypeError(f"{one_line(given, MAX_NAME_CHARS)!r} was given twice")
            if name not in self._members and not self._takes_more:
                unknown = one_line(given, MAX_NAME_CHARS)
                raise TypeError(f"unknown argument {unknown!r}{self._hint()}")
            bound[name] = value
        self._check(bound)
        return bound

    def _check(self, bound: dict[str, Any]) -> None:
        for name in self._required:
            if name not in bound:
                raise TypeError(f"{one_line(name, MAX_NAME_CHARS)!r} is missing")
        for name, schema in self._members.items():
            if name in bound and (problem := self._schemas.problem(bound[name], schema)):
                raise TypeError(f"argument {one_line(name, MAX_NAME_CHARS)!r}: {problem}")

    def _is_one_dict(self, named: dict[str, Any]) -> bool:
        """Return whether no name is a parameter and the first parameter takes a dict of them.

        The worker sends a lone dict as named arguments.
        """
        if not named or not self._members:
            return False
        if not named.keys().isdisjoint({*self._members, *self._python}):
            return False
        first = next(iter(self._members.values()))
        return self._takes_dict(first) and self._schemas.problem(named, first) is None

    def _takes_dict(self, schema: Any) -> bool:
        return self._schemas.shown(schema).startswith(("dict", "{"))

    def _hint(self) -> str:
        first = next(iter(self._python.items()), None)
        if first is None or not self._takes_dict(self._members[first[1]]):
            return ""
        return DICT_HINT.format(first[0])

    def _signature(self) -> str:
        shown: list[str] = []
        left = MAX_SHOWN_CHARS
        for python, name in self._python.items():
            text = f"{python}: {self._schemas.shown(self._members[name])}"
            if name not in self._required:
                text += f" = {_default(self._members[name])}"
            left -= len(text)
            if left < 0:
                shown.append("…")
                break
            shown.append(text)
        return f"({', '.join(shown)})"


def _python_names(names: list[str]) -> dict[str, str]:
    """Return a unique Python name for each name; most stay the same."""
    found: dict[str, str] = {}
    for name in names:
        base = _NOT_A_NAME.sub("_", name[:MAX_NAME_CHARS]).strip("_") or "argument"
        if base[0].isdigit():
            base = f"argument_{base}"
        if keyword.iskeyword(base):
            base += "_"
        python, number = base, 2
        while python in found:
            python, number = f"{base}_{number}", number + 1
        found[python] = name
    return found


def _member(schema: Any, key: str) -> Any:
    return schema.get(key) if isinstance(schema, Mapping) else None


def _default(schema: Any) -> str:
    if not isinstance(schema, Mapping) or "default" not in schema:
        return "..."
    return cut(one_line(repr(schema["default"]), 200), 40)


MAX_ERROR_CHARS = 500
_ONLY = "result"


def value_of(result: "CallToolResult", output_schema: Any) -> Any:
    """Return structured content if there is any, else text, else a dict per non-text part."""
    if result.is_error:
        raise ToolError(_complaint(result))
    if "structured_content" in result.model_fields_set and result.structured_content is not None:
        return _results.plain(_unwrapped(result.structured_content, output_schema))
    parts = [_part(each) for each in result.content]
    if all(isinstance(each, str) for each in parts):
        return _results.plain("\n".join(parts)) if parts else None
    return _results.plain(parts[0] if len(parts) == 1 else parts)


def _unwrapped(value: Any, schema: Any) -> Any:
    """Return the value in {"result": …}, which servers put around results that are not objects."""
    listed = schema.get("properties") if isinstance(schema, dict) else None
    is_wrapped = isinstance(listed, dict) and list(listed) == [_ONLY]
    if is_wrapped and isinstance(value, dict) and list(value) == [_ONLY]:
        return value[_ONLY]
    return value


def _part(content: Any) -> Any:
    if content.type == "text":
        return content.text
    return content.model_dump(mode="json", by_alias=True, exclude_none=True)


def _complaint(result: "CallToolResult") -> str:
    texts = [each.text for each in result.content if each.type == "text"]
    return one_line(" ".join(texts), MAX_ERROR_CHARS) or "the server did not say why"


MAX_DESCRIPTION_CHARS = 300


class McpTool:
    """A tool of an MCP server; implements `Tool`. Arguments are checked before anything is sent."""

    def __init__(self, listed: Listed, name: str, lease: Lease) -> None:
        self.name = name
        self._listed = listed
        self._lease = lease
        self._parameters = ServerParameters(listed.input_schema)
        self.usage = f"{name}{self._parameters.shown}{_returned(listed.output_schema)}"
        text = one_line(listed.description, MAX_DESCRIPTION_CHARS)
        text = with_notes(text, self._parameters.notes)
        if listed.name != name:
            text = f"{text} [the server calls it {one_line(listed.name, 60)}]"
        self.description = prompt_line(self.usage, text)

    def __repr__(self) -> str:
        return f"McpTool({self.usage})"

    async def call(self, arguments: dict[str, Any]) -> Any:
        """Call the tool on the server; `{"*": [...]}` holds positional arguments."""
        try:
            bound = self._parameters.bind(tagged.plain_json(arguments))
        except TypeError as error:
            problem = _results.problem(error, arguments)
            raise ToolError(f"{self.name}: {problem}; usage: {self.usage}") from error
        try:
            result = await self._lease.call(self._listed.name, bound)
            return await asyncio.to_thread(value_of, result, self._listed.output_schema)
        except ToolError as error:
            raise ToolError(f"{self.name} failed: {error}") from error.__cause__

    async def release(self) -> None:
        """Release the server; it is closed with its last user."""
        await self._lease.release()


def _returned(schema: Any) -> str:
    if not isinstance(schema, dict):
        return ""
    listed = schema.get("properties")
    if isinstance(listed, dict) and list(listed) == ["result"]:
        return f" -> {Schemas(schema).shown(listed['result'])}"
    return f" -> {Schemas(schema).shown(schema)}"
