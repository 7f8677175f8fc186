"""The viewer at `/view` of a server with tokens: each token sees its own runs, and no others.

A browser signs in with a token once; then a cookie that this server has signed names the token.
Every token has its own viewer, with its own files, search index and streams.
"""

import asyncio
import hashlib
import hmac
import re
import secrets
import sqlite3
import time
from collections import OrderedDict
from contextlib import closing
from pathlib import Path

from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from rlm._util.distribution import own_version
from rlm.errors import ConfigError
from rlm.records.journal import Archive, Places
from rlm.records.judging import Judgments
from rlm.records.searching import index_path
from rlm.records.trajectories.read import MAX_FILES
from rlm.server.errors import ApiError
from rlm.server.tokens import Token, Tokens
from rlm.viewer.access import HEADERS, SAFE_METHODS, Refused, error_response
from rlm.viewer.application import ViewerApp
from rlm.viewer.assets import STATIC, load_assets
from rlm.viewer.contexts import Contexts
from rlm.viewer.library import Library
from rlm.viewer.mounting import is_own_page
from rlm.web.border import Border, path_of, sent_path
from rlm.web.responses import json_response

__all__ = ["PREFIX", "TenantRuns", "TenantViewers", "at_prefix"]

PREFIX = "/view"
MAX_VIEWERS = 32
MAX_KEPT_EVENTS = 1_000_000
"""Limits on what the server keeps in memory, for all viewers and for each of them."""

SESSION_SECONDS = 12 * 3_600
MAX_ENDED = 10_000
"""How many ended sessions are remembered."""
SIGN_IN = "sign in with a token of this server"
EMPTY = (
    "No runs yet. Background runs (POST /v1/runs), and requests that name a run_id, appear here as "
    "soon as they start; other requests are not recorded."
)
_COOKIE = re.compile(r"([A-Za-z0-9._-]{1,64})\.([0-9]{1,12}-[0-9a-f]{16})\.([0-9a-f]{64})")


def at_prefix(viewer: ASGIApp) -> ASGIApp:
    """Return a viewer for requests whose path begins with `PREFIX`."""

    async def mounted(scope: Scope, receive: Receive, send: Send) -> None:
        root = scope.get("root_path", "") + PREFIX
        await viewer({**scope, "root_path": root}, receive, send)

    return mounted


class TenantRuns(Struct, frozen=True):
    """The journaled runs of one token, as the server's table names them."""

    table: Path
    token: str
    places: Places

    @property
    def title(self) -> str:
        return f"runs of {self.token}"

    @property
    def archive(self) -> None:
        """None: a server's runs are changed through its interface, within the token's budget."""
        return

    def paths(self) -> list[Path]:
        find = "select run_id from runs where token = ? order by created desc limit ?"
        try:
            address = f"{self.table.absolute().as_uri()}?mode=ro"
            with closing(sqlite3.connect(address, uri=True)) as database:
                rows = database.execute(find, (self.token, MAX_FILES)).fetchall()
        except sqlite3.Error as error:
            raise ConfigError("the table of runs can't be read") from error
        found = [self.places.journal_of(run_id) for (run_id,) in rows]
        return [path for path in found if path.is_file() and not path.is_symlink()]


class Sessions:
    """Signed cookies that name a token.

    They end with the server, when the user signs out, or after `SESSION_SECONDS`.
    """

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._by_name = {token.name: token for token in tokens.all}
        self._secret = secrets.token_bytes(32)
        self._ended: dict[str, float] = {}

    def token_of(self, request: Request) -> Token | None:
        """Return the token of a request, by its header or its cookie; None without one."""
        headers = request.headers.getlist("authorization")
        if headers:
            try:
                return self._tokens.find(headers)
            except ApiError:
                return None
        found = _COOKIE.fullmatch(request.cookies.get(_cookie_name(request), ""))
        token = None if found is None else self._by_name.get(found[1])
        if found is None or token is None:
            return None
        age = time.time() - int(found[2].partition("-")[0])
        is_ours = hmac.compare_digest(found[3], self._sign(token, found[2]))
        is_open = 0 <= age <= SESSION_SECONDS and found[2] not in self._ended
        return token if is_ours and is_open else None

    def cookie_for(self, request: Request, token: Token) -> str:
        issued = f"{int(time.time())}-{secrets.token_hex(8)}"
        value = f"{token.name}.{issued}.{self._sign(token, issued)}"
        return f"{_cookie_name(request)}={value}; Max-Age={SESSION_SECONDS}; {_rules(request)}"

    def end(self, request: Request) -> None:
        """End the session of a request's cookie, and of all copies of it."""
        found = _COOKIE.fullmatch(request.cookies.get(_cookie_name(request), ""))
        if found is None or self.token_of(request) is None:
            return
        now = time.time()
        self._ended = {each: until for each, until in self._ended.items() if until > now}
        self._ended[found[2]] = now + SESSION_SECONDS
        while len(self._ended) > MAX_ENDED:
            del self._ended[next(iter(self._ended))]

    def page_token(self, token: Token) -> str:
        """Return the text that a token's pages send with requests that change something."""
        return self._sign(token, "page")

    def _sign(self, token: Token, what: str) -> str:
        text = f"{token.name}\n{token.digest}\n{what}".encode()
        return hmac.new(self._secret, text, hashlib.sha256).hexdigest()


def _cookie_name(request: Request) -> str:
    """Return the name of the cookie. Cookies ignore ports, so the name contains the port."""
    server = request.scope.get("server") or ("", 0)
    return f"rlm-view-{server[1] or 0}"


