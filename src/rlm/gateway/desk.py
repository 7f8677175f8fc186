"""Requests of a run that wait for the client's own model.

How they get to the client, one by one or in rounds, is not known here. One that was on its way when
its connection broke waits again.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

from rlm.errors import ModelError
from rlm.messages import ModelInfo, Reply, Request

__all__ = ["Desk", "DeskClient"]


class _Waiting:
    """A request, and who waits for its reply. `flying`: it is on its way to the client."""

    def __init__(self, request: Request, reply: "asyncio.Future[Reply]") -> None:
        self.request = request
        self.reply = reply
        self.flying = False


class Desk:
    """The requests of one run. `show` is told of each before the client sees it, and may refuse."""

    def __init__(self, show: Callable[[Request], None], changed: Callable[[], None]) -> None:
        self._show = show
        self._changed = changed
        self._waiting: dict[str, _Waiting] = {}
        self._number = 0
        self.asked_at = 0.0

    async def ask(self, request: Request) -> Reply:
        """Wait until somebody delivers the reply."""
        self._show(request)
        self._number += 1
        name = f"call-{self._number}"
        waiting = _Waiting(request, asyncio.get_running_loop().create_future())
        self._waiting[name] = waiting
        self.asked_at = time.monotonic()
        self._changed()
        try:
            return await waiting.reply
        finally:
            del self._waiting[name]

    @property
    def waiting(self) -> dict[str, Request]:
        """All that have no reply yet."""
        return {name: each.request for name, each in self._waiting.items() if not each.reply.done()}

    def take(self) -> dict[str, Request]:
        """Those that nobody has sent yet; they count as sent from now on."""
        fresh = {name: each for name, each in self._waiting.items() if not each.flying}
        for each in fresh.values():
            each.flying = True
        return {name: each.request for name, each in fresh.items()}

    def put_back(self, name: str) -> None:
        """It did not get there: it waits again."""
        if name in self._waiting:
            self._waiting[name].flying = False
            self._changed()

    def deliver(self, name: str, outcome: Reply | ModelError) -> None:
        """A reply, or why there is none; names that nobody waits for are of no interest."""
        waiting = self._waiting.get(name)
        if waiting is None or waiting.reply.done():
            return
        if isinstance(outcome, ModelError):
            waiting.reply.set_exception(outcome)
        else:
            waiting.reply.set_result(outcome)


class DeskClient:
    """`rlm.protocols.Client` for the client's own model. What it uses, nobody tells."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        return await self._desk.ask(request)

    async def stream(
        self, request: Request, *, timeout_seconds: float
    ) -> AsyncIterator[str | Reply]:
        reply = await self._desk.ask(request)
        yield reply.text
        yield reply

    def info(self, model: str) -> ModelInfo:
        return ModelInfo()

    async def close(self) -> None:
        return None
