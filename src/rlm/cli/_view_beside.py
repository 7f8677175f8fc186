"""`rlm ask --view`: a viewer beside a run, in a thread of its own, that shows it as it goes on."""

import asyncio
import os
import threading
from collections.abc import Coroutine, Generator
from contextlib import ExitStack, closing, contextmanager
from typing import Any, TypeVar

from rlm.cli._border import say
from rlm.cli._records import archive
from rlm.cli._viewing import opened, server_for
from rlm.errors import ConfigError
from rlm.events import Event, RunStarted
from rlm.viewer import DEFAULT_PORT
from rlm.viewer.library import Journals
from rlm.viewer.server import ViewerServer

__all__ = ["ViewBeside", "view_beside"]

T = TypeVar("T")


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
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="rlm-viewer", daemon=True)
    thread.start()
    try:
        server = _on(loop, _started(port))
        try:
            with closing(ViewBeside(server)) as beside:
                yield beside
        finally:
            _on(loop, server.__aexit__())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _started(port: int) -> ViewerServer:
    shelf = Journals(archive())
    for each in (port, 0):
        server = server_for(shelf, port=each, token=os.environ.get("RLM_VIEW_TOKEN"))
        try:
            return await server.__aenter__()
        except ConfigError:
            if each == 0:
                raise
    raise AssertionError("a free port is always found, or the error raised")


def _on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(work, loop).result()
