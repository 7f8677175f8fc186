"""The gateway as an MCP server: tools in, structured results out, nothing of its own to decide."""

import json
import logging
from collections.abc import Callable
from typing import Any

from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity

from rlm.errors import RLMError
from rlm.gateway.gateway import Gateway
from rlm.gateway.refusals import Refused
from rlm.gateway.requests import TOOLS, ToolEntry, read_request, schema_of

__all__ = ["make_server"]

NAME = "rlm-gateway"
INSTRUCTIONS = (
    "Bounded access to files: create a session, list or search, read spans by handle. Answers are "
    "short on purpose; follow next_cursor. `left` tells what the session may still use."
)
_SESSION_NAMES = {"session": "session_id"}
_log = logging.getLogger(__name__)

Principal = Callable[[Any], str]
"""Who sends a request, found in its context."""


def make_server(gateway: Gateway, principal_of: Principal, version: str = "") -> "Server[Any]":
    """A server of the SDK, ready for any of its transports."""
    entries = {entry.name: entry for entry in TOOLS}
    listed = types.ListToolsResult(tools=[_tool(entry) for entry in TOOLS])

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return listed

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        entry = entries.get(params.name)
        if entry is None:
            return _failure(f"there is no tool {params.name[:100]!r}; tools: {', '.join(entries)}")
        try:
            arguments = read_request(entry, params.arguments or {})
            return _success(await _call(gateway, entry, principal_of(context), arguments))
        except Refused as refusal:
            return _failure(str(refusal))
        except (RLMError, OSError) as error:
            _log.warning("%s failed: %s", entry.name, error)
            return _failure("it could not be done; the operator's log says why")

    server: Server[Any] = Server(
        NAME,
        version=version,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    boundary = RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=NAME)
    server.middleware.append(boundary)
    return server


async def _call(
    gateway: Gateway, entry: ToolEntry, principal: str, arguments: dict[str, Any]
) -> dict[str, Any]:
    named = {_SESSION_NAMES.get(name, name): value for name, value in arguments.items()}
    answer = getattr(gateway, entry.method)(principal, **named)
    found: dict[str, Any] = answer if isinstance(answer, dict) else await answer
    return found


def _tool(entry: ToolEntry) -> types.Tool:
    return types.Tool(
        name=entry.name,
        description=entry.description,
        input_schema=schema_of(entry),
        annotations=types.ToolAnnotations(
            read_only_hint=entry.reads_only, destructive_hint=False, open_world_hint=False
        ),
    )


def _success(answer: dict[str, Any]) -> types.CallToolResult:
    """Structured, and the same as text for clients that know no other."""
    text = types.TextContent(type="text", text=json.dumps(answer, ensure_ascii=False))
    return types.CallToolResult(content=[text], structured_content=answer)


def _failure(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)
