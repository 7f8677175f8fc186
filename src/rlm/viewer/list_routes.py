"""The routes of the list: rows, search over all runs, and judging."""

import asyncio
import threading
from collections.abc import Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rlm._util.slow_numbers import decode
from rlm.errors import ConfigError
from rlm.records.judging import JudgmentChange
from rlm.viewer.library import Threads
from rlm.viewer.routes import ThreadedRoutes, number_of, run_id_of
from rlm.viewer.run_list import RunList
from rlm.web.events import while_connected
from rlm.web.responses import json_response

__all__ = ["ListRoutes"]

MAX_QUERY_CHARS = 1_000
MAX_WHERE_CHARS = 2_000
MAX_FOUND = 200
MAX_BODY_BYTES = 64_000


class ListRoutes(ThreadedRoutes):
    """One method per route. `list_of` returns the list that a request is about."""

    def __init__(
        self,
        list_of: Callable[[Request], RunList],
        threads: Threads,
        closing: asyncio.Event,
    ) -> None:
        super().__init__(threads, closing)
        self._list_of = list_of

    def below(self, prefix: str) -> list[Route]:
        """Return the routes for all runs of one library."""
        return [Route(f"{prefix}/runs", self._rows), Route(f"{prefix}/search", self._search)]

    def judging(self, prefix: str) -> list[Route]:
        """Return the routes that read and change what people say about a run."""
        path = f"{prefix}/runs/{{run_id}}/judgment"
        return [Route(path, self._judgment), Route(path, self._judge, methods=["POST"])]

    async def _rows(self, request: Request) -> Response:
        return await self._answer(request, self._list_of(request).rows)

    async def _search(self, request: Request) -> Response:
        """Search the texts of all runs until the client disconnects."""
        query, where = request.query_params.get("q", ""), request.query_params.get("where", "")
        if not query.strip() or len(query) > MAX_QUERY_CHARS:
            raise ConfigError(f"search for 1 to {MAX_QUERY_CHARS:,} characters")
        if len(where) > MAX_WHERE_CHARS:
            raise ConfigError(f"a condition has at most {MAX_WHERE_CHARS:,} characters")
        limit, stop = number_of(request, "limit", MAX_FOUND, MAX_FOUND), threading.Event()
        if not limit:
            raise ConfigError("limit must be a whole number above 0")
        try:
            return await self._answer(
                request, self._list_of(request).search, query, where, limit, stop
            )
        finally:
            stop.set()

    async def _judgment(self, request: Request) -> Response:
        return await self._answer(request, self._list_of(request).judgment, run_id_of(request))

    async def _judge(self, request: Request) -> Response:
        run_id, body = run_id_of(request), await _body(request)
        try:
            change = decode(body, JudgmentChange)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"this is not a change to a judgment: {error}") from error
        # Not cancelled when the client leaves: what was sent is stored.
        work = self._threads.run(self._list_of(request).judge, run_id, change)
        return json_response(await while_connected(None, work, self._closing))


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise HTTPException(413)
    return bytes(body)
