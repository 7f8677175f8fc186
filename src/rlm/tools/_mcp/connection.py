"""A live connection to an MCP server, and the list of its tools."""

import asyncio
import contextlib
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rlm.errors import ConfigError, ToolError
from rlm.tools._mcp.address import Address
from rlm.tools._mcp.transports import LastWords, connected
from rlm.tools._results import one_line

if TYPE_CHECKING:
    from mcp import Client, MCPError
    from mcp.types import CallToolResult

__all__ = ["Connection", "Listed", "chosen", "list_tools"]

MAX_TOOLS = 128
"""The most tools of one server in one RLM; each takes a line in every prompt."""

MAX_LISTED = 10_000
MAX_PAGES = 200


class Listed(Struct, frozen=True):
    """A tool as its server describes it; none of it is trusted."""

    name: str
    description: str
    input_schema: dict[str, Any]
    output_schema: Any


async def list_tools(client: "Client") -> dict[str, Listed]:
    """Return all tools of a server by name; if several share a name, the first."""
    found: dict[str, Listed] = {}
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor, cache_mode="bypass")
        for tool in page.tools:
            listed = Listed(
                tool.name, tool.description or "", tool.input_schema, tool.output_schema
            )
            found.setdefault(tool.name, listed)
        if len(found) > MAX_LISTED:
            raise ConfigError(f"it offers more than {MAX_LISTED:,} tools")
        cursor = page.next_cursor
        if not cursor:
            return found
    raise ConfigError(f"its list of tools does not end after {MAX_PAGES} pages")


def chosen(
    listed: dict[str, Listed], only: Sequence[str] | None, without: Sequence[str]
) -> list[Listed]:
    """Return the tools that the caller wants; ConfigError if there are none or too many."""
    names = ", ".join(one_line(name, 60) for name in sorted(listed)[:20]) or "none"
    for name in (*(only or ()), *without):
        if name not in listed:
            raise ConfigError(f"it has no tool {name!r}; tools: {names}")
    kept = [
        tool
        for name, tool in listed.items()
        if (only is None or name in only) and name not in without
    ]
    if not kept:
        raise ConfigError(f"none of its tools remain: {names}")
    if len(kept) > MAX_TOOLS:
        raise ConfigError(
            f"it offers {len(kept):,} tools, but a model is shown at most {MAX_TOOLS}: choose with "
            f"only=[...]; it has {names} …"
        )
    return kept


MAX_REASON_CHARS = 300
LAST_WORDS_SECONDS = 3.0
CLOSED = "Connection closed"
SESSION_OVER = "Session terminated"
"""The SDK's message when a server has forgotten a session; nothing was executed."""


