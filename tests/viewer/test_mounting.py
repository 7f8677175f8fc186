"""`rlm.viewer.app()` inside a Starlette program, below several paths."""

import re
import warnings
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

import rlm.viewer
from rlm.errors import ConfigError
from rlm.web.serving import WebServer, open_socket, serving
from tests.records.trajectories.samples import tree, written

TOKEN = "a-token-of-the-program"
ASSET = re.compile(r'(?:src|href)="(\./assets/[^"]+)"')
META = re.compile(r'name="rlm-token" content="([^"]+)"')


async def home(request: Request) -> PlainTextResponse:
    return PlainTextResponse("the program's own page")


@asynccontextmanager
async def program(viewer: Any, prefix: str = "/tools/runs") -> AsyncGenerator[str, None]:
    """A program with a page of its own and the viewer; yields the address of the viewer."""
    application = Starlette(routes=[Route("/", home), Mount(prefix, viewer)])
    async with serving(WebServer(application), open_socket("127.0.0.1", 0)) as url, viewer:
        yield f"{url}{prefix}"


def client() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLM_STATE_DIR", str(tmp_path / "state"))
    return written(tmp_path / "a.jsonl", tree())


@pytest.mark.parametrize("prefix", ["/view", "/a/b/c", "/with-dash_1", "/with space"])
async def test_the_page_and_its_assets_are_served_below_the_mount_path(
    log: Path, prefix: str
) -> None:
    async with program(rlm.viewer.app(log, token=TOKEN), prefix) as url, client() as session:
        async with session.get(f"{url}/?token={TOKEN}") as got:
            page = await got.text()
            assert got.status == 200
        assets = ASSET.findall(page)
        assert len(assets) == 2
        assert 'src="/' not in page
        for asset in assets:
            async with session.get(f"{url}/{asset.removeprefix('./')}") as got:
                assert got.status == 200
        async with session.get(f"{url}/api/runs") as got:
            assert [row["run_id"] for row in (await got.json())["runs"]] == ["r"]
        async with session.get(f"{url}/api/runs/r-c%2Dd/steps/1") as got:
            assert got.status == 200
        async with session.get(url.removesuffix(prefix) + "/") as got:
            assert await got.text() == "the program's own page"


async def test_without_the_token_nothing_is_shown(log: Path) -> None:
    async with program(rlm.viewer.app(log, token=TOKEN)) as url, client() as session:
        for path in ("/", "/api/runs", "/api/runs/r", "/?token=wrong", f"/api/runs?token={TOKEN}"):
            async with session.get(url + path) as got:
                assert got.status == 403, path
        async with session.get(f"{url}/?token={TOKEN}") as got:
            cookie = got.headers["Set-Cookie"]
            assert "Path=/tools/runs;" in cookie
            assert "HttpOnly" in cookie


async def test_the_program_decides_who_may_see(log: Path) -> None:
    def allow(request: Request) -> bool:
        return request.headers.get("x-user") == "staff"

    async with program(rlm.viewer.app(log, allow=allow)) as url, client() as session:
        async with session.get(f"{url}/api/runs") as got:
            assert got.status == 403
        async with session.get(f"{url}/api/runs", headers={"X-User": "staff"}) as got:
            assert got.status == 200


async def test_access_needs_exactly_true(log: Path) -> None:
    async def never(request: Request) -> bool:
        return False

    class Checked:
        async def __call__(self, request: Request) -> bool:
            return False

    with pytest.raises(ConfigError, match="not an async one"):
        rlm.viewer.app(log, allow=cast("Any", never))
    wrong: list[Any] = [Checked(), lambda request: never(request), lambda request: "no"]
    for each in wrong:
        async with program(rlm.viewer.app(log, allow=each)) as url, client() as session:
            with warnings.catch_warnings(action="ignore"):  # A coroutine is never awaited.
                async with session.get(f"{url}/api/runs") as got:
                    assert got.status == 403


async def status_for(host: str, **options: Any) -> int:
    """The status of the page and of its data, which is always the same, under a name."""
    headers = {"Host": host}
    if "token" in options:
        headers["Authorization"] = f"Bearer {options['token']}"
    async with program(rlm.viewer.app(**options)) as url, client() as session:
        async with session.get(f"{url}/", headers=headers) as page:
            pass
        async with session.get(f"{url}/api/runs", headers=headers) as data:
            assert data.status == page.status
            return data.status


@pytest.mark.parametrize(
    ("host", "known", "status"),
    [
        ("localhost:8000", None, 200),
        ("127.0.0.1", None, 200),
        ("[::1]:8000", None, 200),
        ("192.0.2.7:80", None, 200),
        ("evil.example", None, 403),
        ("localhost.evil.example:8000", None, 403),
        ("127.0.0.1.evil.example", None, 403),
        ("evil.example@localhost", None, 403),
        ("", None, 403),
        ("[", None, 403),
        ("Runs.Example.com:8443", ["runs.example.com"], 200),
        ("runs.example.com:8443", ["runs.example.com:8443"], 200),
        ("runs.example.com:1", ["runs.example.com:8443"], 403),
        ("evil.example", ["runs.example.com"], 403),
        ("evil.example", ["*"], 200),
    ],
)
async def test_without_a_token_only_known_host_names_are_answered(
    log: Path, host: str, known: list[str] | None, status: int
) -> None:
    """A page can point its own name at this server, and what `allow` sees is the visitor's."""
    options = {} if known is None else {"hosts": known}
    assert await status_for(host, runs=log, allow=lambda request: True, **options) == status


