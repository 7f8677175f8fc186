"""A session in an actor, as a pipe: `rlm.environments._relay` makes sockets of it."""

import asyncio
from collections.abc import Callable

from rlm.environments.ray.pool import RemoteHost
from rlm.errors import SessionError

__all__ = ["ActorPipe"]

_CLOSE_SECONDS = 30.0


class ActorPipe:
    """Implements `rlm.environments.pipes.Pipe`; `over` is told once the session is closed."""

    def __init__(self, host: RemoteHost, number: int, over: Callable[[], None]) -> None:
        self._host = host
        self._number = number
        self._over = over
        self._closing: asyncio.Task[None] | None = None

    async def send(self, data: bytes) -> None:
        """Returns when the actor has it; only then the next may be sent, so that order is kept."""
        await self._host.call("send", self._number, data)

    async def receive(self) -> bytes:
        """Waits at the actor until something is to be had."""
        data: bytes = await self._host.call("receive", self._number)
        return data

    async def close(self) -> None:
        """End the session; the actor is for others then."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def ending(self) -> str:
        """An actor that is lost says so by an error; here the session has ended by itself."""
        return "has ended"

    async def _close(self) -> None:
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._host.call("close", self._number)
        except TimeoutError:
            await asyncio.to_thread(self._host.kill)  # Whoever does not answer is of no use.
        except SessionError:
            pass  # It is gone, and the session with it.
        finally:
            self._over()
