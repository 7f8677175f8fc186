"""The server itself: its paths, its memory, its life, and answers that are always the same."""

import asyncio
import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.errors import ConfigError
from rlm.testing.fake_server import Answer, Asked, FakeServer, requests
from rlm.testing.fake_server.requests import Route, read_request, route

BODY = {"model": "m-1", "messages": [{"role": "user", "content": "hi"}]}


def call(
    server: FakeServer,
    path: str,
    body: object = None,
    *,
    method: str | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, Any]:
    """One request with the standard library alone: status and decoded body."""
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=60)
    try:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection.request(method or ("GET" if body is None else "POST"), path, data, headers or {})
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"null")
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("/v1/chat/completions", ("choices", 0, "message", "content")),
        ("/openai/v1/chat/completions", ("choices", 0, "message", "content")),
        ("/openai/deployments/d/chat/completions", ("choices", 0, "message", "content")),
        ("/api/v1/chat/completions?x=1", ("choices", 0, "message", "content")),
        ("/v1/responses", ("output", 0, "content", 0, "text")),
        ("/openai/v1/responses", ("output", 0, "content", 0, "text")),
        ("/v1/messages", ("content", 0, "text")),
        (
            "/v1beta/models/g-1:generateContent",
            ("candidates", 0, "content", "parts", 0, "text"),
        ),
        ("/v1/models/g-1:generateContent?key=k", ("candidates", 0, "content", "parts", 0, "text")),
    ],
)
def test_every_dialect_answers_at_its_path(path: str, where: tuple[Any, ...]) -> None:
    with FakeServer(["hello"]) as server:
        status, found = call(server, path, BODY)
    for step in where:
        found = found[step]
    assert (status, found) == (200, "hello")


def test_a_deployment_in_the_path_names_the_model() -> None:
    with FakeServer(["hello"]) as server:
        path = "/openai/deployments/my%20model/chat/completions"
        assert call(server, path, {"messages": []})[1]["model"] == "my model"


def test_a_gemini_stream_without_sse_is_a_list() -> None:
    with FakeServer(["hello there"]) as server:
        _, found = call(server, "/v1beta/models/g:streamGenerateContent", {"contents": []})
    assert [each["candidates"][0]["content"]["parts"][0]["text"] for each in found] == [
        "hello ",
        "there",
    ]


def test_models_health_and_unknown_paths() -> None:
    with FakeServer(["hello"]) as server:
        assert call(server, "/v1/models")[1]["data"][0]["id"] == "fake-model"
        assert call(server, "/v1beta/models")[1]["models"][0]["name"] == "models/fake-model"
        assert call(server, "/health") == (200, {"status": "ok", "requests": 0})
        for status, found in (
            call(server, "/v1/nothing"),
            call(server, "/v1/nothing", BODY),
            call(server, "/v1/chat/completions"),
        ):
            assert status == 404
            assert "/v1/chat/completions" in found["error"]["message"]
        assert server.count == 0


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"3", b"\xff", b"[" * 100_000])
def test_an_invalid_body_is_refused(body: bytes) -> None:
    with FakeServer(["hello"]) as server:
        status, found = call(server, "/v1/messages", body)
        assert (status, found["type"]) == (400, "error")
        assert "no request" in found["error"]["message"]
        assert call(server, "/v1/messages", BODY)[0] == 200, "no answer was used up"


def test_an_exhausted_script_gives_a_permanent_error() -> None:
    with FakeServer(["only"]) as server:
        call(server, "/v1/messages", BODY)
        status, found = call(server, "/v1/messages", BODY)
    assert status == 400
    assert "the script is exhausted" in found["error"]["message"]


def test_requests_are_recorded_without_secrets() -> None:
    sent = {"Authorization": "Bearer top-secret", "X-Mine": "hidden", "User-Agent": "me/1"}
    with FakeServer(["one", "two"]) as server:
        call(server, "/v1/chat/completions?key=top-secret", BODY, headers=sent)
        _, found = call(server, "/_requests")
        (one,) = server.requests
        assert one.headers["Authorization"] == "Bearer top-secret", "a test may look"
        assert "top-secret" not in repr(server.requests)
        assert (found["count"], found["in_flight"], found["max_in_flight"]) == (1, 0, 1)
        (told,) = found["requests"]
        assert told["headers"]["Authorization"] == told["headers"]["X-Mine"] == "[redacted]"
        assert told["headers"]["User-Agent"] == "me/1"
        assert "top-secret" not in json.dumps(found)
        assert (told["path"], told["dialect"], told["model"]) == (
            "/v1/chat/completions",
            "chat",
            "m-1",
        )
        assert (told["body"], told["stream"], told["status"]) == (BODY, False, 200)
        assert call(server, "/_requests", method="DELETE") == (200, {"count": 0})
        assert server.requests == []
        reply = call(server, "/v1/chat/completions", BODY)[1]
        assert reply["choices"][0]["message"]["content"] == "one", "the script begins again too"


def test_only_the_latest_requests_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "KEPT_REQUESTS", 3)
    with FakeServer(["hello"], loop=True) as server:
        for _ in range(5):
            call(server, "/v1/messages", BODY)
        assert [each.number for each in server.requests] == [3, 4, 5]
        assert server.count == 5
        monkeypatch.setattr(requests, "KEPT_BYTES", 100)
        call(server, "/v1/messages", BODY)
        assert [each.number for each in server.requests] == [6]


