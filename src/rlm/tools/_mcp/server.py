"""`McpServer`, which `mcp(...)` returns: shared by all users, and closed with the last one."""

import asyncio
import atexit
import concurrent.futures
import itertools
import threading
import weakref
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from rlm.errors import ConfigError, PortalError
from rlm.portal import Portal, existing_portal, portal
from rlm.tools._mcp.address import Address
from rlm.tools._mcp.connection import Connection, Listed, chosen

if TYPE_CHECKING:
    from mcp.types import CallToolResult

__all__ = ["Lease", "McpServer"]

LAST_SECONDS = 7.0
"""How long the program's exit waits: a server has 2 s to exit, and 2 s after SIGTERM."""

T = TypeVar("T")


class McpServer:
    """A server whose tools cells may call. Connected when an RLM is created with it, or by `open`.

    Its connection lives on the portal's event loop, whatever loop its tools are called from.
    """

    def __init__(
        self,
        address: Address,
        *,
        prefix: str,
        only: Sequence[str] | None,
        without: Sequence[str],
        timeout_seconds: float,
    ) -> None:
        self.prefix = prefix
        self.timeout_seconds = timeout_seconds
        self._address = address
        self._only = only
        self._without = without
        self._lock = threading.RLock()  # Reentrant: a lease may be collected under it.
        self._leases: set[int] = set()
        self._connection: tuple[Portal, Connection] | None = None
        _servers.add(self)

    def __repr__(self) -> str:
        return f"<MCP server {self._address}>"

    async def open(self) -> None:
        """Connect now, from any event loop, so that creating an RLM takes no time."""
        await self._passed_on(self._opened())

    async def aclose(self) -> None:
        """Close the connection for all users; the next call opens it again."""
        await self._passed_on(self._closed())

    def close(self) -> None:
        """Close the connection; the blocking form of `aclose`."""
        portal().call(self._closed)

    def listed(self) -> list[Listed]:
        """Return the tools to offer, connecting first if necessary."""
        try:
            found = portal().call(self._opened)
        except PortalError as error:
            known = self._known()
            if known is None:
                raise ConfigError(
                    f"{self!r} can't be opened inside a run: call `await server.open()` first"
                ) from error
            found = known
        try:
            return chosen(found, self._only, self._without)
        except ConfigError as error:
            raise ConfigError(f"MCP server {self._address}: {error}") from error

    async def call(self, name: str, arguments: dict[str, Any]) -> "CallToolResult":
        """Call a tool of the server, from any event loop."""
        connection = self._here()
        return await self._passed_on(connection.call(name, arguments, self.timeout_seconds))

    # -- who uses it -------------------------------------------------------------------------

    def lease(self) -> "Lease":
        """Return a lease that keeps the server open until it is released or collected."""
        lease = Lease(self, next(_numbers))
        self.renew(lease.number)
        weakref.finalize(lease, _drop, self, lease.number).atexit = False
        return lease

    def renew(self, number: int) -> None:
        with self._lock:
            self._leases.add(number)

    def end(self, number: int) -> bool:
        """End a lease, and return whether it was the last."""
        with self._lock:
            was_held = number in self._leases
            self._leases.discard(number)
            return was_held and not self._leases

    async def give_back(self, number: int) -> None:
        if self.end(number):
            await self._passed_on(self._closed())

    # -- the portal's loop -------------------------------------------------------------------

    def _here(self) -> Connection:
        """Return the connection of this process; a fork does not inherit its parent's."""
        now = portal()
        with self._lock:
            if self._connection is None or self._connection[0] is not now:
                self._connection = now, Connection(self._address)
            return self._connection[1]

    def _known(self) -> dict[str, Listed] | None:
        with self._lock:
            return self._connection[1].listed or None if self._connection else None

    async def _passed_on(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the portal's loop; cancelling this call cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, portal().loop)
        return await asyncio.wrap_future(future)

    async def _opened(self) -> dict[str, Listed]:
        connection = self._here()
        await connection.opened()
        return connection.listed

    async def _closed(self) -> None:
        known = self._connection
        if known is not None and known[0] is existing_portal():
            await known[1].close()


class Lease:
    """One user's claim that keeps the server open. A call after `release` renews it."""

    def __init__(self, server: McpServer, number: int) -> None:
        self._server = server
        self.number = number

    async def call(self, name: str, arguments: dict[str, Any]) -> "CallToolResult":
        self._server.renew(self.number)
        return await self._server.call(name, arguments)

    def drop(self) -> None:
        """Release the lease without waiting for the server to close."""
        _drop(self._server, self.number)

    async def release(self) -> None:
        await self._server.give_back(self.number)


_numbers = itertools.count(1)
_servers: "weakref.WeakSet[McpServer]" = weakref.WeakSet()


def _drop(server: McpServer, number: int) -> None:
    """End a lease that was not released."""
    found = existing_portal()
    if server.end(number) and found is not None:
        found.close_later(server._closed)


def _close_all() -> None:
    """Close all servers at the end of the program, so that no process is left."""
    found = existing_portal()
    if found is None:
        return
    ends = [
        asyncio.run_coroutine_threadsafe(server._closed(), found.loop)
        for server in list(_servers)
        if server._connection is not None
    ]
    concurrent.futures.wait(ends, timeout=LAST_SECONDS)


atexit.register(_close_all)
