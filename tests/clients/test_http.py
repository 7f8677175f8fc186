"""Sessions, addresses, headers and proxies: what lies below the dialect."""

import asyncio
import subprocess
import sys
import threading

import pytest

from rlm.clients import _http
from rlm.clients.compatible import OpenAICompatClient
from rlm.errors import ConfigError
from rlm.messages import ModelInfo, Price
from tests.clients.misbehaving import Server, asked, completion, replies


async def test_concurrent_requests_share_one_session_and_its_connections(
    server: Server, client: OpenAICompatClient
) -> None:
    for _ in range(3):
        await client.complete(asked(), timeout_seconds=5)
    assert len(server.connections) == 1
    await asyncio.gather(*(client.complete(asked(), timeout_seconds=5) for _ in range(5)))
    assert len(server.bodies) == 8
    assert len(client._endpoint._pool._sessions) == 1


async def test_each_event_loop_has_its_own_session(
    server: Server, client: OpenAICompatClient
) -> None:
    await client.complete(asked(), timeout_seconds=5)
    server.behave = replies(completion("hello"), headers={"Connection": "close"})
    texts: list[str] = []

    def elsewhere() -> None:
        reply = asyncio.run(client.complete(asked(), timeout_seconds=5))
        texts.append(reply.text)

    for _ in range(2):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join)
    assert texts == ["hello", "hello"]
    await client.complete(asked(), timeout_seconds=5)
    assert len(client._endpoint._pool._sessions) == 1, "sessions of ended loops are dropped"


async def test_closing_closes_the_session_of_a_loop_that_still_runs(
    server: Server, client: OpenAICompatClient
) -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    call = client.complete(asked(), timeout_seconds=5)
    await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, loop))
    (session,) = client._endpoint._pool._sessions.values()
    await client.close()
    assert session.closed
    loop.call_soon_threadsafe(loop.stop)
    await asyncio.to_thread(thread.join)
    loop.close()


async def test_a_client_can_be_used_again_after_closing(
    server: Server, client: OpenAICompatClient
) -> None:
    await client.complete(asked(), timeout_seconds=5)
    await client.close()
    assert (await client.complete(asked(), timeout_seconds=5)).text == "hello"


def test_info_returns_the_given_facts() -> None:
    known = ModelInfo(8_000, Price(1.0, 2.0), "small")
    client = OpenAICompatClient("http://localhost:1/v1", infos={"m-1": known})
    assert client.info("m-1") == known
    assert client.info("other") == ModelInfo()


@pytest.mark.parametrize("url", ["localhost:8000/v1", "", "ftp://x/v1", "http:///v1"])
def test_an_invalid_base_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="base URL"):
        OpenAICompatClient(url)


def test_a_header_with_a_line_break_is_refused_without_being_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        OpenAICompatClient("http://localhost:1/v1", "sk-secret\nX-Evil: 1")
    assert "sk-secret" not in str(caught.value)


def test_importing_the_client_does_not_import_aiohttp() -> None:
    code = "import sys, rlm.clients.compatible; assert 'aiohttp' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("variables", "host", "expected"),
    [
        ({"https_proxy": "http://proxy:3128"}, "api.example.com", "http://proxy:3128"),
        ({"https_proxy": "http://proxy:3128", "no_proxy": "example.com"}, "api.example.com", None),
        ({"https_proxy": "http://proxy:3128"}, "127.0.0.1", None),
        ({}, "api.example.com", None),
    ],
)
def test_the_proxy_of_the_environment_is_used(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], host: str, expected: str | None
) -> None:
    for name in ("https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert _http._proxy("https", host) == expected
