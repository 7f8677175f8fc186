"""Viewers for the browser: one in a thread of the test, and one as a user starts it."""

import asyncio
import re
import subprocess
import tempfile
import threading
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rlm.cli._viewing import RecordedEngines
from rlm.context import store_context
from rlm.records.journal import Archive, ContextFolder, Places
from rlm.records.judging import Judgments
from rlm.records.searching import index_path
from rlm.viewer.contexts import Contexts
from rlm.viewer.library import Folder, Journals, Library, OneFile, RunSource
from rlm.viewer.server import ViewerServer
from tests.cli.running import command, environment

__all__ = ["Process", "elsewhere", "rlm_view", "viewing"]

T = TypeVar("T")
TOKEN = "a-token-of-the-browser-tests"
ADDRESS = re.compile(r"Viewer: (http://\S+)")


def elsewhere(work: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """In a thread without an event loop: playwright has one in that of the test."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work, *arguments, **options).result()


def _shelf(place: Path) -> RunSource:
    """A state folder, a log, or a folder of logs."""
    if place.is_file():
        return OneFile(place, place.name)
    if (place / "runs").is_dir():
        return Journals(Archive(Places(place)))
    return Folder(place, place.name)


@contextmanager
def viewing(
    place: Path, *, context: Path | None = None, shelf: RunSource | None = None
) -> Generator[str, None, None]:
    """Yield the address of a viewer of a path, or of a source of runs."""
    shelf = shelf or _shelf(place)
    nothing = ContextFolder(place.parent / "no-contexts")
    beside = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    state = Path(beside.name)
    server = ViewerServer(
        Library(shelf),
        Contexts(
            nothing if shelf.archive is None else shelf.archive.contexts,
            None if context is None else lambda: store_context(context),
        ),
        None if shelf.archive is None else RecordedEngines(shelf.archive),
        port=0,
        version="0",
        judgments=Judgments(state),
        index=index_path(state, place.name),
        empty="No logs here yet.",
    )
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def on_loop(work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    try:
        on_loop(server.__aenter__())
        yield server.url
        on_loop(server.__aexit__())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        beside.cleanup()


class Process(NamedTuple):
    """A running `rlm view`."""

    url: str
    process: "subprocess.Popen[str]"

    @property
    def base(self) -> str:
        """The address without its token."""
        return self.url.partition("?")[0]

    @property
    def port(self) -> str:
        return self.base.rsplit(":", 1)[1].split("/")[0]


@contextmanager
def rlm_view(*arguments: str, port: str = "0", **variables: str) -> Generator[Process, None, None]:
    """As a user starts it, from an environment that holds only these variables.

    The token is always the same one: a page goes on with the next viewer at its port.
    """
    with subprocess.Popen(
        command("view", "--port", port, *arguments),
        stderr=subprocess.PIPE,
        text=True,
        env=environment({"RLM_VIEW_TOKEN": TOKEN, **variables}),
    ) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            found = ADDRESS.search(line)
            assert found, line + process.stderr.read()
            yield Process(found[1], process)
        finally:
            process.terminate()
            process.wait(60)
            process.stderr.close()
