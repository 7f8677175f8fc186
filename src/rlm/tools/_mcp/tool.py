"""One tool of a server, as cells see it."""

import asyncio
from typing import Any

from rlm.errors import ToolError
from rlm.tools import _results
from rlm.tools._function import prompt_line
from rlm.tools._mcp.answers import value_of
from rlm.tools._mcp.listing import Listed
from rlm.tools._mcp.parameters import ServerParameters
from rlm.tools._mcp.server import Lease
from rlm.tools._shapes import Schemas
from rlm.tools._texts import one_line, with_notes

__all__ = ["McpTool"]

MOST_DESCRIPTION_CHARS = 300


class McpTool:
    """Implements `rlm.protocols.Tool`. Arguments are checked here, before anything is sent."""

    def __init__(self, listed: Listed, name: str, lease: Lease) -> None:
        self.name = name
        self._listed = listed
        self._lease = lease
        self._parameters = ServerParameters(listed.input_schema)
        self.usage = f"{name}{self._parameters.shown}{_returned(listed.output_schema)}"
        text = one_line(listed.description, MOST_DESCRIPTION_CHARS)
        text = with_notes(text, self._parameters.notes)
        if listed.name != name:
            text = f"{text} [the server calls it {one_line(listed.name, 60)}]"
        self.description = prompt_line(self.usage, text)

    def __repr__(self) -> str:
        return f"McpTool({self.usage})"

    async def call(self, arguments: dict[str, Any]) -> Any:
        """Call it at the server; `{"*": [...]}` holds positional arguments."""
        try:
            bound = self._parameters.bind(arguments)
        except TypeError as error:
            problem = _results.problem(error, arguments)
            raise ToolError(f"{self.name}: {problem}; usage: {self.usage}") from error
        try:
            result = await self._lease.call(self._listed.name, bound)
            return await asyncio.to_thread(value_of, result, self._listed.output_schema)
        except ToolError as error:
            raise ToolError(f"{self.name} failed: {error}") from error.__cause__

    async def release(self) -> None:
        """Its user is done; the last one's server is closed."""
        await self._lease.release()


def _returned(schema: Any) -> str:
    if not isinstance(schema, dict):
        return ""
    listed = schema.get("properties")
    if isinstance(listed, dict) and list(listed) == ["result"]:
        return f" -> {Schemas(schema).shown(listed['result'])}"
    return f" -> {Schemas(schema).shown(schema)}"