@pytest.mark.parametrize("stream", [False, True])
def test_the_same_script_gives_the_same_bytes(stream: bool) -> None:
    answer = Answer(reply="a b", reasoning="c", tool_calls=())
    found = []
    for _ in range(2):
        with FakeServer([answer]) as server:
            connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=60)
            connection.request("POST", "/v1/responses", json.dumps({**BODY, "stream": stream}))
            found.append(connection.getresponse().read())
            connection.close()
    assert found[0] == found[1]
    assert len(found[0]) > 100


def test_an_answer_can_be_computed_by_a_function() -> None:
    def length(asked: Asked) -> str:
        return f"{asked.model}: {len(asked.text)}"

    with FakeServer(rules=[("", length)]) as server:
        _, found = call(server, "/v1/messages", {**BODY, "system": "abc"})
    assert found["content"][0]["text"] == f"m-1: {len('abc' + 'hi') + 1}"


def test_usage_is_counted_unless_given() -> None:
    with FakeServer(["x" * 40]) as server:
        used = call(server, "/v1/chat/completions", BODY)[1]["usage"]
    assert (used["prompt_tokens"], used["completion_tokens"], used["total_tokens"]) == (1, 11, 12)


# -- its life -------------------------------------------------------------------------------------


async def test_a_server_started_on_an_event_loop_serves_it() -> None:
    async with FakeServer(["hello"]) as server:
        status, _ = await asyncio.to_thread(call, server, "/v1/messages", BODY)
        assert status == 200
    with pytest.raises(OSError):
        await asyncio.to_thread(call, server, "/health")


def test_a_server_can_be_restarted_at_the_same_address() -> None:
    server = FakeServer(["one", "two"])
    with pytest.raises(ConfigError, match="not started"):
        _ = server.url
    with server:
        before = server.url
        call(server, "/v1/messages", BODY)
        with pytest.raises(ConfigError, match="already running"):
            server.start()
    with server:
        assert server.url == before
        assert call(server, "/v1/messages", BODY)[1]["content"][0]["text"] == "two"
    server.stop()


def test_a_taken_port_is_an_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError):
            FakeServer(["hello"], port=taken.getsockname()[1]).start()


def test_stopping_ends_requests_in_flight_and_leaves_no_thread() -> None:
    before = threading.active_count()
    server = FakeServer([{"behaviour": "never"}]).start()
    ended: list[str] = []

    def wait() -> None:
        try:
            call(server, "/v1/messages", BODY)
        except (OSError, http.client.HTTPException) as error:
            ended.append(type(error).__name__)

    thread = threading.Thread(target=wait)
    thread.start()
    deadline = time.monotonic() + 60
    while server.in_flight != 1 and time.monotonic() < deadline:
        time.sleep(0.005)
    server.stop()
    thread.join(60)
    assert len(ended) == 1
    assert threading.active_count() == before
    assert not server.requests[0].disconnected, "it was the server that went"


def test_the_variables_cover_every_dialect() -> None:
    with FakeServer(["hello"]) as server:
        found = server.variables
        assert found["OPENAI_BASE_URL"] == server.openai_url == f"{server.url}/v1"
        assert found["ANTHROPIC_BASE_URL"] == found["GEMINI_BASE_URL"] == server.url
        assert {each for name, each in found.items() if name.endswith("_KEY")} == {"fake"}


def test_importing_the_fake_server_loads_no_heavy_modules() -> None:
    code = (
        "import sys, rlm.testing.fake_server\n"
        "rlm.testing.fake_server.FakeServer(['x'])\n"
        "assert 'aiohttp' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# -- reading requests -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body", "text", "cap"),
    [
        (
            "/v1/chat/completions",
            {"messages": [{"content": "a"}, {"content": [{"type": "text", "text": "b"}]}]},
            "a\nb",
            None,
        ),
        (
            "/v1/messages",
            {"system": [{"text": "s"}], "messages": [{"content": "a"}], "max_tokens": 9},
            "s\na",
            9,
        ),
        (
            "/v1/responses",
            {"instructions": "s", "input": [{"content": [{"text": "a"}]}, {"output": "o"}]},
            "s\na\no",
            None,
        ),
        ("/v1/responses", {"input": "plain", "max_output_tokens": 7}, "plain", 7),
        (
            "/v1beta/models/g:generateContent",
            {
                "systemInstruction": {"parts": [{"text": "s"}]},
                "contents": [{"parts": [{"text": "a"}, {"inlineData": {"data": "AAAA"}}]}],
                "generationConfig": {"maxOutputTokens": 5},
            },
            "s\na",
            5,
        ),
    ],
)
def test_requests_of_every_dialect_are_read(
    path: str, body: object, text: str, cap: int | None
) -> None:
    place = route(path)
    assert place is not None
    asked = read_request(place, json.dumps(body).encode(), {})
    assert (asked.text, asked.max_output_tokens) == (text, cap)


JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["content", "text", "parts", "model", "max_tokens"]), inner
        )
    ),
)
NAMES = st.sampled_from(
    ["messages", "system", "input", "contents", "model", "stream_options", "generationConfig"]
)


@given(
    st.sampled_from(["chat", "responses", "anthropic", "gemini"]),
    st.binary() | st.dictionaries(NAMES, JSON_VALUES).map(lambda each: json.dumps(each).encode()),
)
def test_any_body_is_a_request_or_a_value_error(dialect: Any, data: bytes) -> None:
    try:
        asked = read_request(Route(dialect), data, {})
    except ValueError:
        return
    assert isinstance(asked.text, str)
    assert isinstance(asked.model, str)
