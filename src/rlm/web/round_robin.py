"""Fairness between clients: requests begin in turns, so that a flood delays only its sender."""

import asyncio
from collections import deque
from collections.abc import Hashable

__all__ = ["RoundRobin"]


class RoundRobin:
    """Lets each client begin one request per iteration of the event loop; its others wait in line.

    Without this, one iteration handles every request that has arrived: a client that sends hundreds
    at once keeps all others waiting. Use it on one event loop.
    """

    def __init__(self) -> None:
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}

    async def turn_of(self, client: Hashable) -> None:
        """Return when it is the client's turn: at once if it began nothing in this iteration."""
        loop = asyncio.get_running_loop()
        waiting = self._waiting.get(client)
        if waiting is None:
            self._waiting[client] = deque()
            loop.call_soon(self._next, client)
            return
        turn: asyncio.Future[None] = loop.create_future()
        waiting.append(turn)
        await turn

    def _next(self, client: Hashable) -> None:
        """Let the client's next request begin; forget a client that has none."""
        waiting = self._waiting[client]
        while waiting:
            turn = waiting.popleft()
            if not turn.done():  # It is cancelled if the request is no longer wanted.
                turn.set_result(None)
                asyncio.get_running_loop().call_soon(self._next, client)
                return
        del self._waiting[client]
