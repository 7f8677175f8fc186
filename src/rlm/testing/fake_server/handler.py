"""Answers requests: from the script, and on a few paths about the server itself."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from rlm.errors import ConfigError
from rlm.testing.fake_server.connection import Connection, HttpRequest
from rlm.testing.fake_server.requests import Asked, Log, Received, Route, read_request, route
from rlm.testing.fake_server.responses import error_response, make_response
from rlm.testing.fake_server.script import Answer, Script, UsedUp, as_answer

__all__ = ["Handler"]

MODEL = "fake-model"
PLACES = (
    "POST /v1/chat/completions, /v1/responses, /v1/messages, "
    "/v1beta/models/MODEL:generateContent or /model/MODEL/converse; "
    "GET /v1/models, /health or /_requests"
)


class Handler:
    """The script and the log of one server."""

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
        self._numbers = itertools.count(1)
        self.closing = False

    async def __call__(self, connection: Connection, request: HttpRequest) -> None:
        place = route(request.path) if request.method == "POST" else None
        if place is None:
            value, status = self._about(request)
            await connection.send_json(value, status, has_body=request.method != "HEAD")
            return
        received = Received(
            next(self._numbers),
            request.path,
            request.headers,
            connection=connection.number,
            size_bytes=len(request.body),
            query=request.query,
        )
        self._log.begin(received)
        try:
            await self._answer(connection, request, place, received)
        except asyncio.CancelledError:
            received.disconnected = not self.closing
            raise
        finally:
            self._log.end()
            if self._on_request is not None:
                self._on_request(received)

    async def _answer(
        self, connection: Connection, request: HttpRequest, place: Route, received: Received
    ) -> None:
        if connection.is_stale:
            connection.reset()
            return
        try:
            received.asked = asked = read_request(place, request.body, request.query)
        except ValueError as error:
            asked = Asked(place.dialect, place.model or "", "", stream=False, body={})
            await _refuse(connection, asked, received, 400, f"no request: {error}")
            return
        try:
            answer = self._choose(asked)
        except (UsedUp, ConfigError) as error:
            # Not a 5xx: clients would only retry.
            await _refuse(connection, asked, received, 400, str(error))
            return
        received.behaviours = behaviours = answer.behaviours
        if seconds := self._latency_seconds + answer.delay_seconds:
            await asyncio.sleep(seconds)
        if "never" in behaviours:
            await asyncio.Event().wait()
        if "reset" in behaviours:
            connection.reset()
            return
        connection.is_stale = "stale" in behaviours
        response = make_response(received.number, asked, answer)
        received.status = response.status
        await connection.send(response, behaviours, answer.pause_seconds)

    def _choose(self, asked: Asked) -> Answer:
        entry = self._script.take(asked.text)
        return as_answer(entry(asked) if callable(entry) else entry)

    # -- about the server itself -------------------------------------------------------------

    def _about(self, request: HttpRequest) -> tuple[dict[str, Any], int]:
        """Return the value and the status of an answer about the server itself."""
        path = request.path.rstrip("/")
        if path == "/_requests" and request.method == "DELETE":
            self._log.forget()
            self._script.rewind()
            self._numbers = itertools.count(1)
            return {"count": 0}, 200
        if request.method not in {"GET", "HEAD"}:
            message = f"nothing answers {request.method} {path}; there is: {PLACES}"
            return {"error": {"message": message}}, 404
        if path == "/_requests":
            return self._log.public(), 200
        if path in {"", "/health"}:
            return {"status": "ok", "requests": self._log.count}, 200
        if path.endswith("/models"):
            return _models(), 200
        return {"error": {"message": f"nothing is at {path}; there is: {PLACES}"}}, 404


async def _refuse(
    connection: Connection, asked: Asked, received: Received, status: int, reason: str
) -> None:
    received.status = status
    await connection.send(error_response(asked, status, reason), frozenset(), 0.0)


def _models() -> dict[str, Any]:
    """Return one model, in the form of every dialect at once. Other names are answered too."""
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
