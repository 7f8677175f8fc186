"""Run `rlm view`, and the viewer that `rlm ask --view` starts beside a run."""

import asyncio
import html
import os
import signal
import tempfile
import threading
import webbrowser
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import (
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    closing,
    contextmanager,
    nullcontext,
    suppress,
)
from pathlib import Path
from typing import Any

from msgspec import Struct

import rlm
from rlm._util.signals import listen
from rlm.api import RLM
from rlm.batch.viewing import BatchRuns
from rlm.bench.trial_runs import TrialRuns
from rlm.cli import dotenv
from rlm.cli._errors import say
from rlm.cli._records import archive, find_recorded
from rlm.cli._resuming import keywords_of, recipe_of
from rlm.context import StoredContext, store_context
from rlm.errors import ConfigError
from rlm.events import Event, RunStarted
from rlm.records.journal import Archive, RunFacts
from rlm.records.judging import Judgments
from rlm.records.searching import index_path
from rlm.settings.recording import recording_lock, records_python
from rlm.viewer import DEFAULT_PORT
from rlm.viewer.contexts import Contexts
from rlm.viewer.library import Folder, Journals, Library, OneFile, RunSource
from rlm.viewer.server import ViewerServer
from rlm.web.serving import in_thread

__all__ = [
    "Options",
    "RecordedEngines",
    "ViewBeside",
    "opened",
    "serve",
    "server_for",
    "shelf_of",
    "view_beside",
]

LEADS_TO = """\
<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={address}"><title>rlm</title>
<a href="{address}">Open the viewer</a>
"""


class Options(Struct, frozen=True, kw_only=True):
    """The options of the command line."""

    port: int
    host: str
    opens: bool
    context: str | None
    token: str | None = None
    no_token: bool = False
    record: bool = False


class RecordedEngines:
    """Build engines from the record of a run; keys come from the environment."""

    def __init__(self, kept: Archive) -> None:
        self._kept = kept

    def check(self, facts: RunFacts) -> None:
        recipe_of(facts).check(facts)

    async def go_on(self, facts: RunFacts, context: StoredContext) -> None:
        recipe = recipe_of(facts)
        engine = RLM(
            **keywords_of(recipe, {}, None),
            variables=dotenv.settings(os.environ, Path.cwd()).variables,
            journal=self._kept.places.root,
        )
        given: Any = context
        try:
            await engine.aask(
                facts.query, given, response_model=recipe.answer_schema, run_id=facts.run_id
            )
        finally:
            await engine.aclose()


RESULTS = "#/results"


def shelf_of(recorded: str | None, other: str | None = None) -> tuple[RunSource, str]:
    """Return what an argument names, and the page to open; `other` are results to compare with."""
    if recorded is None:
        return Journals(archive()), ""
    if other is not None:
        return _compared(Path(recorded), Path(other)), RESULTS
    found = find_recorded(recorded)
    if found.run is not None:
        title = f"run {found.run.run_id}"
        return OneFile(found.path, title, archive()), f"#/run/{found.run_id}"
    path = found.path
    if path.is_dir() and TrialRuns.are_in(path):
        return TrialRuns(path), RESULTS
    if path.is_dir():
        return Folder(path, path.resolve().name), ""
    if not path.is_file():
        raise ConfigError(f"there is no run, log or folder {recorded!r}; `rlm runs` lists runs")
    if BatchRuns.is_at(path):
        return BatchRuns(path), RESULTS
    return OneFile(path, path.name), ""


def _compared(one: Path, other: Path) -> RunSource:
    """Return the results of two benchmarks, or of two batches."""
    if TrialRuns.are_in(one) and TrialRuns.are_in(other):
        return TrialRuns(one, other)
    if all(each.is_file() and BatchRuns.is_at(each) for each in (one, other)):
        return BatchRuns(one, other)
    raise ConfigError(
        f"{one} and {other} can't be compared: both must be folders of `rlm bench run`, or both "
        "files of answers of `rlm batch`"
    )


