"""The tools of an editor's MCP servers: each call is shown, and the user is asked before."""

import asyncio
import itertools
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from acp import RequestError, helpers
from acp.schema import (
    AllowedOutcome,
    HttpMcpServer,
    McpServerStdio,
    PermissionOption,
    SseMcpServer,
    ToolCallUpdate,
)

from recursivelm_acp.updates import UpdateQueue, clean, cut
from rlm.errors import ConfigError, RLMError, ToolError
from rlm.protocols import ReleasableTool, Tool
from rlm.tools import McpServer, as_tools, mcp

__all__ = ["AskingTool", "Gate", "Request", "tools_of"]

OPTIONS = [
    PermissionOption(option_id="allow_once", name="Allow", kind="allow_once"),
    PermissionOption(option_id="allow_always", name="Always allow", kind="allow_always"),
    PermissionOption(option_id="reject_once", name="Reject", kind="reject_once"),
    PermissionOption(option_id="reject_always", name="Always reject", kind="reject_always"),
]
MAX_SERVERS = 32
MAX_ASKED_CHARS = 200_000
"""The user can't judge what is not shown."""

Request = Callable[[ToolCallUpdate, list[PermissionOption]], Awaitable[Any]]
"""Asks the client for a permission; it returns a RequestPermissionResponse."""


class Gate:
    """Asks the user before a tool is called, one question at a time, and remembers `always`."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._always: dict[str, bool] = {}
        self._one = asyncio.Lock()
        self._numbers = itertools.count(1)
        self.updates: UpdateQueue | None = None
        """Those of the prompt that is being answered; without one, nothing is allowed."""

    def next_id(self, name: str) -> str:
        return f"tool-{next(self._numbers)}-{name}"

    def asks(self, name: str) -> bool:
        """Return whether the user is asked before this tool is called."""
        return name not in self._always

    async def allows(self, name: str, call_id: str, content: list[Any]) -> bool:
        async with self._one:
            if name in self._always:
                return self._always[name]
            if self.updates is None:
                return False
            await self.updates.flush()
            try:
                update = ToolCallUpdate(
                    tool_call_id=call_id, title=name, kind="other", content=content
                )
                outcome = (await self._request(update, OPTIONS)).outcome
            except (RequestError, ConnectionError, ValueError):
                return False  # No answer, or one that can't be understood, is no permission.
            chosen = outcome.option_id if isinstance(outcome, AllowedOutcome) else "reject_once"
            if chosen in ("allow_always", "reject_always"):
                self._always[name] = chosen == "allow_always"
            return chosen in ("allow_once", "allow_always")


class AskingTool:
    """Implements `rlm.protocols.Tool`: another tool, called only with the user's permission.

    What a server says about its tools is not trusted, so those that call themselves read-only are
    asked for, too.
    """

    def __init__(self, tool: Tool, gate: Gate) -> None:
        self.name, self.description = tool.name, tool.description
        self._tool = tool
        self._gate = gate

    async def call(self, arguments: dict[str, Any]) -> Any:
        """Ask, call, and show both."""
        call_id = self._gate.next_id(self.name)
        text = f"{self.name}({_listed(arguments)})"
        if self._gate.asks(self.name) and len(text) > MAX_ASKED_CHARS:
            raise ToolError(
                f"the arguments of {self.name} are too long to show to the user, who must allow "
                f"it: at most {MAX_ASKED_CHARS:,} characters"
            )
        shown = text if self._gate.asks(self.name) else cut(text)
        content = [helpers.tool_content(helpers.text_block(clean(shown)))]
        self._put(
            helpers.start_tool_call(
                call_id, self.name, kind="other", status="pending", content=content
            )
        )
        status: Any = "failed"
        try:
            if not await self._gate.allows(self.name, call_id, content[:1]):
                content.append(helpers.tool_content(helpers.text_block("It was not allowed.")))
                raise ToolError(f"the user did not allow {self.name}: continue without it")
            self._put(helpers.update_tool_call(call_id, status="in_progress"))
            result = await self._tool.call(arguments)
            content.append(helpers.tool_content(helpers.text_block(clean(cut(str(result))))))
            status = "completed"
            return result
        except ToolError as error:
            if len(content) == 1:
                content.append(helpers.tool_content(helpers.text_block(clean(cut(str(error))))))
            raise
        finally:
            self._put(helpers.update_tool_call(call_id, status=status, content=content))

    async def release(self) -> None:
        if isinstance(self._tool, ReleasableTool):
            await self._tool.release()

    def _put(self, update: Any) -> None:
        if self._gate.updates is not None:
            self._gate.updates.put(update)


def _listed(arguments: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())


class _Named(NamedTuple):
    name: str
    server: McpServer


class _Opened(NamedTuple):
    server: McpServer
    tools: list[Tool]


async def tools_of(
    servers: Sequence[Any], cwd: str, gate: Gate
) -> tuple[list[AskingTool], list[str]]:
    """Start the MCP servers of a session; return their tools, and what went wrong with others."""
    if len(servers) > MAX_SERVERS:
        raise RequestError(-32602, f"a session can have at most {MAX_SERVERS} MCP servers")
    made, problems = list[AskingTool](), list[str]()
    used: set[str] = set()
    opening = list[asyncio.Task[_Opened | str]]()
    try:
        async with asyncio.TaskGroup() as group:
            opening += [group.create_task(_opened(each, cwd)) for each in servers]
    except BaseException:
        for task in opening:
            failed = task.cancelled() or task.exception() is not None
            if not failed and isinstance(ready := task.result(), _Opened):
                await asyncio.shield(ready.server.aclose())
        raise
    for each, task in zip(servers, opening, strict=True):
        found = task.result()
        if isinstance(found, str):
            problems.append(found)
            continue
        tools = found.tools
        taken = [tool.name for tool in tools if tool.name in used]
        if taken:
            problems.append(
                f"Two MCP servers have a tool {taken[0]}: {each.name[:100]!r} is left out."
            )
            await found.server.aclose()
            continue
        used.update(tool.name for tool in tools)
        made += [AskingTool(tool, gate) for tool in tools]
    return made, problems


async def _opened(given: Any, cwd: str) -> "_Opened | str":
    """Start a server and list its tools, or return what went wrong."""
    try:
        named = _server(given, cwd)
    except RLMError as error:
        return f"The MCP server {given.name[:100]!r} is left out: {error}"
    try:
        await named.server.open()
        tools, _ = await asyncio.to_thread(as_tools, {named.name: named.server})
    except (RLMError, OSError) as error:
        return f"The MCP server {given.name[:100]!r} is left out: {error}"
    except BaseException:
        await asyncio.shield(named.server.aclose())
        raise
    return _Opened(named.server, list(tools))


def _server(given: Any, cwd: str) -> _Named:
    name = re.sub(r"\W", "_", given.name, flags=re.ASCII).strip("_")[:40] or "server"
    name = f"mcp_{name}" if name[0].isdigit() else name
    if isinstance(given, McpServerStdio):
        env = {each.name: each.value for each in given.env}
        return _Named(name, mcp([given.command, *given.args], env=env, cwd=cwd))
    if isinstance(given, HttpMcpServer | SseMcpServer):
        headers = {each.name: each.value for each in given.headers}
        is_old = isinstance(given, SseMcpServer)
        return _Named(name, mcp(given.url, headers=headers, transport="sse" if is_old else "http"))
    raise ConfigError("only stdio, http and sse are supported")
