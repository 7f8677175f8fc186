"""The server inside another application, beside the viewer, and alone under any ASGI server."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route

import rlm.server
from rlm.records.journal import Archive, Places
from rlm.server import ServerApp
from rlm.server.engines import Engines
from rlm.server.service import Service
from rlm.server.serving import listening
from rlm.server.settings import Settings
from rlm.server.tokens import Tokens
from rlm.testing.scripted import ScriptedClient
from rlm.viewer.access import Access
from rlm.viewer.application import ViewerApp
from rlm.viewer.contexts import Contexts
from rlm.viewer.library import Journals, Library
from rlm.web.hosts import HostPolicy
from rlm.web.serving import WebServer, open_socket, serving
from rlm.wiring.registry import make_environment
from tests.server.serving import MODEL, WITH_REPL, engines_of, submits
from tests.viewer.serving import PAGE, static_folder

TOKEN = "a-token-of-some-length"
ASK = {"model": WITH_REPL, "messages": [{"role": "user", "content": "hello"}]}


def application(folder: Path, **options: Any) -> ServerApp:
    client = ScriptedClient(rules=[("", "hello there")])
    return rlm.server.app(MODEL, folder=folder / "state", clients={"test": client}, **options)


@asynccontextmanager
async def mounted(inner: ServerApp) -> AsyncGenerator[str, None]:
    """An application that has other routes too, served by uvicorn."""

    async def home(request: Request) -> Response:
        return PlainTextResponse("home")

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None, None]:
        async with inner:
            yield

    outer = Starlette(routes=[Route("/", home), Mount("/llm", inner)], lifespan=lifespan)
    server = WebServer(outer, lifespan="on")
    async with serving(server, open_socket("127.0.0.1", 0)) as url:
        yield url


async def test_it_answers_below_a_prefix(tmp_path: Path) -> None:
    async with mounted(application(tmp_path)) as url, aiohttp.ClientSession() as session:
        async with session.get(url) as got:
            assert await got.text() == "home"
        async with session.get(f"{url}/llm/v1/models") as got:
            assert [each["id"] for each in (await got.json())["data"]] == [WITH_REPL, MODEL]
            assert got.headers["X-Request-Id"].startswith("req_")
        async with session.post(f"{url}/llm/v1/chat/completions", json=ASK) as got:
            assert got.status == 200
            message = (await got.json())["choices"][0]["message"]
            assert message["content"] == "hello there"
        async with session.get(f"{url}/llm/openapi.json") as got:
            assert (await got.json())["servers"] == [{"url": "/llm"}]
        async with session.get(f"{url}/llm/nothing") as got:
            assert got.status == 404
            assert (await got.json())["error"]["type"] == "not_found_error"
        async with session.get(f"{url}/llm/metrics") as got:
            assert 'route="/v1/models"' in await got.text()


async def test_a_background_run_is_kept_in_its_folder(tmp_path: Path) -> None:
    client = ScriptedClient([submits(42)])
    inner = rlm.server.app(MODEL, folder=tmp_path / "state", clients={"test": client})
    async with mounted(inner) as url, aiohttp.ClientSession() as session:
        order = {"model": WITH_REPL, "query": "?", "context": "a context"}
        async with session.post(f"{url}/llm/v1/runs", json=order) as got:
            assert got.status == 202
            run_id = (await got.json())["id"]
        async with session.get(f"{url}/llm/v1/runs/{run_id}/events") as got:
            assert "event: end" in await got.text()
    assert (tmp_path / "state" / "runs" / f"{run_id}.sqlite").exists()


async def test_names_of_other_machines_need_a_token(tmp_path: Path) -> None:
    elsewhere = {"Host": "llm.example"}
    async with (
        mounted(application(tmp_path)) as url,
        aiohttp.ClientSession() as session,
        session.get(f"{url}/llm/v1/models", headers=elsewhere) as got,
    ):
        assert got.status == 403
        assert "start it with a token" in (await got.json())["error"]["message"]
    guarded = application(tmp_path, tokens=[TOKEN])
    async with mounted(guarded) as url, aiohttp.ClientSession() as session:
        async with session.get(f"{url}/llm/v1/models", headers=elsewhere) as got:
            assert got.status == 401
        async with session.get(f"{url}/llm/health", headers=elsewhere) as got:
            assert got.status == 200
        shown = {**elsewhere, "Authorization": f"Bearer {TOKEN}"}
        async with session.get(f"{url}/llm/v1/models", headers=shown) as got:
            assert got.status == 200


async def test_it_needs_no_application_around_it(tmp_path: Path) -> None:
    server = WebServer(application(tmp_path), lifespan="on")
    async with (
        serving(server, open_socket("127.0.0.1", 0)) as url,
        aiohttp.ClientSession() as session,
        session.get(f"{url}/health") as got,
    ):
        assert (await got.json())["status"] == "ok"


async def test_one_that_was_never_entered_says_so(tmp_path: Path) -> None:
    nothing: Any = None
    with pytest.raises(RuntimeError, match="async with app"):
        await application(tmp_path)({"type": "http"}, nothing, nothing)


async def test_the_viewer_is_served_beside_it(tmp_path: Path) -> None:
    archive = Archive(Places(tmp_path / "state"))
    client = ScriptedClient(rules=[("", "hello there")])
    engines: Engines = engines_of(client, archive, {"local": make_environment("local", {})})
    bound = open_socket("127.0.0.1", 0)
    port = bound.getsockname()[1]
    service = Service(
        Settings(folder=tmp_path / "state" / "server", grace_seconds=2.0),
        engines,
        Tokens(),
        archive,
        HostPolicy("127.0.0.1", port),
    )
    access = Access("127.0.0.1", port, prefix="/view")
    viewer = ViewerApp(
        Library(Journals(archive)),
        Contexts(archive.contexts),
        None,
        access,
        static=static_folder(tmp_path),
    )
    async with (
        listening(service, bound, viewer) as url,
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
    ):
        async with session.get(f"{url}/v1/models") as got:
            assert got.status == 200
        async with session.get(f"{url}/v1") as got:
            assert (await got.json())["error"]["type"] == "not_found_error"
        for path in ("/", "/api/runs", "/viewer", "/views/"):
            async with session.get(url + path) as got:
                assert got.status == 404
        for path in ("/view/", "/view/api/runs", "/view"):
            async with session.get(url + path) as got:
                assert got.status == 403
        async with session.get(access.url) as got:
            assert re.sub('content="[^"]+">', 'content="" />', await got.text()) == PAGE
            assert "default-src 'none'" in got.headers["Content-Security-Policy"]
        async with session.get(f"{url}/view/api/runs") as got:
            assert (await got.json())["runs"] == []
        async with session.get(f"{url}/view", allow_redirects=False) as got:
            assert (got.status, got.headers["Location"]) == (307, "view/")
        stream = await session.get(f"{url}/view/api/live")
        assert stream.status == 200
    stream.close()
