"""The viewer as an ASGI application that another web program mounts at any path."""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from inspect import iscoroutinefunction
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rlm._util.distribution import own_version
from rlm.errors import ConfigError
from rlm.records.journal import Archive, Places
from rlm.records.judging import Judgments
from rlm.records.searching import index_path
from rlm.viewer.access import SAFE_METHODS, Refused
from rlm.viewer.application import ViewerApp
from rlm.viewer.contexts import Contexts
from rlm.viewer.library import Folder, Journals, Library, OneFile, RunSource
from rlm.web.border import path_of
from rlm.web.hosts import HostPolicy, is_host
from rlm.web.tokens import LinkToken, bearer_token

__all__ = ["MountedAccess", "MountedViewer", "app", "is_own_page"]

Allow = Callable[[Request], bool]
COOKIE = "rlm-viewer-mounted"
NOBODY = (
    "say who may see the runs: app(token=…) for a secret in the address, or app(allow=…) with a "
    "function of the request, such as lambda request: request.user.is_authenticated"
)
NOT_ASYNC = (
    "allow= must be a plain function that returns True or False, not an async one: check whatever "
    "needs to be awaited in a middleware around the viewer"
)
OTHER_NAME = (
    "this viewer does not answer to this host name; the program that serves it sets the names that "
    "it answers to: rlm.viewer.app(hosts=[…])"
)
NO_NAMES = (
    "hosts is a list of names as browsers send them, such as ['runs.example.com'] or "
    "['localhost:8000'], or ['*'] for any"
)


def is_own_page(request: Request) -> bool:
    """Return whether a request claims to come from a page at the address it is sent to."""
    origins, hosts = request.headers.getlist("origin"), request.headers.getlist("host")
    if len(origins) != 1 or len(hosts) != 1:
        return False
    return origins[0] in {f"http://{hosts[0]}", f"https://{hosts[0]}"}


class MountedAccess:
    """Admits those who have the token, or whom the program around it allows."""

    def __init__(
        self, token: str | None, allow: Allow | None, hosts: Sequence[str] | None = None
    ) -> None:
        if token is None and allow is None:
            raise ConfigError(NOBODY)
        if iscoroutinefunction(allow):
            raise ConfigError(NOT_ASYNC)
        self._hosts = _host_policy(hosts, has_token=token is not None)
        self._allow = allow
        self._link = None if token is None else LinkToken(token)
        self._page = LinkToken()

    def admit(self, request: Request) -> None:
        """Raise Refused unless the request may be answered."""
        if self._hosts is not None and not self._hosts.allows_host(request.headers.getlist("host")):
            raise Refused(OTHER_NAME)
        site = request.headers.get("sec-fetch-site", "none")
        if path_of(request.scope).startswith("/api/") and site not in {"same-origin", "none"}:
            raise Refused("pages of other sites may not use this viewer")
        if self._allow is not None and self._allow(request) is not True:
            raise Refused("you may not see these runs")  # Anything else may be a mistake.
        if self._link is not None and not self._has_token(request):
            raise Refused("open this page with its token: add ?token=… to the address")
        if request.method not in SAFE_METHODS:
            if not is_own_page(request):
                raise Refused("only the viewer's own page may make changes")
            if not self._page.matches(request.headers.get("x-rlm-token")):
                raise Refused("this page belongs to an earlier viewer: reload it")

    def page_token(self, request: Request) -> str:
        return self._page.value

    def set_cookie(self, request: Request, response: Response) -> None:
        """Store the token of the address, which the page removes from it, in a cookie."""
        if self._link is None or not self._shows_token(request):
            return
        root = request.scope.get("rlm.prefix", "")
        secure = "; Secure" if request.url.scheme == "https" else ""
        path = f"Path={_cookie_path(root)}; SameSite=Strict; HttpOnly{secure}"
        response.headers.append("Set-Cookie", f"{COOKIE}={self._link.value}; {path}")

    def _has_token(self, request: Request) -> bool:
        assert self._link is not None
        return self._link.matches(request.cookies.get(COOKIE)) or self._shows_token(request)

    def _shows_token(self, request: Request) -> bool:
        assert self._link is not None
        if self._link.matches(bearer_token(request.headers.getlist("authorization"))):
            return True
        below = path_of(request.scope)
        return below in {"", "/"} and self._link.matches(request.query_params.get("token"))


def _host_policy(hosts: Sequence[str] | None, *, has_token: bool) -> HostPolicy | None:
    """Return the names to answer to; None for all.

    A page that points its own name at this server (DNS rebinding) does not have its cookie, so a
    token is enough protection. What `allow` checks, such as the visitor's address, may not be.
    """
    given = [] if hosts is None else hosts
    if isinstance(given, str) or not all(each == "*" or is_host(each) for each in given):
        raise ConfigError(NO_NAMES)
    if "*" in given or (hosts is None and has_token):
        return None
    return HostPolicy("", None, allowed_hosts=given)


def _cookie_path(root: str) -> str:
    """Return the prefix for a cookie; one with unusual characters gets the whole site."""
    plain = root.isascii() and root.replace("/", "").replace("-", "").replace("_", "").isalnum()
    return root if plain else "/"


class MountedViewer:
    """A viewer that starts with its first request.

    `async with` ends it; without that, it ends with the process. It also handles lifespan events.
    """

    def __init__(self, viewer: ViewerApp) -> None:
        self._viewer = viewer
        self._starting: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "MountedViewer":
        await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._viewer.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            with suppress(ConfigError):  # The answer says what is wrong; the next request retries.
                await self._start()
            await self._viewer(scope, receive, send)

    async def _start(self) -> None:
        begun = self._starting
        if begun is None or (begun.done() and (begun.cancelled() or begun.exception())):
            self._starting = begun = asyncio.create_task(self._viewer.start())
        await asyncio.shield(begun)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        async with self:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


def app(
    runs: str | Path | None = None,
    *,
    token: str | None = None,
    allow: Allow | None = None,
    hosts: Sequence[str] | None = None,
    judge: bool = True,
) -> MountedViewer:
    """Return the viewer as an ASGI application, to be mounted below any path.

        staff = lambda request: request.user.is_staff
        Mount("/runs", rlm.viewer.app(allow=staff, hosts=["runs.example.com"]))

    runs: a log, a folder of logs, or a folder that was passed as `journal=`; else all recorded
        runs of this user.
    token, allow: who may see all of these runs: those who open the address with `?token=…`,
        those for whom the function returns True, or with both, who passes both. One is required.
    hosts: the host names that it answers to, such as `["runs.example.com"]`, besides `localhost`
        and addresses; `["*"]` for any. By default there are no others, or with a token any.
    judge: whether tags, scores and comments can be changed.
    """
    places = Places.usual(os.environ)
    source: RunSource = Journals(Archive(places))
    path = None if runs is None else Path(runs).expanduser()
    if path is not None and (path / "runs").is_dir():
        places = Places(path)
        source = Journals(Archive(places))
    elif path is not None:
        source = OneFile(path, path.name) if path.is_file() else Folder(path, path.resolve().name)
    kept = Archive(places)
    viewer = ViewerApp(
        Library(source),
        Contexts(kept.contexts),
        None,
        MountedAccess(token, allow, hosts),
        version=own_version(),
        judgments=Judgments(places.root) if judge else None,
        index=index_path(places.root, "runs" if path is None else str(path.resolve())),
        opens_files=False,
    )
    return MountedViewer(viewer)
