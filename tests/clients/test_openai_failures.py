"""What each way of failing means: worth another try or not, perhaps billed or not, what to do."""

import asyncio
import socket
import traceback
import types
from email.utils import formatdate
from typing import Any

import pytest
from aiohttp import web

from rlm.clients import _http
from rlm.clients.compatible import OpenAICompatClient
from rlm.errors import ModelError
from tests.clients.conformance.bench import clock_moved, until
from tests.clients.misbehaving import (
    Behaviour,
    Server,
    asked,
    completion,
    hangs_up,
    never_answers,
    replies,
    sends,
    serving,
)

KEY = "sk-test-0123456789-very-secret"
NOW = 1_800_000_000


async def failure(url: str, *, timeout_seconds: float = 5, **options: Any) -> ModelError:
    """The error of one request, checked for the key in every form it could leak in."""
    client = OpenAICompatClient(url, KEY, **options)
    try:
        with pytest.raises(ModelError) as caught:
            await client.complete(asked(), timeout_seconds=timeout_seconds)
    finally:
        await client.close()
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert KEY not in shown + repr(client) + repr(client._endpoint)
    assert "\n" not in str(caught.value)
    assert "m-1" in str(caught.value)
    return caught.value


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_retryable_statuses(server: Server, status: int) -> None:
    server.behave = replies({"error": {"message": "busy"}}, status=status)
    error = await failure(server.url)
    assert (error.status, error.retryable, error.ambiguous) == (status, True, False)
    assert f"HTTP {status}" in str(error)
    assert "busy" in str(error)
    assert len(server.bodies) == 1, "a client never retries by itself"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 413, 422])
async def test_permanent_statuses(server: Server, status: int) -> None:
    server.behave = replies({"error": {"message": "no"}}, status=status)
    error = await failure(server.url)
    assert (error.status, error.retryable, error.ambiguous) == (status, False, False)
    assert error.retry_after_seconds is None


@pytest.mark.parametrize(
    ("status", "variable", "advice"),
    [
        (401, None, "LLM_API_KEY (or OPENAI_API_KEY)"),
        (401, "VLLM_KEY", "VLLM_KEY"),
        (403, "VLLM_KEY", "VLLM_KEY"),
        (404, None, "check the model name and the base URL"),
        (429, None, "quota"),
        (500, None, "try again later"),
    ],
)
async def test_the_error_says_what_to_do(
    server: Server, status: int, variable: str | None, advice: str
) -> None:
    server.behave = replies({}, status=status)
    assert advice in str(await failure(server.url, key_variable=variable))


def test_known_hosts_name_their_own_variable() -> None:
    client = OpenAICompatClient("https://openrouter.ai/api/v1")
    assert client._endpoint.key_variable == "OPENROUTER_API_KEY"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7),
        ("1.5", 1.5),
        (formatdate(NOW + 90, usegmt=True), 90),
        (formatdate(NOW - 90, usegmt=True), 0),
    ],
    ids=["whole", "fraction", "date", "past date"],
)
async def test_retry_after_is_read(
    server: Server, header: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_http, "time", types.SimpleNamespace(time=lambda: NOW))
    server.behave = replies({}, status=429, headers={"Retry-After": header})
    assert (await failure(server.url)).retry_after_seconds == seconds


@pytest.mark.parametrize("header", ["soon", "-3", "nan", "inf", ""])
async def test_an_invalid_retry_after_is_ignored(server: Server, header: str) -> None:
    server.behave = replies({}, status=429, headers={"Retry-After": header})
    assert (await failure(server.url)).retry_after_seconds is None


@pytest.mark.parametrize(
    "payload",
    [
        {"error": {"message": "the reason"}},
        {"error": "the reason"},
        {"message": "the reason"},
        {"detail": "the reason"},
        {"detail": [{"loc": ["body"], "msg": "the reason"}]},
        [{"error": {"message": "the reason"}}],
    ],
)
async def test_the_providers_own_message_is_shown(server: Server, payload: Any) -> None:
    server.behave = replies(payload, status=400)
    assert "the reason" in str(await failure(server.url))


async def test_long_messages_are_cut_after_removing_secrets(server: Server) -> None:
    header = "an-azure-key-98765"
    server.behave = sends(f"bad\nkey {'x' * 250} {KEY} {header} {'y' * 900}", status=400)
    text = str(await failure(server.url, headers={"api-key": header}))
    assert "sk-test" not in text
    assert "azure" not in text
    assert "[secret]" in text
    assert len(text) < 450


async def test_a_deeply_nested_error_body_does_no_harm(server: Server) -> None:
    server.behave = sends('{"error":' * 500 + "1" + "}" * 500, status=400)
    assert (await failure(server.url)).status == 400


