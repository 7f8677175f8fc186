"""The routes that answer about runs: those of the viewer's library, and those of opened files."""

import asyncio
import re
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rlm.errors import ConfigError
from rlm.viewer.answers import FIELD_CHARS, Answers
from rlm.viewer.contexts import Contexts
from rlm.viewer.library import Library, Threads, Unknown
from rlm.viewer.live import Live
from rlm.viewer.run_answers import RunAnswers
from rlm.web.events import EventStream, while_connected
from rlm.web.responses import json_response

__all__ = [
    "LibraryRoutes",
    "LibraryView",
    "RunRoutes",
    "ThreadedRoutes",
    "number_of",
    "part_of_path",
    "run_id_of",
    "whole_number",
]

MAX_ID_CHARS = 500
MAX_QUERY_CHARS = 1_000
MAX_CONTEXT_CHARS = 100_000
MAX_EVENTS = 2_000
MAX_CALLS = 20_000
MAX_HITS = 1_000
MAX_WAIT_SECONDS = 10
_FIELD = re.compile(rf"[^/\x00-\x1f]{{1,{FIELD_CHARS}}}")


class LibraryView:
    """A library with everything that answers about it."""

    def __init__(self, library: Library, contexts: Contexts, threads: Threads) -> None:
        self.library = library
        self.answers = RunAnswers(library, contexts)
        self.live = Live(library, threads)

    def end(self) -> None:
        """End what reads the library in the background."""
        self.library.end()
        self.answers.close()


class ThreadedRoutes:
    """Routes whose answers are found in threads, because finding them reads files."""

    def __init__(self, threads: Threads, closing: asyncio.Event) -> None:
        self._threads = threads
        self._closing = closing

    async def _answer(
        self, request: Request, find: Callable[..., Any], *arguments: Any
    ) -> Response:
        """Answer from a thread; give up if the client leaves or the viewer is closing."""
        work = self._threads.run(find, *arguments)
        return json_response(await while_connected(request.receive, work, self._closing))


class LibraryRoutes(ThreadedRoutes):
    """Routes about a library of runs; `view_of` finds the library that a request means."""

    def __init__(
        self,
        view_of: Callable[[Request], LibraryView],
        threads: Threads,
        closing: asyncio.Event,
    ) -> None:
        super().__init__(threads, closing)
        self._view_of = view_of


class RunRoutes(LibraryRoutes):
    """Makes the routes of runs, the same below any prefix."""

    def below(self, prefix: str) -> list[Route]:
        run = f"{prefix}/runs/{{run_id}}"
        return [
            Route(f"{prefix}/runs", self._runs),
            _stream(f"{prefix}/live", self._runs_live),
            Route(run, self._run),
            Route(f"{run}/steps/{{step}}", self._step),
            Route(f"{run}/events/{{index}}/text/{{field}}", self._text),
            Route(f"{run}/calls", self._calls),
            Route(f"{run}/usage", self._usage),
            Route(f"{run}/coverage", self._coverage),
            Route(f"{run}/context", self._context),
            Route(f"{run}/search", self._search),
            _stream(f"{run}/live", self._run_live),
        ]

    def _answers(self, request: Request) -> Answers:
        return self._view_of(request).answers

    # -- answers -----------------------------------------------------------------------------

    async def _runs(self, request: Request) -> Response:
        return await self._answer(request, self._answers(request).runs)

    async def _run(self, request: Request) -> Response:
        return await self._answer(request, self._answers(request).run, run_id_of(request))

    async def _step(self, request: Request) -> Response:
        step = whole_number(part_of_path(request, "step"), "step")
        offset = number_of(request, "offset", 0)
        limit = number_of(request, "limit", 500, MAX_EVENTS)
        return await self._answer(
            request, self._answers(request).step, run_id_of(request), step, offset, limit
        )

    async def _text(self, request: Request) -> Response:
        number = whole_number(part_of_path(request, "index"), "index")
        field = part_of_path(request, "field")
        if not _FIELD.fullmatch(field):
            raise Unknown("no event has such a field")
        return await self._answer(
            request, self._answers(request).text, run_id_of(request), number, field
        )

    async def _calls(self, request: Request) -> Response:
        limit = number_of(request, "limit", MAX_CALLS, MAX_CALLS)
        return await self._answer(request, self._answers(request).calls, run_id_of(request), limit)

    async def _usage(self, request: Request) -> Response:
        return await self._answer(request, self._answers(request).usage, run_id_of(request))

    async def _coverage(self, request: Request) -> Response:
        """Answer with the map; after `wait` seconds, with how much of it is done."""
        wait = number_of(request, "wait", MAX_WAIT_SECONDS, MAX_WAIT_SECONDS)
        find = self._answers(request).coverage
        return await self._answer(request, find, run_id_of(request), wait)

    async def _context(self, request: Request) -> Response:
        start = number_of(request, "start", 0)
        end = min(number_of(request, "end", start + 2_000), start + MAX_CONTEXT_CHARS)
        return await self._answer(
            request, self._answers(request).context, run_id_of(request), start, end
        )

    async def _search(self, request: Request) -> Response:
        """Search the events of a run until the client disconnects."""
        query = request.query_params.get("q", "")
        if not query or len(query) > MAX_QUERY_CHARS:
            raise ConfigError(f"search for 1 to {MAX_QUERY_CHARS:,} characters")
        limit, stop = number_of(request, "limit", 200, MAX_HITS), threading.Event()
        try:
            return await self._answer(
                request, self._answers(request).search, run_id_of(request), query, limit, stop
            )
        finally:
            stop.set()

    # -- streams -----------------------------------------------------------------------------

    async def _runs_live(self, request: Request) -> EventStream:
        return self._view_of(request).live.runs(self._closing)

    async def _run_live(self, request: Request) -> EventStream:
        after = request.headers.get("last-event-id") or request.query_params.get("after", "")
        return await self._view_of(request).live.run(run_id_of(request), after, self._closing)


def _stream(path: str, endpoint: Callable[[Request], Any]) -> Route:
    """Return a route without HEAD, which a stream could never answer."""
    route = Route(path, endpoint, methods=["GET"])
    route.methods = {"GET"}
    return route


def part_of_path(request: Request, name: str) -> str:
    """Return a decoded part of the path."""
    return unquote(request.path_params[name])


def run_id_of(request: Request) -> str:
    run_id = part_of_path(request, "run_id")
    if len(run_id) > MAX_ID_CHARS:
        raise Unknown("there is no such run here")
    return run_id


def number_of(request: Request, name: str, default: int, maximum: int | None = None) -> int:
    """Return a number from the query string, but never more than the maximum."""
    text = request.query_params.get(name)
    number = default if text is None else whole_number(text, name)
    return number if maximum is None else min(number, maximum)


def whole_number(text: str, name: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 15):
        raise ConfigError(f"{name} must be a whole number, 0 or more")
    return int(text)
