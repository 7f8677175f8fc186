"""The viewer as an ASGI application: its routes, and the page's files."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from rlm._util.slow_numbers import decode
from rlm.errors import ConfigError
from rlm.records.judging import Judgments
from rlm.viewer.access import HEADERS, ViewerAccess, error_response
from rlm.viewer.acting import ActionRoutes, Actions
from rlm.viewer.assets import STATIC, load_assets, page_with
from rlm.viewer.contexts import Contexts
from rlm.viewer.forking import MAX_EDIT_CHARS, Engines, Forks
from rlm.viewer.library import Library, Threads
from rlm.viewer.list_routes import ListRoutes
from rlm.viewer.opened import MAX_FILE_BYTES, OpenedFiles
from rlm.viewer.reading_routes import ReadingRoutes
from rlm.viewer.results import ResultRoutes, Results
from rlm.viewer.routes import LibraryView, RunRoutes
from rlm.viewer.run_list import RunList
from rlm.web.border import Border, sent_path
from rlm.web.events import while_connected
from rlm.web.responses import json_response

__all__ = ["NOTHING_YET", "ViewerApp"]

MAX_BODY_BYTES = 8 * MAX_EDIT_CHARS
NOTHING_YET = "No runs yet. They will appear here as soon as they start."
OPENED = "/api/opened/{opened_id}"
WHY_NOT_FORK_OPENED = "an opened file can't be forked; `rlm view` lists the runs that can"


class ForkRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """What the page sends to fork a run."""

    run_id: str
    step: int
    edited: str | None = None


class ViewerApp:
    """Answers the page's requests. `start` it before the first one, and `close` it at the end."""

    def __init__(
        self,
        library: Library,
        contexts: Contexts,
        engines: Engines | None,
        access: ViewerAccess,
        *,
        static: Path = STATIC,
        version: str = "",
        judgments: Judgments | None = None,
        index: Path | None = None,
        empty: str = NOTHING_YET,
        opens_files: bool = True,
        more_facts: Mapping[str, Any] | None = None,
    ) -> None:
        self.access = access
        self._opens_files = opens_files
        self._more_facts = more_facts or {}
        self._empty = empty
        self._version = version
        self._library = library
        self._assets = load_assets(static)
        self._threads = Threads()
        self._view = LibraryView(library, contexts, self._threads)
        self._list = RunList(library, judgments, index)
        self._judgments = judgments
        self._opened = OpenedFiles(contexts, self._threads)
        self._forks = Forks(library.archive, engines, self._threads)
        self._results = Results(library)
        self._closing = asyncio.Event()
        self.routes = self._all_routes()
        self._app = Border(self._routed(), access.admit, error_response, HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    async def start(self) -> None:
        await self._threads.run(self._library.start)
        self._list.start()

    def stop(self) -> None:
        """End streams and requests."""
        self._closing.set()
        self._view.end()
        self._list.close()

    async def close(self) -> None:
        self.stop()
        await self._forks.close()
        self._opened.close()
        self._threads.close()

    def _all_routes(self) -> list[Route]:
        runs = RunRoutes(self._view_of, self._threads, self._closing)
        lists = ListRoutes(self._list_of, self._threads, self._closing)
        reading = ReadingRoutes(self._view_of, self._threads, self._closing)
        actions = Actions(self._forks, self._threads)
        results = ResultRoutes(self._results, self._threads, self._closing)
        acting = ActionRoutes(self._view_of, actions, self._threads, self._closing, self._judgments)
        return [
            Route("/api/viewer", self._viewer),
            *lists.below("/api"),
            *lists.judging("/api"),
            *runs.below("/api"),
            *reading.below("/api"),
            *acting.below("/api"),
            *acting.changing(),
            *results.below("/api"),
            *(self._opened_routes(lists, runs, reading, acting) if self._opens_files else ()),
            Route("/api/fork", self._fork, methods=["POST"]),
            Route("/{path:path}", self._asset),
        ]

    def _routed(self) -> ASGIApp:
        router = Router(self.routes, redirect_slashes=False)

        async def routed(scope: Scope, receive: Receive, send: Send) -> None:
            """Match the path as it was sent: the id of a run may contain an encoded slash."""
            sent = sent_path(scope)
            if not sent:
                await _to_slash(scope)(scope, receive, send)
            else:
                below = {"path": sent, "root_path": "", "rlm.prefix": scope.get("root_path", "")}
                await router({**scope, **below}, receive, send)

        return routed

    def _opened_routes(
        self, *shown: ListRoutes | RunRoutes | ReadingRoutes | ActionRoutes
    ) -> list[Route]:
        return [
            Route("/api/opened", self._open_limits),
            Route("/api/opened", self._open, methods=["POST"]),
            Route(OPENED, self._close_opened, methods=["DELETE"]),
            Route(f"{OPENED}/viewer", self._opened_viewer),
            *(route for each in shown for route in each.below(OPENED)),
        ]

    def _view_of(self, request: Request) -> LibraryView:
        """Return what a request is about: an opened file, or the library of the viewer."""
        opened_id = request.path_params.get("opened_id")
        return self._view if opened_id is None else self._opened.find(opened_id)

    def _list_of(self, request: Request) -> RunList:
        opened_id = request.path_params.get("opened_id")
        return self._list if opened_id is None else RunList(self._opened.find(opened_id).library)

    # -- the page ----------------------------------------------------------------------------

    async def _asset(self, request: Request) -> Response:
        path = unquote(request.scope["path"])
        asset = self._assets.get(path)
        if asset is None:
            raise HTTPException(404)
        is_page = path == "/"
        body = page_with(asset.data, self.access.page_token(request)) if is_page else asset.data
        response = Response(body, media_type=asset.media_type)
        if asset.lasting:
            response.headers["Cache-Control"] = "private, max-age=31536000, immutable"
        if is_page:
            self.access.set_cookie(request, response)
        return response

    async def _viewer(self, request: Request) -> Response:
        response = self._facts(self._view, self._forks.why_not, live=True)
        self.access.set_cookie(request, response)
        return response

    def _facts(self, view: LibraryView, why_not_fork: str | None, *, live: bool) -> Response:
        return json_response(
            {
                "version": self._version,
                "title": view.library.title,
                "can_fork": why_not_fork is None,
                "why_not_fork": why_not_fork,
                "live": live,
                "empty": self._empty if live else "",
                "can_open": self._opens_files,
                **self._more_facts,
                "can_judge": live and self._list.can_judge,
                "can_search": live and self._list.can_search,
                "has_results": live and self._results.exist,
            }
        )

    # -- opened files ------------------------------------------------------------------------

    async def _open_limits(self, request: Request) -> Response:
        return json_response({"max_bytes": MAX_FILE_BYTES})

    async def _open(self, request: Request) -> Response:
        name, claimed = request.query_params.get("name", ""), request.headers.get("content-length")
        size_bytes = int(claimed) if claimed is not None else None  # h11 has checked the number.
        opening = self._opened.add(name, size_bytes, request.stream())
        return json_response({"id": await while_connected(None, opening, self._closing)})

    async def _opened_viewer(self, request: Request) -> Response:
        # No cookie here: an id of a file must never lead to the token.
        return self._facts(self._view_of(request), WHY_NOT_FORK_OPENED, live=False)

    async def _close_opened(self, request: Request) -> Response:
        self._opened.remove(request.path_params["opened_id"])
        return json_response({})

    # -- forks -------------------------------------------------------------------------------

    async def _fork(self, request: Request) -> Response:
        body = await _body(request)
        try:
            order = decode(body, ForkRequest)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"this is not a request to fork a run: {error}") from error
        start = self._forks.start(order.run_id, order.step, order.edited)
        return json_response(
            {"run_id": await while_connected(request.receive, start, self._closing)}
        )


def _to_slash(scope: Scope) -> Response:
    """Redirect to the address with a slash at its end: the page's relative addresses need it."""
    last = quote(scope["path"].rstrip("/").rpartition("/")[2])
    query = scope.get("query_string", b"").decode("latin-1")
    location = f"{last}/{f'?{query}' if query else ''}"
    return Response(status_code=307, headers={"Location": location, "Cache-Control": "no-store"})


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise HTTPException(413)
    return bytes(body)
