"""Fairness between clients: requests begin in turns, so that a flood delays only its sender."""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable

from starlette.types import Scope

__all__ = ["CONNECTION", "Connection", "RoundRobin", "remember_sender"]

CONNECTION = "rlm.connection"
"""The key of the `Connection` in the state of a request, if the server is ours."""


class RoundRobin:
    """Lets each client begin a few things per round; the rest of what it sends waits in line.

    Without this, one iteration of the event loop handles every request that has arrived: a client
    that sends hundreds at once keeps all others waiting. A round of several iterations leaves room
    for requests in progress, which need many iterations each. Use this on one event loop.
    """

    def __init__(self, at_once: int = 1, iterations: int = 1) -> None:
        self._at_once = at_once
        self._iterations = iterations
        self._lines: dict[Hashable, _Line] = {}

    def may_begin(self, client: Hashable) -> bool:
        """Take one of the client's turns in this round; return False if none is left."""
        line = self._lines.get(client)
        if line is None:
            line = self._lines[client] = _Line(self._at_once)
            self._after_a_round(client, self._iterations)
        if not line.turns:
            return False
        line.turns -= 1
        return True

    def line_up(self, client: Hashable, begin: Callable[[], bool]) -> None:
        """Call `begin` in a later round; it returns False if the turn is no longer wanted."""
        self._lines[client].waiting.append(begin)

    async def turn_of(self, client: Hashable) -> None:
        """Return when it is the client's turn: at once if it has begun nothing in this round."""
        if self.may_begin(client):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def begin() -> bool:
            if turn.done():  # The request has been cancelled.
                return False
            turn.set_result(None)
            return True

        self.line_up(client, begin)
        await turn

    def _after_a_round(self, client: Hashable, iterations: int) -> None:
        loop = asyncio.get_running_loop()
        if iterations > 1:
            loop.call_soon(self._after_a_round, client, iterations - 1)
        else:
            loop.call_soon(self._next_round, client)

    def _next_round(self, client: Hashable) -> None:
        """Let what waits begin; forget a client that sends nothing more."""
        line = self._lines[client]
        if not line.waiting:
            del self._lines[client]
            return
        line.turns = self._at_once
        self._after_a_round(client, self._iterations)
        while line.turns and line.waiting:
            line.turns -= line.waiting.popleft()()


class _Line:
    """What a client sent, and how much more it may begin in this round."""

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.waiting: deque[Callable[[], bool]] = deque()


class Connection:
    """What is known of a connection: who sent its last request."""

    __slots__ = ("sender",)

    def __init__(self) -> None:
        self.sender: Hashable = None


def remember_sender(scope: Scope, sender: Hashable) -> None:
    """Note who sent a request, so that the next ones on its connection count as that client's."""
    connection = scope.get("state", {}).get(CONNECTION)
    if connection is not None:
        connection.sender = sender
