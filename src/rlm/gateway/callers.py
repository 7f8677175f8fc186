"""The client behind a request: its progress, and its own model, which it lends by sampling."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Literal, Protocol

from msgspec import Struct

from rlm.errors import ModelError
from rlm.messages import ModelInfo, Reply, Request

__all__ = [
    "Caller",
    "ChannelClosed",
    "PendingRequests",
    "RepliesNeeded",
    "Sampling",
    "SamplingClient",
]

Sampling = Literal["none", "each", "rounds"]
"""How a client lends its model: not at all, per request, or all pending requests in one round."""


class ChannelClosed(Exception):
    """The channel to the client is closed; another request may open a new one."""


class RepliesNeeded(Struct, frozen=True):
    """Requests that the client's model must answer before the run continues.

    `state` names the run.
    """

    requests: dict[str, Request]
    state: str


class Caller(Protocol):
    """One request of a client.

    `replies` answer an earlier `RepliesNeeded` with the same `state`.
    """

    sampling: Sampling
    state: str | None
    replies: Mapping[str, Reply | ModelError]

    async def progress(self, number: int, message: str) -> None: ...

    async def sample(self, request: Request) -> Reply:
        """Ask the client's model.

        Raise ModelError if it fails, ChannelClosed without a connection.
        """


class _Waiting:
    """A request and its future reply. `sent`: it is on its way to the client."""

    def __init__(self, request: Request, reply: "asyncio.Future[Reply]") -> None:
        self.request = request
        self.reply = reply
        self.sent = False


class PendingRequests:
    """The requests of one run to the client's model.

    `show` is called before each, and may refuse.
    """

    def __init__(self, show: Callable[[Request], None], changed: Callable[[], None]) -> None:
        self._show = show
        self._changed = changed
        self._waiting: dict[str, _Waiting] = {}
        self._number = 0
        self.asked_at = 0.0

    async def ask(self, request: Request) -> Reply:
        """Wait for the reply."""
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
        """Requests without a reply."""
        return {name: each.request for name, each in self._waiting.items() if not each.reply.done()}

    def take(self) -> dict[str, Request]:
        """Return the requests that were not sent yet, and mark them as sent."""
        fresh = {name: each for name, each in self._waiting.items() if not each.sent}
        for each in fresh.values():
            each.sent = True
        return {name: each.request for name, each in fresh.items()}

    def put_back(self, name: str) -> None:
        """Mark a request as not sent: it did not arrive."""
        if name in self._waiting:
            self._waiting[name].sent = False
            self._changed()

    def deliver(self, name: str, outcome: Reply | ModelError) -> None:
        """Deliver a reply or an error; ignore names that are not pending."""
        waiting = self._waiting.get(name)
        if waiting is None or waiting.reply.done():
            return
        if isinstance(outcome, ModelError):
            waiting.reply.set_exception(outcome)
        else:
            waiting.reply.set_result(outcome)


class SamplingClient:
    """An `rlm.protocols.Client` for the client's own model, whose usage is unknown."""

    def __init__(self, requests: PendingRequests) -> None:
        self._requests = requests

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        return await self._requests.ask(request)

    async def stream(
        self, request: Request, *, timeout_seconds: float
    ) -> AsyncIterator[str | Reply]:
        reply = await self._requests.ask(request)
        yield reply.text
        yield reply

    def info(self, model: str) -> ModelInfo:
        return ModelInfo()

    async def close(self) -> None:
        return None