def _rules(request: Request) -> str:
    secure = "; Secure" if request.url.scheme == "https" else ""
    return f"Path=/; HttpOnly; SameSite=Strict{secure}"


class _TenantAccess:
    """Admits requests of one token, which `TenantViewers` has already identified."""

    def __init__(self, sessions: Sessions, token: Token) -> None:
        self._sessions = sessions
        self._token = token

    def admit(self, request: Request) -> None:
        found = self._sessions.token_of(request)
        if found is None or found.name != self._token.name:
            raise Refused(SIGN_IN)
        if request.method not in SAFE_METHODS:
            if not is_own_page(request):
                raise Refused("only the viewer's own page may make changes")
            shown = request.headers.get("x-rlm-token", "")
            own = self._sessions.page_token(self._token)
            if not hmac.compare_digest(shown.encode(), own.encode()):
                raise Refused("this page belongs to an earlier sign-in: reload it")

    def page_token(self, request: Request) -> str:
        return self._sessions.page_token(self._token)

    def set_cookie(self, request: Request, response: Response) -> None:
        """Do nothing: signing in has set it."""


class TenantViewers:
    """One viewer per token, created on first use; the least recently used ones are closed."""

    def __init__(
        self, tokens: Tokens, archive: Archive, folder: Path, *, static: Path = STATIC
    ) -> None:
        self._sessions = Sessions(tokens)
        self._tokens = tokens
        self._archive = archive
        self._table = folder / "runs.sqlite"
        self._static = static
        self._assets = load_assets(static)
        self._viewers: OrderedDict[str, ViewerApp] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()
        self._stopped = False
        self._app = Border(self._dispatch, self._admit, _error_response, HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    async def start(self) -> None:
        """Do nothing: viewers start with their first request."""

    def stop(self) -> None:
        self._stopped = True
        for viewer in self._viewers.values():
            viewer.stop()

    async def close(self) -> None:
        self.stop()
        for viewer in self._viewers.values():
            await viewer.close()
        self._viewers.clear()
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _admit(self, request: Request) -> str | None:
        """Return the name of the token that signed in; raise Refused for pages of other sites."""
        site = request.headers.get("sec-fetch-site", "none")
        if path_of(request.scope).startswith("/api/") and site not in {"same-origin", "none"}:
            raise Refused("pages of other sites may not use this viewer")
        token = self._sessions.token_of(request)
        return None if token is None else token.name

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, path = Request(scope, receive), sent_path(scope)
        answer: ASGIApp
        if path == "/api/sign-in":
            answer = self._sign_in(request)
        elif path == "/api/sign-out":
            answer = self._sign_out(request)
        elif (token := self._sessions.token_of(request)) is not None:
            answer = await self._viewer_of(token)
        else:
            answer = self._page(path)
        await answer(scope, receive, send)

    def _page(self, path: str) -> Response:
        """Return the page for users who have not signed in; its files are the same for all."""
        if path.startswith("/api/"):
            raise HTTPException(401)
        asset = self._assets.get(path or "/")
        if asset is None:
            raise HTTPException(404)
        if not path:
            return Response(status_code=307, headers={"Location": f"{PREFIX[1:]}/"})
        return Response(asset.data, media_type=asset.media_type)

    def _sign_in(self, request: Request) -> Response:
        if request.method != "POST":
            raise HTTPException(405)
        if not is_own_page(request):
            raise Refused("only the viewer's own page may sign in")
        try:
            token = self._tokens.find(request.headers.getlist("authorization"))
        except ApiError:
            return json_response({"error": "this token is unknown"}, 401)
        response = json_response({"name": token.name})
        response.headers.append("Set-Cookie", self._sessions.cookie_for(request, token))
        return response

    def _sign_out(self, request: Request) -> Response:
        if request.method != "POST":
            raise HTTPException(405)
        if not is_own_page(request):
            raise Refused("only the viewer's own page may sign out")
        self._sessions.end(request)
        response = json_response({})
        gone = f"{_cookie_name(request)}=; Max-Age=0; {_rules(request)}"
        response.headers.append("Set-Cookie", gone)
        return response

    async def _viewer_of(self, token: Token) -> ViewerApp:
        viewer = self._viewers.pop(token.name, None)
        if viewer is None:
            if self._stopped:
                raise HTTPException(503)
            viewer = self._viewers[token.name] = self._new_viewer(token)
            try:
                await viewer.start()
            except BaseException:  # The next request tries again with another one.
                self._viewers.pop(token.name, None)
                await viewer.close()
                raise
        else:
            self._viewers[token.name] = viewer  # Now the most recently used one.
        while len(self._viewers) > MAX_VIEWERS:
            _, oldest = self._viewers.popitem(last=False)
            task = asyncio.create_task(oldest.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        return viewer

    def _new_viewer(self, token: Token) -> ViewerApp:
        places = self._archive.places
        library = Library(
            TenantRuns(self._table, token.name, places),
            hides_settings=True,
            max_kept_events=MAX_KEPT_EVENTS,
        )
        return ViewerApp(
            library,
            Contexts(self._archive.contexts),
            None,
            _TenantAccess(self._sessions, token),
            static=self._static,
            version=own_version(),
            judgments=Judgments(places.root),
            index=index_path(places.root, f"token {token.name}"),
            empty=EMPTY,
            opens_files=False,
            more_facts={"signed_in": token.name},
        )


def _error_response(error: Exception) -> Response:
    if isinstance(error, HTTPException) and error.status_code == 401:
        return json_response({"error": SIGN_IN}, 401)
    return error_response(error)
