"""A real viewer on a free port of this machine, and a client that asks it."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
from yarl import URL

from rlm.context import StoredContext
from rlm.errors import ConfigError
from rlm.records.journal import Archive, ContextFolder, RunFacts
from rlm.viewer.contexts import Contexts
from rlm.viewer.library import Folder, Journals, Library, OneFile, RunSource
from rlm.viewer.server import ViewerServer

SECONDS = 60
PAGE = (
    '<!doctype html><html><head><meta name="rlm-token" content="" /></head>'
    '<body><script src="/assets/page-1a2b.js"></script></body></html>'
)


def static_folder(folder: Path) -> Path:
    """A page as built, and files beside it that must not be served."""
    static = folder / "static"
    (static / "assets").mkdir(parents=True)
    (static / "index.html").write_text(PAGE, "utf-8")
    (static / "assets" / "page-1a2b.js").write_text("'use strict'", "utf-8")
    (static / "source.sha256").write_text("00", "utf-8")
    (folder / "secret.txt").write_text("secret", "utf-8")
    (static / "assets" / "link.js").symlink_to(folder / "secret.txt")
    return static


class Answer(NamedTuple):
    status: int
    json: Any
    headers: Any
    text: str


class Client:
    """Asks as the page does; everything can be said differently."""

    def __init__(self, session: aiohttp.ClientSession, server: ViewerServer) -> None:
        self.session = session
        self.server = server
        self.base = f"http://127.0.0.1:{server.port}"

    async def ask(self, path: str, method: str = "GET", **options: Any) -> Answer:
        address = URL(f"{self.base}{path}", encoded=True)
        async with self.session.request(method, address, **options) as response:
            text = (await response.read()).decode("utf-8", "replace")
            try:
                value = json.loads(text)
            except ValueError:
                value = None
            return Answer(response.status, value, response.headers, text)

    async def get(self, path: str, **options: Any) -> Any:
        answer = await self.ask(path, **options)
        assert answer.status == 200, answer
        return answer.json

    async def fork(self, order: Any, **headers: str) -> Answer:
        own = {"Origin": self.base, "X-RLM-Token": self.server.access.token.value}
        return await self.ask("/api/fork", "POST", json=order, headers={**own, **headers})

    @asynccontextmanager
    async def stream(
        self, path: str, **headers: str
    ) -> AsyncGenerator[AsyncIterator[dict[str, str]], None]:
        """Messages of a stream, each as its fields."""
        async with self.session.get(f"{self.base}{path}", headers=headers) as response:
            assert response.status == 200, await response.text()
            yield _messages(response)


async def _messages(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, str]]:
    fields: dict[str, str] = {}
    while line := await asyncio.wait_for(response.content.readline(), SECONDS):
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name:
            fields[name] = value
        elif "event" in fields:
            yield fields
            fields = {}
        else:
            fields = {}


class LocalEngines:
    """Runs forks in the way that a test defines."""

    def __init__(self, archive: Archive, *, problem: str | None = None) -> None:
        self.archive = archive
        self.problem = problem

    def check(self, facts: RunFacts) -> None:
        if self.problem:
            raise ConfigError(self.problem)

    async def go_on(self, facts: RunFacts, context: StoredContext) -> None:
        from rlm.cli._viewing import RecordedEngines

        await RecordedEngines(self.archive).go_on(facts, context)


@asynccontextmanager
async def serving(
    shelf: RunSource, folder: Path, *, context: Any = None, engines: Any = None, **options: Any
) -> AsyncGenerator[Client, None]:
    static = folder / "static" if (folder / "static").exists() else static_folder(folder)
    kept = (
        ContextFolder(folder / "no-contexts") if shelf.archive is None else shelf.archive.contexts
    )
    server = ViewerServer(
        Library(shelf), Contexts(kept, context), engines, port=0, static=static, **options
    )
    headers = {"Authorization": f"Bearer {server.access.token.value}"}
    async with server, aiohttp.ClientSession(read_bufsize=1 << 24, headers=headers) as session:
        yield Client(session, server)


def log_shelf(path: Path) -> RunSource:
    return OneFile(path, path.name) if path.is_file() else Folder(path, path.name)


def journal_shelf(archive: Archive) -> RunSource:
    return Journals(archive)