def server_for(
    shelf: RunSource,
    *,
    host: str = "127.0.0.1",
    port: int,
    context: str | None = None,
    token: str | None = None,
    needs_token: bool = True,
) -> ViewerServer:
    """Return a server that shows records and can continue forks."""
    kept = archive()
    read: Callable[[], StoredContext] | None = None
    if context is not None:
        path = Path(context)
        path.stat()
        read = lambda: store_context(path)  # noqa: E731 - it is read when it is needed
    return ViewerServer(
        Library(shelf),
        Contexts(kept.contexts, read),
        None if shelf.archive is None else RecordedEngines(shelf.archive),
        host=host,
        port=port,
        token=token,
        needs_token=needs_token,
        version=rlm.__version__,
        judgments=Judgments(kept.places.root),
        empty=_empty_words(shelf),
        index=index_path(kept.places.root, _name_of(shelf)),
    )


def _empty_words(shelf: RunSource) -> str:
    """Return what the page says where there are no runs yet: which ones would appear."""
    if not isinstance(shelf, Journals):
        return "No logs here yet. New ones appear as they are written."
    words = "No runs yet. Runs of `rlm ask` and `rlm chat` appear here as soon as they start. "
    if records_python(os.environ):
        return f"{words}So do runs of Python programs, because you turned that on."
    return (
        f"{words}Runs of Python programs appear with RLM(journal=True); those of all programs "
        "after `rlm config set journal_python true`, or while `rlm view --record` is running."
    )


def _name_of(shelf: RunSource) -> str:
    """Return the name of the search index for some records: each folder has its own."""
    if isinstance(shelf, Journals):
        return "runs"
    if isinstance(shelf, OneFile | Folder):
        return f"{type(shelf).__name__} {shelf.path.resolve()}"
    return f"{type(shelf).__name__} {shelf!r} {Path.cwd()}"


def serve(recorded: str | None, other: str | None, options: Options) -> None:
    """Serve until Ctrl-C."""
    shelf, page = shelf_of(recorded, other)
    server = server_for(
        shelf,
        host=options.host,
        port=options.port,
        context=options.context,
        token=options.token,
        needs_token=not options.no_token,
    )
    with suppress(KeyboardInterrupt), recording() if options.record else nullcontext():
        asyncio.run(_serve(server, page, opens=options.opens))
    say("The viewer has stopped.")


@contextmanager
def recording() -> Generator[None, None, None]:
    """Let Python programs of this user record their runs until the block ends."""
    places = archive().places
    places.prepare()
    lock = recording_lock(places.root)
    if lock.take():
        say("Python programs that you start now record their runs until the viewer stops.")
    try:
        yield
    finally:
        lock.release()


async def _serve(server: ViewerServer, page: str, *, opens: bool) -> None:
    ended = asyncio.Event()
    listen((signal.SIGTERM,), ended.set)
    async with server:
        say(f"Viewer: {server.url}{page} (Ctrl-C stops it)")
        with opened(f"{server.url}{page}") if opens else nullcontext():
            await ended.wait()


@contextmanager
def opened(address: str) -> Generator[None, None, None]:
    """Open a page in a browser without a token among the arguments of a process.

    Other users can read arguments. The browser opens a file that only this user can read and that
    leads to the address; it is deleted at the end.
    """
    descriptor, name = tempfile.mkstemp(prefix="rlm-view-", suffix=".html")  # 0600
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(LEADS_TO.format(address=html.escape(address, quote=True)))
    try:
        threading.Thread(target=webbrowser.open, args=(Path(name).as_uri(),), daemon=True).start()
        yield
    finally:
        Path(name).unlink(missing_ok=True)


class ViewBeside:
    """A recorder that opens the page of the first root run."""

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
        """Wait until Ctrl-C: a finished run can still be viewed."""
        say("The viewer is still running; Ctrl-C stops it.")
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return


@contextmanager
def view_beside(port: int = DEFAULT_PORT) -> Generator[ViewBeside, None, None]:
    """Start a viewer of all recorded runs; if the usual port is taken, on another."""
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
