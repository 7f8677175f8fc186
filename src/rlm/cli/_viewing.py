"""What `rlm view` does: find what to show, serve it, and go on with runs that are forked there."""

import asyncio
import os
import signal
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

import rlm
from rlm.api import RLM
from rlm.cli import dotenv
from rlm.cli._border import say
from rlm.cli._rebuilding import keywords_of, recipe_of
from rlm.cli._records import archive, find_recorded
from rlm.context import StoredContext, store_context
from rlm.errors import ConfigError
from rlm.journal import Archive, RunFacts
from rlm.viewer.contexts import ContextDesk
from rlm.viewer.library import Folder, Journals, Library, OneFile, Shelf
from rlm.viewer.server import ViewerServer

__all__ = ["Options", "RecordedEngines", "serve", "server_for", "shelf_of"]


class Options(Struct, frozen=True, kw_only=True):
    """What was said on the command line."""

    port: int
    host: str
    opens: bool
    context: str | None
    asks_for_token: bool


class RecordedEngines:
    """Engines as the record of a run says; keys come from the environment."""

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


def shelf_of(recorded: str | None) -> tuple[Shelf, str]:
    """What a word on the command line means, and which page of it to open."""
    if recorded is None:
        return Journals(archive()), ""
    found = find_recorded(recorded)
    if found.run is not None:
        title = f"run {found.run.run_id}"
        return OneFile(found.path, title, archive()), f"#/run/{found.run_id}"
    path = found.path
    if path.is_dir():
        return Folder(path, path.resolve().name), ""
    if not path.is_file():
        raise ConfigError(f"there is no run, log or folder {recorded!r}; `rlm runs` lists runs")
    return OneFile(path, path.name), ""


def server_for(
    shelf: Shelf, *, host: str, port: int, context: str | None, asks_for_token: bool
) -> ViewerServer:
    """A server that shows what lies there, and can go on with what is forked."""
    kept = archive()
    read: Callable[[], StoredContext] | None = None
    if context is not None:
        path = Path(context)
        path.stat()
        read = lambda: store_context(path)  # noqa: E731 - it is read when it is needed
    return ViewerServer(
        Library(shelf),
        ContextDesk(kept.contexts, read),
        None if shelf.archive is None else RecordedEngines(shelf.archive),
        host=host,
        port=port,
        always_ask_for_token=asks_for_token,
        version=rlm.__version__,
    )


def serve(recorded: str | None, options: Options) -> None:
    """Until Ctrl-C."""
    shelf, page = shelf_of(recorded)
    server = server_for(
        shelf,
        host=options.host,
        port=options.port,
        context=options.context,
        asks_for_token=options.asks_for_token,
    )
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(server, page, opens=options.opens))
    say("The viewer has ended.")


async def _serve(server: ViewerServer, page: str, *, opens: bool) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with server:
        say(f"Viewer: {server.url}{page} (Ctrl-C ends it)")
        if opens:
            await asyncio.to_thread(webbrowser.open, f"{server.url}{page}")
        await ended.wait()