async def test_a_refused_connection() -> None:
    port = unused_port()
    error = await failure(f"http://127.0.0.1:{port}/v1")
    assert (error.status, error.retryable, error.ambiguous) == (None, True, False)
    assert f"127.0.0.1:{port}" in str(error)
    assert "is the server running" in str(error)


async def test_an_unresolvable_host_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_arguments: Any, **_keywords: Any) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    error = await failure("http://models.invalid/v1")
    assert (error.retryable, error.ambiguous) == (True, False)
    assert "models.invalid" in str(error)
    assert str(error).endswith("check the address, and this machine's network, DNS and proxy")


@pytest.mark.parametrize(
    "behave",
    [
        hangs_up(),
        hangs_up(b'{"choices": [', promised=500),
        sends('{"choices": ['),
        sends("<html>welcome</html>", content_type="text/html"),
        sends(""),
        sends("[1]"),
        replies({"choices": []}),
        replies({"choices": [{"finish_reason": "stop"}]}),
        sends("[" * 200_000),
    ],
    ids=["lost", "cut", "half", "html", "empty", "list", "no choice", "no message", "deep"],
)
async def test_failures_that_may_have_been_billed_are_ambiguous(
    server: Server, behave: Behaviour
) -> None:
    server.behave = behave
    error = await failure(server.url)
    assert (error.retryable, error.ambiguous) == (True, True)
    assert len(server.bodies) == 1


async def test_a_timeout_after_sending_is_ambiguous(server: Server) -> None:
    server.behave = never_answers()
    failing = asyncio.create_task(failure(server.url, timeout_seconds=5))
    await until(lambda: len(server.bodies) == 1, "the server has the request")
    with clock_moved(by=10):
        error = await failing
    assert (error.retryable, error.ambiguous) == (True, True)
    assert "5 s" in str(error)


async def test_a_timeout_before_sending_is_not_ambiguous(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for = asyncio.Event()

    async def slow(*_arguments: Any, **_keywords: Any) -> None:
        asked_for.set()
        await asyncio.sleep(60)

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", slow, raising=False)
    error = await failure("http://models.invalid/v1", timeout_seconds=0.1)
    assert asked_for.is_set()
    assert (error.retryable, error.ambiguous) == (True, False)


async def test_without_time_left_a_request_times_out_at_once(server: Server) -> None:
    server.behave = never_answers()
    assert (await failure(server.url, timeout_seconds=0)).retryable


async def test_cancelling_closes_the_connection(server: Server) -> None:
    gone = asyncio.Event()
    server.behave = never_answers(gone)
    client = OpenAICompatClient(server.url, KEY)
    task = asyncio.create_task(client.complete(asked(), timeout_seconds=30))
    await asyncio.wait_for(server.reached.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(gone.wait(), 60)
    await client.close()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_redirects_are_not_followed(server: Server, status: int) -> None:
    async with serving() as other:
        target = other.url + "/chat/completions?token=abc"
        server.behave = replies({}, status=status, headers={"Location": target})
        error = await failure(server.url)
        assert other.bodies == [], "the key must not follow"
    assert (error.status, error.retryable) == (status, False)
    assert "redirect" in str(error)
    assert "token=abc" not in str(error)


async def test_a_response_that_is_too_large(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_http, "LARGEST_RESPONSE_BYTES", 100_000)
    server.behave = replies(completion("x" * 200_000))
    error = await failure(server.url)
    assert (error.retryable, error.ambiguous) == (False, True)


@pytest.mark.parametrize(
    ("reported", "status", "retryable"),
    [
        ({"message": "rate limited", "code": 429}, 429, True),
        ({"message": "bad model", "code": 400}, 400, False),
        ({"message": "odd", "code": "odd"}, None, True),
    ],
)
async def test_an_error_reported_with_status_200(
    server: Server, reported: dict[str, Any], status: int | None, retryable: bool
) -> None:
    server.behave = replies({"error": reported})
    error = await failure(server.url)
    assert (error.status, error.retryable, error.ambiguous) == (status, retryable, True)
    assert reported["message"] in str(error)


async def test_a_truncated_error_body_keeps_its_status(server: Server) -> None:
    async def behave(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=503, headers={"Content-Length": "500"})
        await response.prepare(request)
        await response.write(b"half")
        assert request.transport is not None
        request.transport.abort()
        return response

    server.behave = behave
    error = await failure(server.url)
    assert (error.status, error.retryable, error.ambiguous) == (503, True, False)


async def test_tls_to_a_server_without_it_is_not_retried(server: Server) -> None:
    error = await failure(server.url.replace("http://", "https://"))
    assert (error.retryable, error.ambiguous) == (False, False)
    assert "certificate" in str(error)
