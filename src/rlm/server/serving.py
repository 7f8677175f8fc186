"""The server on a socket, or as an ASGI application inside another one."""

import gc
import os
import socket
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from rlm.api import RLM
from rlm.errors import ConfigError
from rlm.limits import Limits
from rlm.protocols import Environment
from rlm.records.journal import Archive, Places
from rlm.server.engines import Engines
from rlm.server.routes import make_app
from rlm.server.service import Service
from rlm.server.settings import Settings
from rlm.server.tokens import read_tokens
from rlm.server.viewing import PREFIX, TenantViewers, at_prefix
from rlm.viewer.application import ViewerApp
from rlm.web.border import path_of
from rlm.web.hosts import HostPolicy
from rlm.web.serving import WebServer, serve_until_signal, serving
from rlm.wiring.registry import make_environment

__all__ = ["ServerApp", "app", "listening", "serve"]

Viewer = ViewerApp | TenantViewers
LAST_SECONDS = 5.0
"""How long cancelled requests may take to end after the grace period."""

NOT_STARTED = (
    "the rlm application is not started: enter it in the lifespan of your application, "
    "`async with app:`"
)


async def serve(service: Service, bound: socket.socket, viewer: Viewer | None = None) -> None:
    """Serve until a signal; a second signal stops without waiting for current requests."""
    with bound:
        async with _started(service, viewer) as server:
            gc.collect()
            gc.freeze()  # Looking through all that is loaded would stop every request for 45 ms.
            await serve_until_signal(server, bound)


@asynccontextmanager
async def listening(
    service: Service, bound: socket.socket, viewer: Viewer | None = None
) -> AsyncGenerator[str, None]:
    """Serve until the block ends; yield the base URL."""
    with bound:
        async with _started(service, viewer) as server, serving(server, bound) as url:
            yield url


@asynccontextmanager
async def _started(service: Service, viewer: Viewer | None) -> AsyncGenerator[WebServer, None]:
    app = make_app(service)

    def stop() -> None:
        service.begin_to_close()
        if viewer is not None:
            viewer.stop()

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(service)
        if viewer is not None:
            app = _beside(app, viewer)
            stack.push_async_callback(viewer.close)
            await viewer.start()
        yield WebServer(
            app,
            on_stop=stop,
            shutdown_seconds=service.settings.grace_seconds + LAST_SECONDS,
            stall_seconds=service.settings.send_seconds,
        )


def _beside(server: ASGIApp, viewer: ASGIApp) -> ASGIApp:
    """Return one application for both: the viewer gets all paths below `/view`."""
    mounted = at_prefix(viewer)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        is_viewer = scope["type"] == "http" and f"{path_of(scope)}/".startswith(f"{PREFIX}/")
        await (mounted if is_viewer else server)(scope, receive, send)

    return app


class ServerApp:
    """Serves runs. `async with` starts and stops it, and so do an ASGI server's lifespan events.

    A mounted application gets no such events, so the outer one must enter it in its own lifespan.
    """

    def __init__(
        self,
        make_service: Callable[[], Service],
        make_viewer: Callable[[Service], TenantViewers] | None = None,
    ) -> None:
        self._make_service = make_service
        self._make_viewer = make_viewer
        self._service: Service | None = None
        self._viewer: TenantViewers | None = None
        self._app: ASGIApp | None = None

    async def __aenter__(self) -> "ServerApp":
        service = self._make_service()
        self._service = await service.__aenter__()
        self._app = make_app(service)
        if self._make_viewer is not None:
            self._viewer = self._make_viewer(service)
            self._app = _beside(self._app, self._viewer)
        return self

    async def __aexit__(self, *_: object) -> None:
        service, self._service, self._app = self._service, None, None
        if self._viewer is not None:
            await self._viewer.close()
            self._viewer = None
        if service is not None:
            await service.__aexit__()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif self._app is None:
            raise RuntimeError(NOT_STARTED)
        else:
            await self._app(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        async with self:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


def app(
    *models: str,
    environment: str = "auto",
    limits: Limits | None = None,
    tokens: Sequence[str] = (),
    tokens_file: str | Path | None = None,
    cors_origins: Sequence[str] = (),
    folder: str | Path | None = None,
    view: bool = False,
    **options: Any,
) -> ServerApp:
    """Return an ASGI application that serves these models.

    `options` are passed to `RLM`. Runs are journaled in `folder` (default: the usual state folder).
    Without tokens it answers only to this machine's names, such as localhost, on any port.
    `view=True` shows every token its own runs in a browser, at `/view` below the application.
    """
    accepted = read_tokens(None if tokens_file is None else Path(tokens_file), tokens)
    places = Places.usual(os.environ) if folder is None else Places(Path(folder))
    archive = Archive(places)
    settings = Settings(
        folder=places.root / "server",
        limits=limits or Limits(max_seconds=3_600.0),
        cors_origins=tuple(cors_origins),
    )

    def make_engine(model: str, where: Environment) -> RLM:
        return RLM(model, environment=where, limits=settings.limits, journal=places.root, **options)

    def make_service() -> Service:
        where = make_environment(environment, {})
        engines = Engines(models, {where.name: where}, make_engine)
        return Service(settings, engines, accepted, archive, HostPolicy("127.0.0.1", None))

    if not view:
        return ServerApp(make_service)
    if not accepted:
        raise ConfigError("view=True shows each token its own runs: pass tokens= or tokens_file=")
    return ServerApp(
        make_service, lambda service: TenantViewers(service.tokens, archive, settings.folder)
    )
