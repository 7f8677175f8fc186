"""The gateway over HTTP, in its own process, with authorized and unauthorized clients."""

import asyncio
import io
import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from starlette.types import Message, Receive, Scope, Send

from rlm.errors import ConfigError
from rlm.gateway import http
from rlm.gateway.principals import Tokens, read_tokens
from rlm.web.hosts import HostPolicy
from tests.cli.running import one_clear_line, rlm
from tests.gateway.serving import TEXT, Served, answer, http_client, make_tree, over_http, refusal

ANNE, BERT = "anne-0123456789abcdef", "bert-0123456789abcdef"
MODES = ["auto", pytest.param("legacy", marks=pytest.mark.heavy)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("http")


@pytest.fixture(scope="module")
def gateway(place: Path) -> Iterator[Served]:
    tokens = place / "tokens"
    tokens.write_text(f"# who may come in\nanne:{ANNE}\n\nbert: {BERT}\n", "utf-8")
    with over_http(
        *("--root", str(make_tree(place)), "--token-file", str(tokens)),
        *("--allowed-host", "files.example", "--provenance", str(place / "record.jsonl")),
        *("--allowed-origin", "https://ide.example"),
    ) as served:
        yield served


async def status(url: str, body: Any = None, **headers: str) -> tuple[int, str, Any]:
    """POST some JSON as a client that knows no MCP."""
    sent = {"Accept": "application/json, text/event-stream", **headers}
    data = io.BytesIO(body if isinstance(body, bytes) else json.dumps(body or {}).encode())
    sent.setdefault("Content-Type", "application/json")
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=data, headers=sent) as got,
    ):
        return got.status, await got.text(), got.headers


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_with_a_token_reads_a_span(gateway: Served, place: Path, mode: str) -> None:
    async with http_client(gateway.url, ANNE, mode=mode) as client:
        session = (await answer(client, "rlm_session_create"))["session"]
        opened = await answer(client, "rlm_open", session=session, path="docs/notes.txt")
        span = await answer(client, "rlm_read", session=session, handle=opened["handle"])
    assert span["text"] == "".join(TEXT.splitlines(keepends=True)[:200])
    entries = [json.loads(line) for line in (place / "record.jsonl").read_text().splitlines()]
    assert {e["principal"] for e in entries if e["session"] == session} == {"anne"}


@pytest.mark.parametrize("mode", MODES)
async def test_a_session_is_unknown_to_another_principal(gateway: Served, mode: str) -> None:
    async with (
        http_client(gateway.url, ANNE, mode=mode) as anne,
        http_client(gateway.url, BERT, mode=mode) as bert,
    ):
        session = (await answer(anne, "rlm_session_create"))["session"]
        assert "unknown, or has ended" in await refusal(bert, "rlm_list", session=session)
        assert (await answer(anne, "rlm_list", session=session))["files"]


async def test_a_transport_session_can_be_used_only_with_its_own_token(
    gateway: Served,
) -> None:
    begin = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "0"},
        },
    }
    code, _, headers = await status(gateway.url, begin, Authorization=f"Bearer {ANNE}")
    assert code == 200
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    mine = {"Mcp-Session-Id": headers["Mcp-Session-Id"]}
    assert (await status(gateway.url, ping, Authorization=f"Bearer {BERT}", **mine))[0] == 404
    assert (await status(gateway.url, ping, Authorization=f"Bearer {ANNE}", **mine))[0] == 200


@pytest.mark.parametrize(
    "shown",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        f"Basic {ANNE}",
        f"Bearer {ANNE}x",
        f"Bearer {ANNE[:-1]}",
        ANNE,
        f"Bearer {ANNE} {BERT}",
        "Bearer " + "x" * 5_000,
        "Bearer \xff\xfe",
    ],
)
async def test_a_request_without_a_token_is_refused(gateway: Served, shown: str | None) -> None:
    headers = {} if shown is None else {"Authorization": shown}
    code, text, got = await status(gateway.url, **headers)
    assert (code, text) == (401, "a bearer token is required")
    assert got["WWW-Authenticate"].startswith("Bearer")


async def test_two_tokens_in_one_request_are_refused(gateway: Served) -> None:
    host, _, port = gateway.base.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    both = f"Authorization: Bearer {ANNE}\r\nAuthorization: Bearer {BERT}\r\n"
    writer.write(f"POST /mcp HTTP/1.1\r\nHost: {host}:{port}\r\n{both}\r\n".encode())
    assert (await reader.readline()).startswith(b"HTTP/1.1 401")
    writer.close()
    await writer.wait_closed()


async def test_health_needs_no_token_and_reveals_nothing(gateway: Served) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"{gateway.base}/health") as got:
        assert (got.status, await got.text()) == (200, '{"status":"ok"}')
        assert "Server" not in got.headers
    async with aiohttp.ClientSession() as session, session.get(f"{gateway.base}/") as got:
        assert got.status == 401


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("evil.example", 421),
        ("127.0.0.1.evil.example:{port}", 421),
        ("localhost.evil.example:{port}", 421),
        ("127.0.0.1:1", 421),
        ("localhost:{port}", 400),
        ("127.0.0.1:{port}", 400),
        ("files.example", 400),
        ("files.example:8443", 400),
    ],
)
async def test_only_its_own_host_names_are_accepted(gateway: Served, host: str, code: int) -> None:
    """400 is what it says to a request without a message, once it has looked at its name."""
    named = host.format(port=gateway.base.rpartition(":")[2])
    got, _, _ = await status(gateway.url, Authorization=f"Bearer {ANNE}", Host=named)
    assert got == code


