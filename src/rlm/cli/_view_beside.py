"""`rlm ask --view`: a viewer beside a run, in a thread of its own, that shows it as it goes on."""

import os
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing, contextmanager

from rlm.cli._border import say
from rlm.cli._records import archive
from rlm.cli._viewing import opened, server_for
from rlm.errors import ConfigError
from rlm.events import Event, RunStarted
from rlm.viewer import DEFAULT_PORT
from rlm.viewer.library import Journals
from rlm.viewer.server import ViewerServer
from rlm.web.serving import in_thread

__all__ = ["ViewBeside", "view_beside"]


class ViewBeside:
    """A recorder that opens the page of the first root run it hears of."""

    def __init__(self, server: ViewerServer) -> None:
        self._server = server
        self._is_open = False
        self._page = ExitStack()

    def close(self) -> None:
        self._page.close()

    def record(self, event: Event) -> None:
        if isinstance(event, RunStarted) and event.parent_id is None and not self._is_open:
            self._is_open = True
            address = f"{self._server.url}#/run/{event.run_id}"
            say(f"Viewer: {address}")
            self._page.enter_context(opened(address))

    def wait(self) -> None:
        """Until Ctrl-C: what has ended can still be looked at."""
        say("The viewer goes on; Ctrl-C ends it.")
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return


@contextmanager
def view_beside(port: int = DEFAULT_PORT) -> Generator[ViewBeside, None, None]:
    """A viewer of all kept runs; if the usual port is taken, any other."""
    with in_thread(lambda: _server(port)) as server, closing(ViewBeside(server)) as beside:
        yield beside


@asynccontextmanager
async def _server(port: int) -> AsyncGenerator[ViewerServer, None]:
    token = os.environ.get("RLM_VIEW_TOKEN")
    async with AsyncExitStack() as stack:
        try:
            server = server_for(Journals(archive()), port=port, token=token)
            await stack.enter_async_context(server)
        except ConfigError:
            server = server_for(Journals(archive()), port=0, token=token)
            await stack.enter_async_context(server)
        yield server
