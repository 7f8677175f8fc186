"""Without the token nothing is shown, whatever the address, the method or the header."""

import asyncio
import logging
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from rlm.errors import ConfigError
from rlm.viewer.access import Access
from tests.records.trajectories.samples import one_run, written
from tests.viewer.serving import log_shelf, serving

RUN = "/api/runs/r"
PLACES = [
    *("/", "/?token=", "/?token=wrong", "/index.html", "/nothing", "/assets/page-1a2b.js"),
    *("/api/viewer", "/api/runs", "/api/live", RUN, f"{RUN}/steps/1", f"{RUN}/calls"),
    *(f"{RUN}/usage", f"{RUN}/coverage", f"{RUN}/context", f"{RUN}/search?q=x", f"{RUN}/live"),
    *(f"{RUN}/events/0/text/query", "/api/nothing", "/api/fork"),
    *("/api/opened", "/api/opened/x", "/api/opened/x/viewer", "/api/opened/x/runs/r"),
]


class Raw:
    """A client that sends exactly what a test says and keeps no cookies."""

    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self._session = session
        self.base = base

    async def __call__(
        self, path: str, method: str = "GET", **headers: str
    ) -> tuple[int, str, list[str]]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self._session.request(method, self.base + path, headers=named) as response:
            cookies = response.headers.getall("Set-Cookie", [])
            return response.status, (await response.read()).decode(), cookies


async def test_every_address_needs_the_token(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", one_run("r"))
    async with (
        serving(log_shelf(path), tmp_path) as client,
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
    ):
        token = client.server.access.token.value
        ask = Raw(session, client.base)
        for place in PLACES:
            for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"):
                status, text, cookies = await ask(place, method)
                assert (status, cookies) == (403, []), (method, place)
                assert token not in text
        forged = [
            {"Authorization": "Bearer wrong"},
            {"Authorization": f"Basic {token}"},
            {"Authorization": token},
            {"Authorization": f"Bearer {token[:-1]}"},
            {"Authorization": f"Bearer {'x' * 5_000}"},
            {"Cookie": f"rlm-viewer-{client.server.port}=wrong"},
            {"Cookie": f"rlm-viewer-1={token}"},
            {"X_RLM_Token": token},
            {"Origin": client.base},
        ]
        for headers in forged:
            assert (await ask("/api/runs", **headers))[0] == 403, headers
        for place in ("/api/runs", "/api/live", RUN):
            assert (await ask(f"{place}?token={token}"))[0] == 403, "only the page's address has it"
        assert (await ask("/api/runs", Authorization=f"Bearer {token}"))[0] == 200


async def test_the_printed_address_sets_a_cookie(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    path = written(tmp_path / "a.jsonl", one_run("r"))
    async with (
        serving(log_shelf(path), tmp_path) as client,
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
    ):
        token = client.server.access.token.value
        ask = Raw(session, client.base)
        printed = urlsplit(client.server.url)
        assert (printed.path, printed.query) == ("/", f"token={token}")
        status, _, cookies = await ask(f"/?{printed.query}")
        assert (status, len(cookies)) == (200, 1)
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookies[0].split("; "))
        sent = cookies[0].partition(";")[0]
        for place in ("/", "/api/viewer", "/api/runs", "/assets/page-1a2b.js"):
            assert (await ask(place, Cookie=sent))[0] == 200
        async with asyncio.timeout(30):
            async with session.get(f"{client.base}/api/live", headers={"Cookie": sent}) as stream:
                assert stream.status == 200
                assert await stream.content.readline()
        # The development server's page asks with the header first, and gets the cookie then.
        _, _, cookies = await ask("/api/viewer", Authorization=f"Bearer {token}")
        assert cookies[0].partition(";")[0] == sent
    assert token not in caplog.text


async def test_without_a_token_the_page_is_open_to_this_machine(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", one_run("r"))
    async with (
        serving(log_shelf(path), tmp_path, needs_token=False) as client,
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
    ):
        ask = Raw(session, client.base)
        assert "token" not in client.server.url
        assert (await ask("/api/runs"))[0] == 200
        assert (await ask("/"))[2] == []


def test_a_token_may_be_chosen_unless_it_is_weak() -> None:
    assert Access("127.0.0.1", 1, token="a-token-of-my-own").token.value == "a-token-of-my-own"
    assert Access("127.0.0.1", 1).needs_token
    assert Access("0.0.0.0", 1, needs_token=False).needs_token
    for weak in ("short", "x" * 201, "with spaces and more", "quote'\"<script>-------"):
        with pytest.raises(ConfigError, match="openssl"):
            Access("127.0.0.1", 1, token=weak)