@pytest.mark.parametrize(
    ("origin", "code"),
    [
        ("https://evil.example", 403),
        ("null", 403),
        ("http://localhost:3000", 403),
        ("https://ide.example", 400),
    ],
)
async def test_other_websites_cannot_use_the_gateway(
    gateway: Served, origin: str, code: int
) -> None:
    got, _, _ = await status(gateway.url, Authorization=f"Bearer {ANNE}", Origin=origin)
    assert got == code


async def test_the_size_of_a_request_is_limited(gateway: Served) -> None:
    large = b'{"jsonrpc":"2.0","id":1,"method":"ping","x":"' + b"x" * http.MAX_BODY_BYTES + b'"}'
    assert (await status(gateway.url, large, Authorization=f"Bearer {ANNE}"))[0] == 413


async def test_a_request_body_that_never_ends_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_BODY_SECONDS", 0.05)
    came: list[Any] = [{"type": "http.request", "body": b"{", "more_body": True}]

    async def receive() -> Any:
        return came.pop() if came else await asyncio.Event().wait()

    received = http._in_time(receive)
    assert (await received())["body"] == b"{"
    assert await received() == {"type": "http.disconnect"}


async def test_the_time_limit_ends_with_the_request_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_BODY_SECONDS", 0.0)
    came: list[Any] = [{"type": "http.disconnect"}]

    async def receive() -> Any:
        await asyncio.sleep(0.05)
        return came.pop()

    received = http._in_time(receive)
    assert await received() == {"type": "http.disconnect"}  # too late, whatever it was
    assert await received() == {"type": "http.disconnect"}
    assert came == []


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.heavy)]
)
async def test_a_signal_ends_the_gateway_even_with_a_connected_client(
    tmp_path: Path, number: int
) -> None:
    with over_http("--root", str(make_tree(tmp_path))) as served:
        async with http_client(served.url, None, mode="legacy") as client:
            begun = await answer(client, "rlm_session_create")
            await answer(client, "rlm_search", session=begun["session"], query="dolphin")
            children = _children(served.process.pid)
            code, said = await asyncio.to_thread(served.end, number)
    assert code == 0, said
    assert "Traceback" not in said
    assert children
    assert not any(_is_there(pid) for pid in children)


def _is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(each) for each in text.split()]


# -- starting --------------------------------------------------------------------------------------


def test_the_gateway_does_not_listen_on_a_network_without_a_token(tmp_path: Path) -> None:
    done = rlm("mcp", "--http", "--host", "0.0.0.0", "--port", "0", "--root", str(tmp_path))
    assert done.returncode == 1
    assert "RLM_MCP_TOKEN" in one_clear_line(done.stderr)


def test_a_port_that_is_taken_is_reported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = rlm("mcp", "--http", "--port", port, "--root", str(tmp_path))
    assert done.returncode == 1
    assert "choose one with --port N" in one_clear_line(done.stderr)


def test_a_weak_token_is_refused_and_not_printed(tmp_path: Path) -> None:
    done = rlm("mcp", "--http", "--root", str(tmp_path), RLM_MCP_TOKEN="hunter2")
    assert done.returncode == 1
    assert "16 to 512" in one_clear_line(done.stderr)
    assert "hunter2" not in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "contains no token"),
        ("anne:short", "16 to 512"),
        (f"anne:{ANNE}\nanne:{BERT}", "already has a token"),
        (f"local:{ANNE}", "can't be a principal"),
        (f"an ne:{ANNE}", "can't be a principal"),
        (f"{ANNE}\n{BERT}", "already has a token"),
        ("\0" * 20, "16 to 512"),
    ],
)
def test_a_token_file_is_checked(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=words) as complaint:
        read_tokens(path)
    assert ANNE not in str(complaint.value)


def test_a_token_file_may_hold_one_unnamed_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{ANNE}\n", "utf-8")
    assert Tokens(read_tokens(tmp_path / "token")).principal_of(ANNE) == "token"


def test_principals_must_have_different_tokens() -> None:
    with pytest.raises(ConfigError, match="the same token"):
        Tokens({"anne": ANNE, "bert": ANNE})


@pytest.mark.parametrize("sender", [ANNE, "forged"])
async def test_a_flood_of_one_principal_does_not_go_before_others(sender: str) -> None:
    order: list[str] = []

    async def served(scope: Scope, _receive: Receive, _send: Send) -> None:
        order.append(scope["state"]["principal"])

    async def ask(token: str) -> None:
        headers = [(b"host", b"127.0.0.1:1"), (b"authorization", f"Bearer {token}".encode())]
        await app({"type": "http", "path": http.PATH, "headers": headers}, receive, send)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            order.append(str(message["status"]))

    app = http._Access(served, Tokens({"anne": ANNE, "bert": BERT}), HostPolicy("127.0.0.1", 1))
    await asyncio.gather(*(ask(token) for token in [sender] * 50 + [BERT]))
    assert len(order) == 51
    assert order.index("bert") == 1
