"""The viewer at `/view`: each token sees its own runs, whatever it asks for."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from starlette.routing import Route
from yarl import URL

from rlm.errors import ConfigError
from rlm.records.journal import Archive, Places
from rlm.records.judging import JudgmentChange, Judgments
from rlm.server import viewing
from rlm.server.service import Service
from rlm.server.serving import listening
from rlm.server.settings import Settings
from rlm.server.tokens import Token, Tokens
from rlm.server.viewing import TenantViewers
from rlm.testing.scripted import ScriptedClient
from rlm.web.hosts import HostPolicy
from rlm.web.serving import open_socket
from rlm.web.tokens import digest_of
from rlm.wiring.registry import make_environment
from tests.server.serving import WITH_REPL, engines_of, submits
from tests.viewer.serving import static_folder

SECONDS = 60
NAMES = ("anna", "bert")
KEYS = {name: f"token-of-{name}" for name in NAMES}
META = re.compile(r'name="rlm-token" content="([^"]*)"')


class Tenant:
    """A browser of one person."""

    def __init__(self, base: str, name: str) -> None:
        self.base = base
        self.name = name
        self.key = KEYS.get(name, "")
        self.session = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))
        self.run_id = ""

    async def ask(self, path: str, method: str = "GET", **options: Any) -> tuple[int, Any, Any]:
        address = URL(f"{self.base}{path}", encoded=True)
        async with self.session.request(method, address, **options) as got:
            try:
                value = await got.json()
            except (ValueError, aiohttp.ContentTypeError):
                value = await got.text()
            return got.status, value, got.headers

    async def sign_in(self, **headers: str) -> int:
        own = {"Origin": self.base, "Authorization": f"Bearer {self.key}", **headers}
        return (await self.ask("/view/api/sign-in", "POST", headers=own))[0]

    async def page_token(self) -> str:
        _, page, _ = await self.ask("/view/")
        found = META.search(page)
        return found[1] if found else ""

    async def run(self, answer: str) -> str:
        """Start a background run and wait for its end."""
        headers = {"Authorization": f"Bearer {self.key}"}
        order = {
            "model": WITH_REPL,
            "query": f"Secret of {self.name}?",
            "context": f"{answer} here",
        }
        _, made, _ = await self.ask("/v1/runs", "POST", json=order, headers=headers)
        async with asyncio.timeout(SECONDS):
            while True:
                _, now, _ = await self.ask(f"/v1/runs/{made['id']}", headers=headers)
                if now["status"] not in {"queued", "running"}:
                    assert now["status"] == "completed", now
                    break
                await asyncio.sleep(0.05)
        self.run_id = made["id"]
        return self.run_id

    async def listed(self) -> list[str]:
        async with asyncio.timeout(SECONDS):
            while True:
                status, found, _ = await self.ask("/view/api/runs")
                assert status == 200, found
                if "reading" not in found:
                    return [row["run_id"] for row in found["runs"]]

    async def found(self, words: str) -> list[str]:
        async with asyncio.timeout(SECONDS):
            while True:
                status, found, _ = await self.ask(f"/view/api/search?q={words}")
                assert status == 200, found
                if "indexing" not in found and "problem" not in found:
                    return [each["run"]["run_id"] for each in found["runs"]]
                await asyncio.sleep(0.05)


@asynccontextmanager
async def shared(folder: Path) -> AsyncGenerator[tuple[Tenant, Tenant, Tenant], None]:
    """A server with two tokens, and a client without one."""
    archive = Archive(Places(folder / "state"))
    client = ScriptedClient(
        rules=[("anna", submits("pineapple of anna")), ("bert", submits("blueberry of bert"))]
    )
    bound = open_socket("127.0.0.1", 0)
    tokens = Tokens(Token(name=name, digest=digest_of(key)) for name, key in KEYS.items())
    service = Service(
        Settings(folder=folder / "state" / "server", grace_seconds=2.0),
        engines_of(client, archive, {"inprocess": make_environment("inprocess", {})}),
        tokens,
        archive,
        HostPolicy("127.0.0.1", bound.getsockname()[1]),
    )
    static = folder / "static"
    viewers = TenantViewers(
        tokens,
        archive,
        service.settings.folder,
        static=static if static.exists() else static_folder(folder),
    )
    async with listening(service, bound, viewers) as base:
        people = Tenant(base, "anna"), Tenant(base, "bert"), Tenant(base, "mallory")
        try:
            yield people
        finally:
            for each in people:
                await each.session.close()


def tenant_routes(folder: Path) -> list[Route]:
    """All routes of the viewer of a token."""
    tokens = Tokens(Token(name=name, digest=digest_of(key)) for name, key in KEYS.items())
    archive = Archive(Places(folder / "state"))
    viewers = TenantViewers(tokens, archive, folder, static=folder / "static")
    return viewers._new_viewer(tokens.all[0]).routes


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlm.viewer.searching.LOOK_SECONDS", 0.05)


# -- who is who -----------------------------------------------------------------------------------


async def test_each_token_sees_and_finds_its_own_runs(tmp_path: Path) -> None:
    async with shared(tmp_path) as (anna, bert, _):
        for tenant, fruit in ((anna, "pineapple"), (bert, "blueberry")):
            await tenant.run(fruit)
            assert await tenant.sign_in() == 200
        for tenant, own, other in (
            (anna, "pineapple", "blueberry"),
            (bert, "blueberry", "pineapple"),
        ):
            assert await tenant.listed() == [tenant.run_id]
            assert await tenant.found(own) == [tenant.run_id]
            assert await tenant.found(other) == []
            assert await tenant.found("Secret") == [tenant.run_id]
            _, facts, _ = await tenant.ask("/view/api/viewer")
            assert (facts["signed_in"], facts["can_fork"]) == (tenant.name, False)
            assert facts["can_open"] is False


async def test_a_run_of_another_token_is_not_found(tmp_path: Path) -> None:
    async with shared(tmp_path) as (anna, bert, _):
        for tenant in (anna, bert):
            await tenant.run("fruit")
            assert await tenant.sign_in() == 200
        await bert.listed()
        own = {"Origin": anna.base, "X-RLM-Token": await anna.page_token()}
        for run_id in (bert.run_id, bert.run_id[:-4], f"{anna.run_id}%2f..%2f{bert.run_id}"):
            run = f"/view/api/runs/{run_id}"
            for path in (
                *(run, f"{run}/steps/0", f"{run}/steps/1", f"{run}/events/0/text/query"),
                *(f"{run}/calls", f"{run}/usage", f"{run}/coverage", f"{run}/context"),
                *(f"{run}/search?q=Secret", f"{run}/live", f"{run}/judgment"),
            ):
                status, answer, _ = await anna.ask(path)
                assert status == 404, path
                assert "bert" not in str(answer)
            assert (await anna.ask(f"{run}/actions"))[0] == 404
            assert (await anna.ask(f"{run}/export/html"))[0] == 404
            assert (await anna.ask(f"{run}/timeline"))[0] == 404
            for action in ("stop", "resume", "delete"):
                assert (await anna.ask(f"{run}/{action}", "POST", headers=own))[0] in {400, 404}
            assert (await anna.ask(f"{run}/judgment", "POST", json={"score": 1}, headers=own))[
                0
            ] == 404
            fork = {"run_id": run_id, "step": 1}
            assert (await anna.ask("/view/api/fork", "POST", json=fork, headers=own))[0] in {
                400,
                404,
            }
        assert (await anna.ask(f"/view/api/runs/{anna.run_id}"))[0] == 200
        status, judged, _ = await anna.ask(
            f"/view/api/runs/{anna.run_id}/judgment", "POST", json={"score": 1}, headers=own
        )
        assert (status, judged["score"]) == (200, 1.0)


async def test_no_route_reveals_a_run_of_another_token(tmp_path: Path) -> None:
    """Every route there is, also those that are added later."""
    async with shared(tmp_path) as (anna, bert, _):
        for tenant in (anna, bert):
            await tenant.run("fruit")
            assert await tenant.sign_in() == 200
            await tenant.listed()
        own = {"Origin": anna.base, "X-RLM-Token": await anna.page_token()}
        names = {"step": "1", "index": "0", "field": "query", "number": "0", "format": "html"}
        seen = 0
        for route in tenant_routes(tmp_path):
            if "{run_id}" not in route.path:
                assert "opened" not in route.path, "files can't be opened in a shared server"
                continue
            path = f"/view{route.path}".format(run_id=bert.run_id, **names)
            for method in (route.methods or set()) - {"HEAD"}:
                status, answer, _ = await anna.ask(
                    f"{path}?q=Secret", method, json={"score": 1}, headers=own
                )
                assert status == 404 or (method == "POST" and status == 400), (path, answer)
                assert "bert" not in str(answer)
                assert "blueberry" not in str(answer)
                seen += 1
        assert seen >= 20
        assert await bert.listed() == [bert.run_id]
        _, judged, _ = await bert.ask(f"/view/api/runs/{bert.run_id}/judgment")
        assert judged["score"] is None


async def test_a_symbolic_link_does_not_lead_to_another_runs_journal(tmp_path: Path) -> None:
    """Even if a journal were replaced by a link, its target is not shown."""
    async with shared(tmp_path) as (anna, bert, _):
        for tenant in (anna, bert):
            await tenant.run("fruit")
            assert await tenant.sign_in() == 200
        runs = tmp_path / "state" / "runs"
        (own,) = runs.glob(f"{anna.run_id}.sqlite")
        (other,) = runs.glob(f"{bert.run_id}.sqlite")
        own.unlink()
        own.symlink_to(other)
        assert await anna.listed() == []
        assert (await anna.ask(f"/view/api/runs/{bert.run_id}"))[0] == 404


async def test_judgments_of_other_tokens_are_neither_shown_nor_searched(tmp_path: Path) -> None:
    async with shared(tmp_path) as (anna, bert, _):
        for tenant in (anna, bert):
            await tenant.run("fruit")
            await tenant.sign_in()
        Judgments(tmp_path / "state").change(bert.run_id, JudgmentChange(comment="of bert"))
        _, rows, _ = await anna.ask("/view/api/runs")
        assert rows["runs"][0]["comments"] == 0
        status, found, _ = await anna.ask("/view/api/search?q=fruit&where=comment~bert")
        assert (status, found["runs"]) == (200, [])


async def test_the_operators_settings_are_hidden_everywhere(tmp_path: Path) -> None:
    async with shared(tmp_path) as (anna, _, _):
        await anna.run("fruit")
        await anna.sign_in()
        await anna.listed()
        run = f"/view/api/runs/{anna.run_id}"
        _, page, _ = await anna.ask(run)
        assert page["started"]["settings"] == {}
        _, step, _ = await anna.ask(f"{run}/steps/0")
        assert [each["settings"] for each in step["events"] if "settings" in each] == [{}]
        _, found, _ = await anna.ask(f"{run}/search?q=environment_kwargs")
        assert found["hits"] == []
        assert (await anna.ask(f"{run}/events/0/text/settings.environment"))[0] == 404
        _, actions, _ = await anna.ask(f"{run}/actions")
        assert actions["python"] is actions["command"] is None
        assert None not in (actions["stop"], actions["resume"], actions["delete"])
        for name in actions["formats"]:
            status, text, _ = await anna.ask(f"{run}/export/{name}")
            assert status == 200
            assert "anna" in str(text)
            assert not set(
                re.findall(r'environment_kwargs": ?{[^}]|sub_model|max_steps', str(text))
            )


async def test_without_a_token_only_the_empty_page_is_served(tmp_path: Path) -> None:
    async with shared(tmp_path) as (anna, _, mallory):
        await anna.run("fruit")
        status, page, headers = await mallory.ask("/view/")
        assert status == 200
        assert META.findall(page) == [""]
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert (await mallory.ask("/view/assets/page-1a2b.js"))[0] == 200
        for path in ("viewer", "runs", f"runs/{anna.run_id}", "search?q=fruit", "live", "opened"):
            status, answer, _ = await mallory.ask(f"/view/api/{path}")
            assert (status, answer) == (401, {"error": viewing.SIGN_IN}), path
        mallory.key = "not-a-token-of-this-server"
        assert await mallory.sign_in() == 401
        assert (await mallory.ask("/view/api/runs"))[0] == 401


async def test_programs_may_send_the_token_in_a_header(tmp_path: Path) -> None:
    async with shared(tmp_path) as (anna, bert, mallory):
        await anna.run("fruit")
        headers = {"Authorization": f"Bearer {anna.key}"}
        assert (await mallory.ask("/view/api/runs", headers=headers))[0] == 200
        # The header counts, not another tenant's cookie sent with it.
        await bert.sign_in()
        _, found, _ = await bert.ask("/view/api/viewer", headers=headers)
        assert found["signed_in"] == "anna"
        wrong = {"Authorization": "Bearer wrong-token-of-nobody"}
        assert (await bert.ask("/view/api/runs", headers=wrong))[0] == 401


# -- cookies --------------------------------------------------------------------------------------


async def test_a_cookie_cannot_be_forged_or_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shared(tmp_path) as (anna, _, mallory):
        assert await anna.sign_in() == 200
        (cookie,) = list(anna.session.cookie_jar)
        assert (cookie["httponly"], cookie["samesite"]) == (True, "Strict")
        name, issued, mac = cookie.value.rsplit(".", 2)
        seconds, _, number = issued.partition("-")
        forged = [
            f"bert.{issued}.{mac}",
            f"{name}.{int(seconds) + 1}-{number}.{mac}",
            f"{name}.{seconds}-{'0' * 16}.{mac}",
            f"{name}.{seconds}.{mac}",
            f"{name}.{issued}.{'0' * 64}",
            f"{name}.{issued}.",
            f"{name}..{mac}",
            f"..{mac}",
            f"{name}.{'9' * 12}-{number}.{mac}",
            "x" * 5_000,
            "",
        ]
        for value in forged:
            headers = {"Cookie": f"{cookie.key}={value}"}
            assert (await mallory.ask("/view/api/runs", headers=headers))[0] == 401, value
        own = {"Cookie": f"{cookie.key}={cookie.value}"}
        assert (await mallory.ask("/view/api/runs", headers=own))[0] == 200
        monkeypatch.setattr(viewing, "SESSION_SECONDS", -1)
        assert (await mallory.ask("/view/api/runs", headers=own))[0] == 401
    async with shared(tmp_path) as (_, _, mallory):  # another start of the server
        assert (await mallory.ask("/view/api/runs", headers=own))[0] == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"X-RLM-Token": "wrong"},
        {"X-RLM-Token": ""},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
async def test_other_websites_cannot_change_anything(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    async with shared(tmp_path) as (anna, bert, _):
        await anna.run("fruit")
        for tenant in (anna, bert):
            await tenant.sign_in()
        path = f"/view/api/runs/{anna.run_id}/judgment"
        own = {"Origin": anna.base, "X-RLM-Token": await anna.page_token()}
        for change in (headers, {"X-RLM-Token": await bert.page_token()}):
            status, _, _ = await anna.ask(
                path, "POST", json={"score": 1}, headers={**own, **change}
            )
            assert status == 403
        assert await anna.page_token() != await bert.page_token()
        assert (await anna.ask(path))[1]["score"] is None


async def test_signing_in_and_out_works_only_from_the_page_itself(tmp_path: Path) -> None:
    async with shared(tmp_path) as (anna, _, _):
        assert await anna.sign_in(Origin="http://evil.example") == 403
        assert (await anna.ask("/view/api/sign-in"))[0] == 405
        assert await anna.sign_in() == 200
        assert (await anna.ask("/view/api/sign-out", "POST"))[0] == 403
        out = {"Origin": anna.base}
        assert (await anna.ask("/view/api/sign-out", "POST", headers=out))[0] == 200
        assert (await anna.ask("/view/api/runs"))[0] == 401


async def test_signing_out_invalidates_copies_of_the_cookie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(viewing, "MAX_ENDED", 1)
    async with shared(tmp_path) as (anna, _, _):
        for _ in range(2):  # The second time, the first session is forgotten, which has no cookie.
            assert await anna.sign_in() == 200
            (cookie,) = (f"{each.key}={each.value}" for each in anna.session.cookie_jar)
            copied = {"Cookie": cookie}
            assert (await anna.ask("/view/api/runs", headers=copied))[0] == 200
            out = {"Origin": anna.base}
            assert (await anna.ask("/view/api/sign-out", "POST", headers=out))[0] == 200
            assert (await anna.ask("/view/api/runs", headers=copied))[0] == 401


# -- paths ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/view/../v1/runs",
        "/view/..%2fv1%2fruns",
        "/view%2fapi/runs",
        "/view/api%2fruns",
        "/view//api/runs",
        "/view/%2e%2e/%2e%2e/etc/passwd",
        "/view/assets/..%2f..%2fsecret.txt",
        "/view/assets/link.js",
        "/view/source.sha256",
        "/viewer/api/runs",
        "/view/api/opened",
        "/view/api/opened/x/runs",
    ],
)
async def test_no_path_leads_outside(tmp_path: Path, path: str) -> None:
    async with shared(tmp_path) as (anna, bert, mallory):
        await bert.run("fruit")
        await anna.sign_in()
        for tenant in (anna, mallory):
            status, answer, _ = await tenant.ask(path)
            assert status in {400, 401, 404}, (path, status)
            assert "secret" not in str(answer)
            assert bert.run_id not in str(answer)


async def test_the_address_without_a_slash_redirects_to_the_page(tmp_path: Path) -> None:
    async with shared(tmp_path) as (anna, _, _):
        for signs_in in (False, True):
            if signs_in:
                await anna.sign_in()
            async with anna.session.get(f"{anna.base}/view", allow_redirects=False) as got:
                assert (got.status, got.headers["Location"]) == (307, "view/")


async def test_viewers_of_many_tokens_are_not_kept_forever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(viewing, "MAX_VIEWERS", 1)
    async with shared(tmp_path) as (anna, bert, _):
        await anna.run("fruit")
        for tenant in (anna, bert, anna):
            await tenant.sign_in()
            assert await tenant.listed() == ([anna.run_id] if tenant is anna else [])


async def test_a_viewer_that_could_not_start_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, tries = viewing.TenantRuns.paths, list[str]()

    def paths(self: viewing.TenantRuns) -> list[Path]:
        tries.append(self.token)
        if len(tries) == 1:
            raise ConfigError("the table of runs can't be read")
        return usual(self)

    monkeypatch.setattr(viewing.TenantRuns, "paths", paths)
    async with shared(tmp_path) as (anna, _, _):
        await anna.run("fruit")
        await anna.sign_in()
        assert (await anna.ask("/view/api/runs"))[0] == 400
        assert await anna.listed() == [anna.run_id]
