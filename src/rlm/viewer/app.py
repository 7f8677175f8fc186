"""The viewer as an ASGI application: its routes, and the page's files."""

import asyncio
import re
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec
from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from rlm.errors import ConfigError
from rlm.viewer.access import HEADERS, Access, error_response
from rlm.viewer.answers import Answers
from rlm.viewer.assets import STATIC, load_assets, page_with
from rlm.viewer.contexts import Contexts
from rlm.viewer.forking import MAX_EDIT_CHARS, Engines, Forks
from rlm.viewer.library import Library, Threads, Unknown
from rlm.viewer.live import Live
from rlm.web.border import Border
from rlm.web.events import EventStream, while_connected
from rlm.web.responses import json_response

__all__ = ["ViewerApp"]

MAX_ID_CHARS = 500
MAX_QUERY_CHARS = 1_000
MAX_CONTEXT_CHARS = 100_000
MAX_EVENTS = 2_000
MAX_CALLS = 20_000
MAX_HITS = 1_000
MAX_BODY_BYTES = 8 * MAX_EDIT_CHARS
RUN = "/api/runs/{run_id}"
_FIELD = re.compile(r"[^/\x00-\x1f]{1,300}")
T = TypeVar("T")


class ForkRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """What the page sends to fork a run."""

    run_id: str
    step: int
    edited: str | None = None


