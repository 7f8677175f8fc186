"""The viewer on its own port."""

from contextlib import AsyncExitStack
from pathlib import Path

from rlm.records.judging import Judgments
from rlm.viewer import DEFAULT_PORT
from rlm.viewer.access import Access
from rlm.viewer.application import NOTHING_YET, ViewerApp
from rlm.viewer.assets import STATIC
from rlm.viewer.contexts import Contexts
from rlm.viewer.forking import Engines
from rlm.viewer.library import Library
from rlm.web.serving import WebServer, open_socket, serving

__all__ = ["ViewerServer"]

SHUTDOWN_SECONDS = 1.0


class ViewerServer:
    """`async with ViewerServer(…) as server` serves at `server.url` until the block ends."""

    def __init__(
        self,
        library: Library,
        contexts: Contexts,
        engines: Engines | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        token: str | None = None,
        needs_token: bool = True,
        static: Path = STATIC,
        version: str = "",
        judgments: Judgments | None = None,
        index: Path | None = None,
        empty: str = NOTHING_YET,
    ) -> None:
        self._host = host
        self.access = Access(host, port, token=token, needs_token=needs_token)
        self._app = ViewerApp(
            library,
            contexts,
            engines,
            self.access,
            static=static,
            version=version,
            judgments=judgments,
            index=index,
            empty=empty,
        )
        self._running = AsyncExitStack()

    @property
    def port(self) -> int:
        port = self.access.hosts.port
        assert port is not None
        return port

    @property
    def url(self) -> str:
        """The address to open, with the token if one is required."""
        return self.access.url

    async def __aenter__(self) -> "ViewerServer":
        bound = open_socket(self._host, self.port, "viewer")
        self.access.hosts.port = bound.getsockname()[1]
        server = WebServer(self._app, on_stop=self._app.stop, shutdown_seconds=SHUTDOWN_SECONDS)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(serving(server, bound))
            stack.push_async_callback(self._app.close)
            await self._app.start()
            self._running = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._running.aclose()
