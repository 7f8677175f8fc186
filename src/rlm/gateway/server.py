"""The gateway as an MCP server: tools in, structured results out."""

import json
import logging
from collections.abc import Callable
from typing import Any

from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity

from rlm.errors import RLMError
from rlm.gateway.callers import RepliesNeeded
from rlm.gateway.errors import Refused
from rlm.gateway.gateway import Gateway
from rlm.gateway.sampling import SdkCaller, input_required
from rlm.gateway.tools import TOOLS, ToolEntry, answer_schema_of, read_request, schema_of

__all__ = ["make_server"]

NAME = "rlm-gateway"
INSTRUCTIONS = (
    "Bounded access to files: create a session, list or search, read spans by handle. Answers are "
    "short on purpose; follow next_cursor. `left` is what the session may still use."
)
STATE_SECONDS = 1_800.0
"""How long a client may take to answer a round; a person may have to approve it."""

_SESSION_NAMES = {"session": "session_id"}
_log = logging.getLogger(__name__)

Principal = Callable[[Any], str]
"""Returns the principal of a request, from its context."""


def make_server(gateway: Gateway, principal_of: Principal, version: str = "") -> "Server[Any]":
    """Return a server of the SDK, ready for any of its transports."""
    entries = {entry.name: entry for entry in TOOLS}
    listed = types.ListToolsResult(tools=[_tool(entry) for entry in TOOLS])

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return listed

    async def call_tool(
        context: Any, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        entry = entries.get(params.name)
        if entry is None:
            return _failure(f"there is no tool {params.name[:100]!r}; tools: {', '.join(entries)}")
        return await _answer(gateway, entry, principal_of, context, params)

    server: Server[Any] = Server(
        NAME,
        version=version,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    boundary = RequestStateBoundary(
        RequestStateSecurity.ephemeral(ttl=STATE_SECONDS), default_audience=NAME
    )
    server.middleware.append(boundary)
    return server


async def _answer(
    gateway: Gateway,
    entry: ToolEntry,
    principal_of: Principal,
    context: Any,
    params: types.CallToolRequestParams,
) -> types.CallToolResult | types.InputRequiredResult:
    """Answer one request.

    Whatever happens, the client gets a clean answer, and the rest goes to the log.
    """
    try:
        arguments = read_request(entry, params.arguments or {})
        named = {_SESSION_NAMES.get(name, name): value for name, value in arguments.items()}
        if entry.takes_caller:
            named["caller"] = SdkCaller(context, params)
        answer = getattr(gateway, entry.method)(principal_of(context), **named)
        found = answer if isinstance(answer, dict) else await answer
        return input_required(found) if isinstance(found, RepliesNeeded) else _success(found)
    except Refused as refusal:
        return _failure(str(refusal))
    except Exception as error:  # noqa: BLE001 - the boundary: one bug must not end the others
        _log.warning("%s failed: %s", entry.name, error, exc_info=not _is_expected(error))
        return _failure("the request failed; the operator's log says why")


def _is_expected(error: Exception) -> bool:
    return isinstance(error, RLMError | OSError)


def _tool(entry: ToolEntry) -> types.Tool:
    return types.Tool(
        name=entry.name,
        description=entry.description,
        input_schema=schema_of(entry),
        output_schema=answer_schema_of(entry),
        annotations=_annotations(entry),
    )


def _annotations(entry: ToolEntry) -> types.ToolAnnotations:
    """Return hints; a read-only tool needs no hint about destruction."""
    if entry.reads_only:
        return types.ToolAnnotations(read_only_hint=True)
    return types.ToolAnnotations(read_only_hint=False, destructive_hint=False)


def _success(answer: dict[str, Any]) -> types.CallToolResult:
    """Return structured content, and the same as text for clients that only know text."""
    text = types.TextContent(type="text", text=json.dumps(answer, ensure_ascii=False))
    return types.CallToolResult(content=[text], structured_content=answer)


def _failure(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)
