"""Tools of a real MCP server over HTTP, in a real uvicorn; and what becomes of the connections."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="MCP is an extra: pip install 'recursivelm[mcp]'")

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from rlm import RLM, ScriptedClient
from rlm.errors import ConfigError
from rlm.tools import mcp
from rlm.tools._mcp import transports
from tests.mcp_servers.harbour import cell, run, served, wait_for
from tests.mcp_servers.hostile import result_of
from tests.mcp_servers.sample import make_server


class Guarded:
    """Admits requests with the token, and counts those in progress."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.open = 0
        self.methods: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        self.methods.append(scope["method"])
        if headers.get(b"authorization") != b"Bearer token":
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        self.open += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self.open -= 1


class Site:
    def __init__(self, url: str, guard: Guarded) -> None:
        self.url = url
        self.guard = guard


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    guard = Guarded(make_server().streamable_http_app())
    with served(guard) as address:
        yield Site(f"{address}/mcp", guard)


HEADERS = {"Authorization": "Bearer token"}


def test_tools_of_a_server_at_a_url_work_like_others(site: Site, tmp_path: Path) -> None:
    server = mcp(site.url, headers=HEADERS, timeout_seconds=2)
    notes = tmp_path / "notes"
    asked = run(
        [server],
        "add('x')",
        "refuse('no')",
        f"slow({str(notes)!r})",
        "FINAL([add(1), len(large(2_000_000)), berth_of({'number': 3})])",
    )
    assert "expected int, got 'x'; usage: add(a: int" in asked.failure(0)
    assert asked.failure(1).endswith("it can't be done: no")
    assert asked.failure(2).startswith("slow failed: no result within 2 s")
    berth = {"berth": 3, "side": "port", "tags": []}
    assert json.loads(asked.result.answer_json) == [3, 2_000_000, berth]
    wait_for(lambda: notes.read_text("utf-8") == "cancelled")


def test_closing_an_rlm_ends_every_request(site: Site) -> None:
    run([mcp(site.url, headers=HEADERS)], "FINAL(add(1))")
    wait_for(lambda: site.guard.open == 0)


UNTIL_HEARD = """
import time
for _ in range(600):
    try:
        letters(1)
    except ToolFailed as error:
        if "no longer has" in str(error):
            raise
    time.sleep(0.05)
"""
"""Notifications arrive on a separate stream."""


def test_a_changed_tool_list_is_noticed_over_http_too() -> None:
    with served(make_server().streamable_http_app()) as address:
        asked = run([mcp(f"{address}/mcp")], "learn()", UNTIL_HEARD, "FINAL(1)")
        assert "no longer has this tool" in asked.failure(1)


def test_a_wrong_token_and_a_wrong_path_are_reported_when_an_rlm_is_made(site: Site) -> None:
    for url, headers in ((site.url, {}), (f"{site.url}/other", HEADERS)):
        with pytest.raises(ConfigError, match=r"^MCP server http://127\.0\.0\.1:\d+/mcp"):
            RLM(ScriptedClient([]), tools=[mcp(url, headers=headers)])
    wait_for(lambda: site.guard.open == 0)


@pytest.mark.heavy
def test_an_unreachable_server_fails_the_call_and_is_used_again_when_it_is_back() -> None:
    guard = Guarded(make_server().streamable_http_app())
    with served(guard) as address:
        server = mcp(f"{address}/mcp", headers=HEADERS)
        model = ScriptedClient([cell("add(1)"), cell("add(2)"), cell("FINAL('gone')")])
        rlm = RLM(model, tools=[server])
    try:
        assert rlm.ask("Is it there?").answer == "gone"
        told = [str(request.messages[-1].content) for request in model.requests[1:]]
        assert all("ToolFailed: add failed: " in text for text in told)
        assert "All connection attempts failed" in told[1]
    finally:
        rlm.close()


async def flood() -> AsyncIterator[bytes]:
    while True:
        yield b" " * 100_000
        await asyncio.sleep(0)  # so that the server notices when the client has gone


class Forgetful:
    """A server of the protocol's 2025 kind, whose sessions can be forgotten."""

    def __init__(self) -> None:
        self.sessions: set[str] = set()
        self.calls = 0
        self.opened = 0
        self.floods = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await send({"type": "lifespan.startup.complete"})
            return
        request = Request(scope, receive)
        response = await self._answer(request)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if request.method != "POST":
            return Response(status_code=405)
        message = await request.json()
        method, headers = message["method"], {}
        if method == "initialize":
            self.opened += 1
            headers["mcp-session-id"] = f"s{self.opened}"
            self.sessions.add(f"s{self.opened}")
        elif method == "server/discover":
            error = {"code": -32601, "message": "Method not found"}
            return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "error": error})
        elif request.headers.get("mcp-session-id") not in self.sessions:
            return Response(status_code=404)
        if "id" not in message:
            return Response(status_code=202)
        self.calls += method == "tools/call"
        if method == "tools/call" and self.floods:
            return StreamingResponse(flood(), media_type="application/json")
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result_of("plain", method)}
        return JSONResponse(answer, headers=headers)


def test_a_new_session_is_started_if_the_server_forgot_the_old_one() -> None:
    app = Forgetful()
    with served(app) as address:
        model = ScriptedClient([cell("FINAL(hello())")] * 2)
        with RLM(model, tools=[mcp(f"{address}/mcp")]) as rlm:
            assert rlm.ask("What?").answer == "hello"
            app.sessions.clear()
            assert rlm.ask("What?").answer == "hello"
    assert (app.opened, app.calls) == (2, 2)


def test_an_endless_answer_fails_only_its_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transports, "MAX_MESSAGE_BYTES", 3 << 20)
    app = Forgetful()
    with served(app) as address:
        model = ScriptedClient([cell("hello()"), cell("FINAL('on')")])
        with RLM(model, tools=[mcp(f"{address}/mcp")]) as rlm:
            app.floods = True
            assert rlm.ask("What?").answer == "on"
    told = str(model.requests[1].messages[-1].content)
    assert (
        "ToolFailed: hello failed: Failed to parse JSON response: it is larger than 3 MiB" in told
    )


def test_the_older_sse_transport_can_be_chosen() -> None:
    with served(make_server().sse_app()) as address:
        server = mcp(f"{address}/sse", transport="sse")
        assert run([server], "FINAL(add(40))").answer == "42"


async def test_a_server_works_from_any_event_loop_and_several_at_once(site: Site) -> None:
    server = mcp(site.url, headers=HEADERS)
    await server.open()
    rlm = RLM(ScriptedClient([cell("FINAL(add(1))")] * 6), tools=[server])
    here = [rlm.aask("What?") for _ in range(3)]
    there = asyncio.to_thread(rlm.ask, "What?")
    elsewhere = asyncio.to_thread(lambda: asyncio.run(rlm.aask("What?")))
    results = await asyncio.gather(*here, there, elsewhere)
    assert [each.answer for each in results] == ["3"] * 5
    await rlm.aclose()
    wait_for(lambda: site.guard.open == 0)