async def test_with_a_token_host_names_are_checked_only_if_given(log: Path) -> None:
    assert await status_for("runs.example.com", runs=log, token=TOKEN) == 200
    assert await status_for("evil.example", runs=log, token=TOKEN, hosts=["a.example"]) == 403


@pytest.mark.parametrize("wrong", ["runs.example.com", ["https://runs.example.com"], ["a/b"], [""]])
def test_an_invalid_host_name_is_refused(log: Path, wrong: Any) -> None:
    with pytest.raises(ConfigError, match="hosts is a list of names"):
        rlm.viewer.app(log, token=TOKEN, hosts=wrong)


async def test_a_folder_created_later_is_shown(log: Path, tmp_path: Path) -> None:
    folder, headers = tmp_path / "later", {"Authorization": f"Bearer {TOKEN}"}
    viewer = rlm.viewer.app(folder, token=TOKEN)
    application = Starlette(routes=[Mount("/v", viewer)])
    async with (
        serving(WebServer(application), open_socket("127.0.0.1", 0)) as url,
        client() as session,
    ):
        async with session.get(f"{url}/v/api/runs") as got:
            assert got.status == 403
        async with session.get(f"{url}/v/api/runs", headers=headers) as got:
            assert (got.status, "can't be read" in await got.text()) == (400, True)
        folder.mkdir()
        written(folder / "a.jsonl", tree())
        async with session.get(f"{url}/v/api/runs", headers=headers) as got:
            assert [row["run_id"] for row in (await got.json())["runs"]] == ["r"]
    await viewer.__aexit__()


async def test_only_the_mounted_page_itself_can_judge(log: Path) -> None:
    async with program(rlm.viewer.app(log, allow=lambda request: True)) as url, client() as session:
        async with session.get(f"{url}/") as got:
            found = META.search(await got.text())
            assert found is not None
        base = url.removesuffix("/tools/runs")
        own = {"Origin": base, "X-RLM-Token": found[1]}
        path, order = f"{url}/api/runs/r/judgment", {"score": 0.5}
        refused: list[dict[str, str]] = [
            {},
            {"Origin": base},
            {**own, "Origin": "http://evil.example"},
            {**own, "X-RLM-Token": "x"},
            {**own, "Sec-Fetch-Site": "cross-site"},
        ]
        for headers in refused:
            async with session.post(path, json=order, headers=headers) as got:
                assert got.status == 403
        async with session.post(path, json=order, headers=own) as got:
            assert (await got.json())["score"] == 0.5


async def test_a_mounted_viewer_is_read_only(log: Path) -> None:
    viewer = rlm.viewer.app(log, allow=lambda request: True, judge=False)
    async with program(viewer) as url, client() as session:
        async with session.get(f"{url}/api/viewer") as got:
            facts = await got.json()
        assert (facts["can_fork"], facts["can_open"], facts["can_judge"]) == (False, False, False)
        for path in ("/api/opened", "/api/opened/x/runs"):
            async with session.get(url + path) as got:
                assert got.status == 404


async def test_a_folder_of_logs_a_journal_and_all_recorded_runs(log: Path, tmp_path: Path) -> None:
    from tests.cli import kept

    kept.offline(tmp_path / "state", "20261115-120001-000-00000001")
    kept.offline(tmp_path / "other", "20261115-120002-000-00000002")
    shown = {
        None: "20261115-120001-000-00000001",
        tmp_path / "other": "20261115-120002-000-00000002",
        str(log.parent): "r",
    }
    for runs, expected in shown.items():
        viewer = rlm.viewer.app(runs, allow=lambda request: True)
        async with (
            program(viewer) as url,
            client() as session,
            session.get(f"{url}/api/runs") as got,
        ):
            assert [row["run_id"] for row in (await got.json())["runs"]] == [expected]


def test_a_viewer_without_any_access_rule_is_refused() -> None:
    with pytest.raises(ConfigError, match="who may see the runs"):
        rlm.viewer.app()
    with pytest.raises(ConfigError, match="a token for the viewer must have"):
        rlm.viewer.app(token="short")


async def test_a_mounted_viewer_starts_without_being_entered(log: Path) -> None:
    viewer = rlm.viewer.app(log, token=TOKEN)
    application = Starlette(routes=[Mount("/v", viewer)])
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        serving(WebServer(application), open_socket("127.0.0.1", 0)) as url,
        client() as session,
        session.get(f"{url}/v/api/runs", headers=headers) as got,
    ):
        assert got.status == 200
    await viewer.__aexit__()
