"""The viewer at `/view` of `rlm serve`, as somebody with a token signs in to it."""

import importlib
import sqlite3
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rlm import RLM, ScriptedClient
from rlm.records.journal import Archive, Places
from rlm.server.tokens import Token, Tokens
from rlm.server.viewing import TenantViewers, at_prefix
from rlm.web.serving import WebServer, in_thread, open_socket, serving
from rlm.web.tokens import digest_of
from tests.browser.driving import Page, Visits, expect
from tests.browser.viewers import elsewhere

pytestmark = pytest.mark.heavy
TOKENS = {"anna": "token-of-anna-1", "bert": "token-of-bert-1"}


@asynccontextmanager
async def serving_runs_of(state: Path) -> AsyncGenerator[str, None]:
    tokens = Tokens(Token(name=name, digest=digest_of(token)) for name, token in TOKENS.items())
    viewers = TenantViewers(tokens, Archive(Places(state)), state / "server")
    server = WebServer(at_prefix(viewers), on_stop=viewers.stop)
    async with serving(server, open_socket("127.0.0.1", 0)) as url:
        yield url
        await viewers.close()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What a server with two tokens has stored, with a run of each, and the viewer over it."""
    state = tmp_path_factory.mktemp("served") / "state"
    (state / "server").mkdir(parents=True)
    table = sqlite3.connect(state / "server" / "runs.sqlite", isolation_level=None)
    table.execute("create table runs (run_id text, token text, created real)")
    for number, name in enumerate(TOKENS):
        run_id = f"20261115-12000{number}-000-0000000{number}"
        client = ScriptedClient(["```repl\nprint(context)\nFINAL('It is 4821.')\n```"])
        with RLM(client, environment="inprocess", journal=state) as rlm:
            elsewhere(rlm.ask, f"What is the code of {name}?", f"{name}: 4821", run_id=run_id)
        table.execute("insert into runs values (?, ?, ?)", (run_id, name, number))
    table.close()
    with in_thread(lambda: serving_runs_of(state)) as url:
        yield url


def sign_in(page: Page, token: str) -> None:
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 420])
def test_each_token_sees_its_own_run(visit: Visits, base: str, width: int, scheme: str) -> None:
    visit.forgive("status of 401")
    axe = importlib.import_module("axe_playwright_python.sync_playwright").Axe()
    page = visit(f"{base}/view", width=width, scheme=scheme)
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert axe.run(page).response["violations"] == []
    sign_in(page, "token-of-nobody")
    expect(page.get_by_role("alert")).to_contain_text("unknown")
    sign_in(page, TOKENS["anna"])
    expect(page.get_by_role("button", name="Sign out anna")).to_be_visible()
    expect(page.locator(".bar")).to_contain_text("1 run")
    expect(page.get_by_role("link", name="What is the code of anna?")).to_be_visible()
    expect(page.get_by_text("bert")).to_have_count(0)
    expect(page.get_by_role("button", name="Open file")).to_have_count(0)
    assert axe.run(page).response["violations"] == []
    page.get_by_role("link", name="What is the code of anna?").click()
    page.get_by_role("button", name="Good (1)").click()
    expect(page.locator(".judge strong")).to_have_text("1")
    page.goto(f"{base}/view/#/find?q=4821")
    expect(page.locator(".found-runs li")).to_have_count(1)
    page.get_by_role("button", name="Sign out anna").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    sign_in(page, TOKENS["bert"])
    expect(page.get_by_role("button", name="Sign out bert")).to_be_visible()
    page.goto(f"{base}/view/#/")
    expect(page.get_by_role("link", name="What is the code of bert?")).to_be_visible()
    expect(page.get_by_text("anna")).to_have_count(0)
