"""What one wire dialect has to know, and the client that all dialects share.

A dialect is pure: a request becomes a body, a body becomes a reply. Connections, time limits, what
failures mean and secrets are the `Endpoint`'s.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, Protocol, TypeVar

from rlm import models
from rlm.clients._http import Endpoint
from rlm.clients._json import parse
from rlm.errors import ModelError
from rlm.messages import ModelInfo, Reply, Request

__all__ = ["Dialect", "ErrorReport", "HttpClient", "Streamed"]

_Read = TypeVar("_Read")

ErrorReport = tuple[int | None, Any]
"""An error that came with status 200: the status it should have had, if known, and its body."""


class Streamed(Protocol):
    """Gathers the events of a stream into the reply that a plain request would have had."""

    @property
    def complete(self) -> bool:
        """Whether the server said that it is through."""

    def add(self, event: dict[str, Any]) -> str:
        """Take one event in; returns the text it adds to the reply."""

    def finish(self) -> None:
        """Called for `[DONE]`, which some servers send in place of a last event."""

    def reply(self) -> Reply:
        """The whole reply; ValueError if there is none."""


class Dialect(Protocol):
    """One way to write requests and read replies."""

    def path(self, request: Request, *, stream: bool) -> str:
        """Where to POST, below the base URL."""

    def body(self, request: Request, *, stream: bool) -> bytes:
        """The JSON to send. The output cap is in it; sampling may only make it smaller."""

    def reply(self, payload: dict[str, Any]) -> Reply:
        """The reply in a decoded response; ValueError, with the reason, if it holds none."""

    def streamed(self) -> Streamed:
        """What gathers one stream."""

    def error_in(self, payload: dict[str, Any]) -> ErrorReport | None:
        """The error that a response or an event of status 200 reports, if it does."""


class HttpClient:
    """A `Client` for one server that speaks one dialect. Never retries by itself."""

    def __init__(
        self,
        endpoint: Endpoint,
        dialect: Dialect,
        *,
        provider: str = "",
        infos: Mapping[str, ModelInfo] | None = None,
    ) -> None:
        """`infos` says what its models are; of others, what is known of that provider's."""
        self._endpoint = endpoint
        self._dialect = dialect
        self._provider = provider
        self._infos = dict(infos or {})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._endpoint.host!r})"

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        """One request, one reply."""
        async with self._endpoint.post(
            self._dialect.path(request, stream=False),
            self._dialect.body(request, stream=False),
            model=request.model,
            timeout_seconds=timeout_seconds,
        ) as response:
            return self._reply(request, await response.read())

    async def stream(
        self, request: Request, *, timeout_seconds: float
    ) -> AsyncGenerator[str | Reply, None]:
        """The text as it comes, piece by piece, and at the end the whole reply."""
        async with self._endpoint.post(
            self._dialect.path(request, stream=True),
            self._dialect.body(request, stream=True),
            model=request.model,
            timeout_seconds=timeout_seconds,
        ) as response:
            if response.is_json:  # a server that does not stream
                reply = self._reply(request, await response.read())
                yield reply.text
                yield reply
                return
            streamed = self._dialect.streamed()
            async with aclosing(response.events()) as events:
                async for data in events:
                    if data == "[DONE]":
                        streamed.finish()
                        await response.drain()
                        break
                    add = partial(streamed.add, self._parsed(request, data))
                    if text := self._checked(request, add):
                        yield text
            if not streamed.complete:
                raise self._endpoint.broken(request.model, "the stream was cut off")
            yield self._checked(request, streamed.reply)

    def info(self, model: str) -> ModelInfo:
        return self._infos.get(model) or models.about(self._provider, model)

    async def close(self) -> None:
        """Close the connections of every event loop this client was used on."""
        await self._endpoint.close()

    def _reply(self, request: Request, data: bytes) -> Reply:
        payload = self._parsed(request, data)
        return self._checked(request, lambda: self._dialect.reply(payload))

    def _checked(self, request: Request, read: Callable[[], _Read]) -> _Read:
        try:
            return read()
        except ValueError as error:
            raise self._endpoint.broken(request.model, str(error)) from None

    def _parsed(self, request: Request, data: bytes | str) -> dict[str, Any]:
        """A decoded object that is no error report; some servers report errors with status 200."""
        try:
            payload = parse(data)
        except ValueError:
            payload = None
        if not isinstance(payload, dict):
            raise self._endpoint.broken(request.model, "the response is malformed or cut off")
        report = self._dialect.error_in(payload)
        if report is not None:
            raise self._reported(request, *report)
        return payload

    def _reported(self, request: Request, status: int | None, said: Any) -> ModelError:
        if status is None:
            return self._endpoint.broken(request.model, f"the server reported: {said}")
        return self._endpoint.error(request.model, status, said, ambiguous=True)
