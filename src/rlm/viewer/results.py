"""Results of benchmarks and batches, which a source of runs may offer with its runs."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rlm.viewer.library import Library, Threads, Unknown, WatchedSource
from rlm.viewer.record_files import Stamp, stamp_of
from rlm.web.events import while_connected
from rlm.web.responses import json_response

__all__ = ["ResultRoutes", "ResultSource", "Results"]


@runtime_checkable
class ResultSource(WatchedSource, Protocol):
    """What a RunSource may also offer: results as plain values, from the watched files."""

    def results(self) -> dict[str, Any]: ...


class Results:
    """The results of one library; read again only after their files have changed."""

    def __init__(self, library: Library) -> None:
        self._source = library.source if isinstance(library.source, ResultSource) else None
        self._reading = threading.Lock()
        self._last: tuple[list[Stamp], dict[str, Any]] | None = None

    @property
    def exist(self) -> bool:
        return self._source is not None

    def plain(self) -> dict[str, Any]:
        if self._source is None:
            raise Unknown("there are no results here; open a folder of `rlm bench run` or a batch")
        with self._reading:
            stamps = [stamp_of(path) for path in self._source.watched()]
            if self._last is None or self._last[0] != stamps:
                self._last = stamps, self._source.results()
            return self._last[1]


class ResultRoutes:
    """The route of the results."""

    def __init__(self, results: Results, threads: Threads, closing: asyncio.Event) -> None:
        self._results = results
        self._threads = threads
        self._closing = closing

    def below(self, prefix: str) -> list[Route]:
        answer: Callable[[Request], Any] = self._answer
        return [Route(f"{prefix}/results", answer)]

    async def _answer(self, request: Request) -> Response:
        work = self._threads.run(self._results.plain)
        return json_response(await while_connected(request.receive, work, self._closing))
