"""The server: addresses to answers, from its start to its end."""

import errno
import re
import threading
from pathlib import Path

import msgspec
from aiohttp import web
from msgspec import Struct

from rlm.errors import ConfigError
from rlm.viewer import DEFAULT_PORT
from rlm.viewer._border import answer_of, border, shows_token, with_headers
from rlm.viewer.assets import STATIC, load_assets, page_with
from rlm.viewer.contexts import ContextDesk
from rlm.viewer.forking import MOST_EDIT_CHARS, Engines, Forks
from rlm.viewer.guard import Doors
from rlm.viewer.library import Library, Unknown
from rlm.viewer.live import Live
from rlm.viewer.told import Teller
from rlm.viewer.work import Work

__all__ = ["ViewerServer"]

MOST_ID_CHARS = 500
MOST_QUERY_CHARS = 1_000
MOST_CONTEXT_CHARS = 100_000
MOST_EVENTS = 2_000
MOST_CALLS = 20_000
MOST_HITS = 1_000
MOST_BODY_BYTES = 8 * MOST_EDIT_CHARS
_FIELD = re.compile(r"[^/\x00-\x1f]{1,300}")


class ForkOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """What a page sends to fork a run."""

    run_id: str
    step: int
    edited: str | None = None


class ViewerServer:
    """`async with ViewerServer(…) as server`: it answers at `server.url` until the block ends."""

    def __init__(
        self,
        library: Library,
        contexts: ContextDesk,
        engines: Engines | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        token: str | None = None,
        needs_token: bool = True,
        static: Path = STATIC,
        version: str = "",
    ) -> None:
        self._version = version
        self._library = library
        self._assets = load_assets(static)
        self._host = host
        self.doors = Doors(host, port, token=token, needs_token=needs_token)
        self._work = Work()
        self._teller = Teller(library, contexts)
        self._live = Live(library, self._work)
        self._forks = Forks(library.archive, engines, self._work)
        self._runner: web.AppRunner | None = None

    # -- from start to end -------------------------------------------------------------------

    @property
    def url(self) -> str:
        """What to open; with the token, if one is needed."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        more = f"?token={self.doors.token}" if self.doors.needs_token else ""
        return f"http://{host}:{self.doors.port}/{more}"

    async def __aenter__(self) -> "ViewerServer":
        self._runner = web.AppRunner(
            self._app(), handler_cancellation=True, access_log=None, shutdown_timeout=0.5
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self.doors.port)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise ConfigError(_why_not_here(error, self._host, self.doors.port)) from error
        if self.doors.port == 0:
            self.doors.port = self._runner.addresses[0][1]
        await self._work.run(self._library.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._library.end()
        if self._runner is not None:
            await self._runner.cleanup()
        await self._forks.close()
        self._work.close()

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[border(self.doors)], client_max_size=MOST_BODY_BYTES)
        app.on_response_prepare.append(with_headers)
        run = "/api/runs/{run_id}"
        app.add_routes(
            [
                web.get("/api/viewer", self._viewer),
                web.get("/api/runs", self._runs),
                web.get("/api/live", self._live.runs, allow_head=False),
                web.get(run, self._run),
                web.get(f"{run}/steps/{{step}}", self._step),
                web.get(f"{run}/events/{{index}}/text/{{field}}", self._text),
                web.get(f"{run}/calls", self._calls),
                web.get(f"{run}/usage", self._usage),
                web.get(f"{run}/coverage", self._coverage),
                web.get(f"{run}/context", self._context),
                web.get(f"{run}/search", self._search),
                web.get(f"{run}/live", self._run_live, allow_head=False),
                web.post("/api/fork", self._fork),
                web.get("/{path:.*}", self._asset),
            ]
        )
        return app

    # -- the page ----------------------------------------------------------------------------

    async def _asset(self, request: web.Request) -> web.StreamResponse:
        asset = self._assets.get(request.path)
        if asset is None:
            raise Unknown("there is nothing at this address")
        is_page = request.path == "/"
        body = page_with(asset.data, self.doors.token) if is_page else asset.data
        response = web.Response(body=body, headers={"Content-Type": _type(asset.kind)})
        if asset.lasting:
            response.headers["Cache-Control"] = "private, max-age=31536000, immutable"
        return self._with_cookie(request, response) if is_page else response

    def _with_cookie(self, request: web.Request, response: web.Response) -> web.Response:
        """The token of the address, which the page removes from there, becomes a cookie."""
        if self.doors.needs_token and shows_token(request, self.doors):
            response.set_cookie(
                self.doors.cookie, self.doors.token, httponly=True, samesite="Strict", path="/"
            )
        return response

    # -- answers -----------------------------------------------------------------------------

    async def _viewer(self, request: web.Request) -> web.StreamResponse:
        facts = answer_of(
            {
                "version": self._version,
                "title": self._library.title,
                "can_fork": self._forks.why_not is None,
                "why_not_fork": self._forks.why_not,
                "live": True,
            }
        )
        return self._with_cookie(request, facts)

    async def _runs(self, request: web.Request) -> web.StreamResponse:
        return answer_of(await self._work.run(self._teller.runs))

    async def _run(self, request: web.Request) -> web.StreamResponse:
        return answer_of(await self._work.run(self._teller.run, _run_id(request)))

    async def _step(self, request: web.Request) -> web.StreamResponse:
        step = _whole(request.match_info["step"], "step")
        offset, limit = _number(request, "offset", 0), _number(request, "limit", 500, MOST_EVENTS)
        found = await self._work.run(self._teller.step, _run_id(request), step, offset, limit)
        return answer_of(found)

    async def _text(self, request: web.Request) -> web.StreamResponse:
        number, field = _whole(request.match_info["index"], "index"), request.match_info["field"]
        if not _FIELD.fullmatch(field):
            raise Unknown("no event has such a field")
        return answer_of(await self._work.run(self._teller.text, _run_id(request), number, field))

    async def _calls(self, request: web.Request) -> web.StreamResponse:
        limit = _number(request, "limit", MOST_CALLS, MOST_CALLS)
        return answer_of(await self._work.run(self._teller.calls, _run_id(request), limit))

    async def _usage(self, request: web.Request) -> web.StreamResponse:
        return answer_of(await self._work.run(self._teller.usage, _run_id(request)))

    async def _coverage(self, request: web.Request) -> web.StreamResponse:
        return answer_of(await self._work.run(self._teller.coverage, _run_id(request)))

    async def _context(self, request: web.Request) -> web.StreamResponse:
        start = _number(request, "start", 0)
        end = min(_number(request, "end", start + 2_000), start + MOST_CONTEXT_CHARS)
        return answer_of(await self._work.run(self._teller.context, _run_id(request), start, end))

    async def _search(self, request: web.Request) -> web.StreamResponse:
        """Ends when nobody waits for it any more."""
        query = request.query.get("q", "")
        if not query or len(query) > MOST_QUERY_CHARS:
            raise ConfigError(f"search for something of 1 to {MOST_QUERY_CHARS:,} characters")
        limit, stop = _number(request, "limit", 200, MOST_HITS), threading.Event()
        try:
            run_id = _run_id(request)
            return answer_of(await self._work.run(self._teller.search, run_id, query, limit, stop))
        finally:
            stop.set()

    async def _run_live(self, request: web.Request) -> web.StreamResponse:
        after = request.headers.get("Last-Event-ID") or request.query.get("after", "")
        return await self._live.run(request, _run_id(request), after)

    async def _fork(self, request: web.Request) -> web.StreamResponse:
        try:
            order = msgspec.json.decode(await request.read(), type=ForkOrder)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"that is no order to fork a run: {error}") from error
        return answer_of(
            {"run_id": await self._forks.start(order.run_id, order.step, order.edited)}
        )


def _run_id(request: web.Request) -> str:
    run_id = request.match_info["run_id"]
    if len(run_id) > MOST_ID_CHARS:
        raise Unknown("there is no such run here")
    return run_id


def _number(request: web.Request, name: str, usual: int, most: int | None = None) -> int:
    """A whole number of the address; more than the most is the most."""
    text = request.query.get(name)
    number = usual if text is None else _whole(text, name)
    return number if most is None else min(number, most)


def _whole(text: str, name: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 15):
        raise ConfigError(f"{name} must be a whole number, 0 or more")
    return int(text)


def _type(kind: str) -> str:
    is_text = kind.startswith(("text/", "image/svg"))
    return f"{kind}; charset=utf-8" if is_text else kind


def _why_not_here(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is taken, perhaps by another viewer; choose one with --port N"
    if error.errno in {errno.EACCES, errno.EPERM}:
        return f"port {port} is not for everyone; choose one above 1024 with --port N"
    return f"the viewer can't listen at {host}:{port}: {error.strerror or error}"