class ViewerApp:
    """Answers the page's requests. `start` it before the first one, and `close` it in the end."""

    def __init__(
        self,
        library: Library,
        contexts: Contexts,
        engines: Engines | None,
        access: Access,
        *,
        static: Path = STATIC,
        version: str = "",
    ) -> None:
        self.access = access
        self._version = version
        self._library = library
        self._assets = load_assets(static)
        self._threads = Threads()
        self._answers = Answers(library, contexts)
        self._live = Live(library, self._threads)
        self._forks = Forks(library.archive, engines, self._threads)
        self._closing = asyncio.Event()
        self._app = Border(self._routed(), access.admit, error_response, HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    async def start(self) -> None:
        await self._threads.run(self._library.start)

    def stop(self) -> None:
        """End streams and requests."""
        self._closing.set()
        self._library.end()

    async def close(self) -> None:
        self.stop()
        await self._forks.close()
        self._threads.close()

    def _routed(self) -> ASGIApp:
        router = Router(
            [
                Route("/api/viewer", self._viewer),
                Route("/api/runs", self._runs),
                _stream("/api/live", self._runs_live),
                Route(RUN, self._run),
                Route(f"{RUN}/steps/{{step}}", self._step),
                Route(f"{RUN}/events/{{index}}/text/{{field}}", self._text),
                Route(f"{RUN}/calls", self._calls),
                Route(f"{RUN}/usage", self._usage),
                Route(f"{RUN}/coverage", self._coverage),
                Route(f"{RUN}/context", self._context),
                Route(f"{RUN}/search", self._search),
                _stream(f"{RUN}/live", self._run_live),
                Route("/api/fork", self._fork, methods=["POST"]),
                Route("/{path:path}", self._asset),
            ],
            redirect_slashes=False,
        )

        async def routed(scope: Scope, receive: Receive, send: Send) -> None:
            """Match the path as it was sent: the id of a run may contain an encoded slash."""
            sent = scope["raw_path"].decode("latin-1")
            await router({**scope, "path": sent}, receive, send)

        return routed

    async def _while_open(self, request: Request, work: Coroutine[Any, Any, T]) -> T:
        """Cancel work that the client, or the whole viewer, no longer waits for."""
        return await while_connected(request.receive, work, self._closing)

    async def _answer(
        self, request: Request, find: Callable[..., Any], *arguments: Any
    ) -> Response:
        found = await self._while_open(request, self._threads.run(find, *arguments))
        return json_response(found)

    # -- the page ----------------------------------------------------------------------------

    async def _asset(self, request: Request) -> Response:
        path = unquote(request.scope["path"])
        asset = self._assets.get(path)
        if asset is None:
            raise HTTPException(404)
        is_page = path == "/"
        body = page_with(asset.data, self.access.token.value) if is_page else asset.data
        response = Response(body, media_type=asset.media_type)
        if asset.lasting:
            response.headers["Cache-Control"] = "private, max-age=31536000, immutable"
        if is_page:
            self.access.set_cookie(request, response)
        return response

    # -- answers -----------------------------------------------------------------------------

    async def _viewer(self, request: Request) -> Response:
        response = json_response(
            {
                "version": self._version,
                "title": self._library.title,
                "can_fork": self._forks.why_not is None,
                "why_not_fork": self._forks.why_not,
                "live": True,
            }
        )
        self.access.set_cookie(request, response)
        return response

    async def _runs(self, request: Request) -> Response:
        return await self._answer(request, self._answers.runs)

    async def _run(self, request: Request) -> Response:
        return await self._answer(request, self._answers.run, _run_id(request))

    async def _step(self, request: Request) -> Response:
        step = _whole_number(_part(request, "step"), "step")
        offset, limit = _number(request, "offset", 0), _number(request, "limit", 500, MAX_EVENTS)
        return await self._answer(
            request, self._answers.step, _run_id(request), step, offset, limit
        )

    async def _text(self, request: Request) -> Response:
        number, field = _whole_number(_part(request, "index"), "index"), _part(request, "field")
        if not _FIELD.fullmatch(field):
            raise Unknown("no event has such a field")
        return await self._answer(request, self._answers.text, _run_id(request), number, field)

    async def _calls(self, request: Request) -> Response:
        limit = _number(request, "limit", MAX_CALLS, MAX_CALLS)
        return await self._answer(request, self._answers.calls, _run_id(request), limit)

    async def _usage(self, request: Request) -> Response:
        return await self._answer(request, self._answers.usage, _run_id(request))

    async def _coverage(self, request: Request) -> Response:
        return await self._answer(request, self._answers.coverage, _run_id(request))

    async def _context(self, request: Request) -> Response:
        start = _number(request, "start", 0)
        end = min(_number(request, "end", start + 2_000), start + MAX_CONTEXT_CHARS)
        return await self._answer(request, self._answers.context, _run_id(request), start, end)

    async def _search(self, request: Request) -> Response:
        """Search the events of a run until the client disconnects."""
        query = request.query_params.get("q", "")
        if not query or len(query) > MAX_QUERY_CHARS:
            raise ConfigError(f"search for 1 to {MAX_QUERY_CHARS:,} characters")
        limit, stop = _number(request, "limit", 200, MAX_HITS), threading.Event()
        try:
            return await self._answer(
                request, self._answers.search, _run_id(request), query, limit, stop
            )
        finally:
            stop.set()

    # -- streams and forks -------------------------------------------------------------------

    async def _runs_live(self, request: Request) -> EventStream:
        return self._live.runs(self._closing)

    async def _run_live(self, request: Request) -> EventStream:
        after = request.headers.get("last-event-id") or request.query_params.get("after", "")
        return await self._live.run(_run_id(request), after, self._closing)

    async def _fork(self, request: Request) -> Response:
        body = await _body(request)
        try:
            order = msgspec.json.decode(body, type=ForkRequest)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"this is not a request to fork a run: {error}") from error
        start = self._forks.start(order.run_id, order.step, order.edited)
        return json_response({"run_id": await self._while_open(request, start)})


def _stream(path: str, endpoint: Callable[[Request], Any]) -> Route:
    """A route without HEAD, which a stream could never answer."""
    route = Route(path, endpoint, methods=["GET"])
    route.methods = {"GET"}
    return route


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise HTTPException(413)
    return bytes(body)


def _part(request: Request, name: str) -> str:
    """Return a decoded part of the path."""
    return unquote(request.path_params[name])


def _run_id(request: Request) -> str:
    run_id = _part(request, "run_id")
    if len(run_id) > MAX_ID_CHARS:
        raise Unknown("there is no such run here")
    return run_id


def _number(request: Request, name: str, default: int, maximum: int | None = None) -> int:
    """Return a number of the query string, but never more than the maximum."""
    text = request.query_params.get(name)
    number = default if text is None else _whole_number(text, name)
    return number if maximum is None else min(number, maximum)


def _whole_number(text: str, name: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 15):
        raise ConfigError(f"{name} must be a whole number, 0 or more")
    return int(text)
