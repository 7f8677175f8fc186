"""Answers requests: the script's models, and the few paths that tell about the server itself."""

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

from rlm.errors import ConfigError
from rlm.testing.fake_server.asked import Asked, Route, read_request, route
from rlm.testing.fake_server.received import Log, Received
from rlm.testing.fake_server.script import Answer, Script, UsedUp, as_answer
from rlm.testing.fake_server.sending import reset, send
from rlm.testing.fake_server.wire import error_wire, wire_of

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["Handler"]

MODEL = "fake-model"
PLACES = (
    "POST /v1/chat/completions, /v1/responses, /v1/messages or "
    "/v1beta/models/MODEL:generateContent; GET /v1/models, /health or /_requests"
)
NOTHING = frozenset[str]()


class Handler:
    """One server's state: its script, its log, and what it knows of its connections."""

    def __init__(
        self,
        script: Script,
        log: Log,
        *,
        latency_seconds: float = 0.0,
        on_request: Callable[[Received], None] | None = None,
    ) -> None:
        self._script = script
        self._log = log
        self._latency_seconds = latency_seconds
        self._on_request = on_request
        self._spoilt: WeakSet[Any] = WeakSet()
        self._connections: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._connection_numbers = itertools.count(1)
        self._numbers = itertools.count(1)
        self.closing = False

    async def __call__(self, request: "web.BaseRequest") -> "web.StreamResponse":
        place = route(request.path) if request.method == "POST" else None
        if place is None:
            return self._about(request)
        data = await request.read()
        received = self._received(request, data)
        self._log.begin(received)
        try:
            return await self._answered(request, place, data, received)
        except asyncio.CancelledError:
            received.disconnected = not self.closing
            raise
        finally:
            self._log.end()
            if self._on_request is not None:
                self._on_request(received)

    def _received(self, request: "web.BaseRequest", data: bytes) -> Received:
        connection = self._connections.get(request.transport, 0)
        if not connection and request.transport is not None:
            connection = self._connections[request.transport] = next(self._connection_numbers)
        return Received(
            next(self._numbers),
            request.path,
            dict(request.headers),
            connection=connection,
            size_bytes=len(data),
        )

    async def _answered(
        self, request: "web.BaseRequest", place: Route, data: bytes, received: Received
    ) -> "web.StreamResponse":
        if request.transport in self._spoilt:
            return self._dropped(request)
        try:
            received.asked = asked = read_request(place, data, request.query)
        except ValueError as error:
            asked = Asked(place.dialect, place.model or "", "", stream=False, body={})
            return await self._refused(request, asked, received, 400, f"no request: {error}")
        try:
            answer = self._chosen(asked)
        except (UsedUp, ConfigError) as error:
            return await self._refused(request, asked, received, 500, str(error))
        received.behaviours = behaviours = answer.behaviours
        if seconds := self._latency_seconds + answer.delay_seconds:
            await asyncio.sleep(seconds)
        if "never" in behaviours:
            await asyncio.Event().wait()
        if "reset" in behaviours:
            return self._dropped(request)
        if "stale" in behaviours:
            self._spoilt.add(request.transport)
        wire = wire_of(received.number, asked, answer)
        received.status = wire.status
        return await send(request, wire, behaviours, answer.pause_seconds)

    def _chosen(self, asked: Asked) -> Answer:
        entry = self._script.take(asked.text)
        return as_answer(entry(asked) if callable(entry) else entry)

    async def _refused(
        self,
        request: "web.BaseRequest",
        asked: Asked,
        received: Received,
        status: int,
        reason: str,
    ) -> "web.StreamResponse":
        received.status = status
        return await send(request, error_wire(asked, status, reason), NOTHING, 0.0)

    def _dropped(self, request: "web.BaseRequest") -> "web.StreamResponse":
        from aiohttp import web

        reset(request)
        return web.StreamResponse()

    # -- about the server itself -------------------------------------------------------------

    def _about(self, request: "web.BaseRequest") -> "web.StreamResponse":
        path = request.path.rstrip("/")
        if path == "/_requests" and request.method == "DELETE":
            self._log.forget()
            self._script.rewind()
            self._numbers = itertools.count(1)
            return _json({"count": 0})
        if request.method not in {"GET", "HEAD"}:
            message = f"nothing answers {request.method} {path}; there is: {PLACES}"
            return _json({"error": {"message": message}}, 404)
        if path == "/_requests":
            return _json(self._log.public())
        if path in {"", "/health"}:
            return _json({"status": "ok", "requests": self._log.count})
        if path.endswith("/models"):
            return _json(_models())
        message = f"nothing is at {path}; there is: {PLACES}"
        return _json({"error": {"message": message}}, 404)


def _models() -> dict[str, Any]:
    """One model, in the form of each dialect at once. Any other name is answered too."""
    model = {
        "id": MODEL,
        "object": "model",
        "created": 0,
        "owned_by": "script",
        "type": "model",
        "display_name": MODEL,
        "created_at": "2025-01-01T00:00:00Z",
    }
    named = {"name": f"models/{MODEL}", "supportedGenerationMethods": ["generateContent"]}
    return {
        "object": "list",
        "data": [model],
        "has_more": False,
        "first_id": MODEL,
        "last_id": MODEL,
        "models": [named],
    }


def _json(value: Any, status: int = 200) -> "web.Response":
    from aiohttp import web

    body = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    return web.Response(status=status, body=body, content_type="application/json")
