"""Routes that answer about one run: its timeline, and its context line by line."""

import threading

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rlm.errors import ConfigError
from rlm.viewer.routes import (
    LibraryRoutes,
    number_of,
    part_of_path,
    run_id_of,
    whole_number,
)

__all__ = ["ReadingRoutes"]

MAX_ROWS = 20_000
MAX_ABOVE = 100
MAX_FOUND = 500
MAX_WORDS_CHARS = 1_000


class ReadingRoutes(LibraryRoutes):
    """Makes the routes of pages that read more of a run, the same below any prefix."""

    def below(self, prefix: str) -> list[Route]:
        run = f"{prefix}/runs/{{run_id}}"
        return [
            Route(f"{run}/timeline", self._timeline),
            Route(f"{run}/steps/{{step}}/code", self._code),
            Route(f"{run}/context/rows", self._rows),
            Route(f"{run}/context/find", self._find),
            Route(f"{run}/citations/{{number}}", self._citation),
        ]

    async def _timeline(self, request: Request) -> Response:
        answers = self._view_of(request).answers
        limit = number_of(request, "limit", MAX_ROWS, MAX_ROWS)
        return await self._answer(request, answers.timeline, run_id_of(request), limit)

    async def _code(self, request: Request) -> Response:
        step = whole_number(part_of_path(request, "step"), "step")
        answers = self._view_of(request).answers
        return await self._answer(request, answers.code, run_id_of(request), step)

    async def _rows(self, request: Request) -> Response:
        """Answer with rows around a character (`at`), or around a line of a document."""
        answers, run_id = self._view_of(request).answers, run_id_of(request)
        above = number_of(request, "above", 0, MAX_ABOVE)
        if "line" in request.query_params:
            document, line = number_of(request, "document", 0), number_of(request, "line", 1)
            return await self._answer(request, answers.context_line, run_id, document, line, above)
        at = number_of(request, "at", 0)
        return await self._answer(request, answers.context_page, run_id, at, above)

    async def _find(self, request: Request) -> Response:
        """Search the context until the client disconnects."""
        words = request.query_params.get("q", "")
        if not words or len(words) > MAX_WORDS_CHARS:
            raise ConfigError(f"search for 1 to {MAX_WORDS_CHARS:,} characters")
        start, limit = number_of(request, "from", 0), number_of(request, "limit", 100, MAX_FOUND)
        stop, run_id = threading.Event(), run_id_of(request)
        find = self._view_of(request).answers.context_find
        try:
            return await self._answer(request, find, run_id, words, start, max(1, limit), stop)
        finally:
            stop.set()

    async def _citation(self, request: Request) -> Response:
        number = whole_number(part_of_path(request, "number"), "number")
        answers = self._view_of(request).answers
        return await self._answer(request, answers.citation, run_id_of(request), number)