class Connection:
    """A connection to a server. All of it happens on one event loop."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._opened: asyncio.Future[Client] | None = None
        self._task: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._is_stale = False
        self._reason = ""
        self._words = LastWords()
        self.listed: dict[str, Listed] = {}

    async def opened(self) -> "Client":
        """Return the client once the server answers; restart a server that has ended."""
        while self._task is not None and self._over.is_set() and not self._task.done():
            await asyncio.wait({self._task})
        if self._task is None or self._task.done() or self._opened is None:
            self._opened = asyncio.get_running_loop().create_future()
            self._over = asyncio.Event()
            self._task = asyncio.create_task(self._live(self._opened, self._over))
        client = await asyncio.shield(self._opened)
        if self._is_stale:
            self._is_stale = False
            async with asyncio.timeout(self._address.start_seconds):
                self.listed = await list_tools(client)
        return client

    async def call(self, name: str, arguments: dict[str, Any], seconds: float) -> "CallToolResult":
        """Call a tool; cancellation and timeouts cancel it at the server too."""
        from mcp import MCPError

        client = await self._for_call(name)
        try:
            return await self._sent(client, name, arguments, seconds)
        except MCPError as error:
            if error.message != SESSION_OVER:
                raise ToolError(await self._told(error)) from error
        await self.close()
        try:
            return await self._sent(await self._for_call(name), name, arguments, seconds)
        except MCPError as error:
            raise ToolError(await self._told(error)) from error

    async def close(self) -> None:
        """Close the connection and end its process, if there is one."""
        if self._task is not None:
            self._over.set()
            if self._opened is not None and not self._opened.done():
                self._task.cancel()  # It may wait for a server that does not answer.
            await asyncio.wait({self._task})

    async def _for_call(self, name: str) -> "Client":
        try:
            client = await self.opened()
        except (ConfigError, TimeoutError) as error:
            raise ToolError(str(error) or "the server does not respond") from error
        if name not in self.listed:
            raise ToolError("the server no longer has this tool")
        return client

    async def _sent(
        self, client: "Client", name: str, arguments: dict[str, Any], seconds: float
    ) -> "CallToolResult":
        from mcp import types

        told = ""

        async def heed(progress: float, total: float | None, message: str | None) -> None:
            nonlocal told
            of = "" if total is None else f" of {total:g}"
            told = f"; it had done {progress:g}{of}{f' ({message})' if message else ''}"

        # Not `client.call_tool`, which checks results with the server's patterns, without limits.
        parameters = types.CallToolRequestParams(name=name, arguments=arguments)
        clock = asyncio.timeout(seconds)
        try:
            async with clock:
                return await client.session.send_request(
                    types.CallToolRequest(params=parameters),
                    types.CallToolResult,
                    progress_callback=heed,
                )
        except TimeoutError:
            if not clock.expired():
                raise
            raise ToolError(f"no result within {seconds:g} s{one_line(told, 100)}") from None

    # -- the task ----------------------------------------------------------------------------

    async def _live(self, opened: "asyncio.Future[Client]", over: asyncio.Event) -> None:
        self._words = LastWords()
        self._reason = ""
        try:
            async with contextlib.AsyncExitStack() as stack:
                clock = asyncio.timeout(self._address.start_seconds)
                try:
                    async with clock:
                        client = await self._entered(stack, over)
                except TimeoutError:
                    seconds = f"{self._address.start_seconds:g} s"
                    raise ConfigError(f"no answer within {seconds} (start_seconds)") from None
                if not opened.done():
                    opened.set_result(client)
                await over.wait()
        except BaseException as error:  # noqa: BLE001 - passed on to the callers that wait
            self._reason = self._why(error)
        if not opened.done():
            told = f"MCP server {self._address}: {self._reason or 'it ended'}"
            opened.set_exception(ConfigError(told))
            opened.exception()  # Mark it as retrieved: nobody may be waiting any more.

    async def _entered(self, stack: contextlib.AsyncExitStack, over: asyncio.Event) -> "Client":
        await asyncio.to_thread(importlib.import_module, "mcp")  # It takes a second.
        from mcp import Client

        transport: Any = connected(self._address, self._words, over.set)
        client = await stack.enter_async_context(
            Client(transport, message_handler=self._heed, cache=None)
        )
        self.listed = await list_tools(client)
        self._is_stale = False
        await self._listen(stack, client)
        return client

    async def _heed(self, message: Any) -> None:
        """List the tools again before the next call when the server reports a change."""
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            self._is_stale = True

    async def _listen(self, stack: contextlib.AsyncExitStack, client: "Client") -> None:
        """Subscribe to changes, which newer servers report only on request."""
        from mcp import MCPError
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

        offered = client.server_capabilities.tools
        if offered is None or not offered.list_changed:
            return
        with contextlib.suppress(ListenNotSupportedError, SubscriptionLost, MCPError, TimeoutError):
            await stack.enter_async_context(client.listen(tools_list_changed=True))

    async def _told(self, error: "MCPError") -> str:
        """Return why a call failed, waiting for a dying server's last output."""
        if error.message == CLOSED and self._task is not None:
            await asyncio.wait({self._task}, timeout=LAST_WORDS_SECONDS)
        return self._why(error)

    def _why(self, error: BaseException) -> str:
        """Return one line about a failure, preferably the end of the server's stderr."""
        from mcp import MCPError

        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, ConfigError):
            return str(error)
        if isinstance(error, asyncio.CancelledError):
            return "it was closed before it responded"
        if isinstance(error, FileNotFoundError | NotADirectoryError | PermissionError):
            place = "" if self._address.folder is None else ", or no such folder (cwd=)"
            return f"no such program, or it can't be started{place}"
        if isinstance(error, MCPError) and error.message == CLOSED:
            words = str(self._words) or (f": {self._reason}" if self._reason else "")
            return f"the server has ended{words}"
        text = error.message if isinstance(error, MCPError) else str(error)
        return one_line(text, MAX_REASON_CHARS) or type(error).__name__
