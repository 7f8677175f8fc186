"""The real litellm on a real server, skipped where it is absent; its tables and errors apart."""

import asyncio
import importlib.util
import os
import sys
import types
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rlm import RLM
from rlm.clients._adapters import model_error, public_line
from rlm.clients.litellm import LiteLLMClient, _info, _litellm, _row
from rlm.errors import ConfigError, ModelError
from rlm.messages import Message, ModelInfo, Price, Reply, Request, ToolCall, ToolSpec, Usage
from rlm.protocols import Client
from tests.clients.misbehaving import (
    Server,
    asked,
    completion,
    delta,
    event,
    hangs_up,
    never_answers,
    replies,
    sends,
    streams,
)

has_litellm = importlib.util.find_spec("litellm") is not None
real = pytest.mark.skipif(
    not has_litellm, reason="litellm is not installed; `make test-adapters` has it"
)
heavy = pytest.mark.heavy
pytestmark = pytest.mark.filterwarnings("default")  # litellm warns about its own types
KEY = "private-0123456789"
MODEL = "openai/gpt-4o-mini"
LOOK = ToolSpec(name="look", description="Looks.", parameters={"type": "object", "properties": {}})
DONE = b"data: [DONE]\n\n"


@pytest.fixture
async def client(server: Server) -> AsyncIterator[LiteLLMClient]:
    made = LiteLLMClient.for_model(MODEL, api_key=KEY, base_url=server.url)
    yield made
    await made.close()


def to(text: str = "hi", **facts: Any) -> Request:
    return asked(text, **{"model": MODEL, **facts})


# -- without the library --------------------------------------------------------------------------


def test_query_parameters_are_refused_because_litellm_would_send_them_in_the_body() -> None:
    kwargs = {"model_name": "openai/gpt-4o-mini", "default_query": {"tenant": "a"}}
    with pytest.raises(ConfigError, match=r"can't add query parameters \(query, default_query"):
        RLM(backend="litellm", backend_kwargs={**kwargs, "api_key": KEY})


def test_without_the_package_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "litellm", None)
    with pytest.raises(ConfigError, match=r"pip install 'recursivelm\[litellm\]'"):
        LiteLLMClient.for_model(MODEL)


def test_importing_litellm_fetches_nothing_and_leaves_variables_unchanged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str | None] = []

    def find(name: str) -> Any:
        seen.append(os.environ.get("LITELLM_LOCAL_MODEL_COST_MAP"))
        return types.ModuleType(name)

    monkeypatch.setattr("rlm.clients._adapters.import_module", find)
    monkeypatch.delenv("LITELLM_LOCAL_MODEL_COST_MAP", raising=False)
    assert _litellm().suppress_debug_info
    assert "LITELLM_LOCAL_MODEL_COST_MAP" not in os.environ
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "False")
    _litellm()
    assert seen == ["True", "False"]
    assert os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] == "False"


ROW = {
    "max_input_tokens": 1_000,
    "input_cost_per_token": 1e-06,
    "output_cost_per_token": 4e-06,
    "cache_read_input_token_cost": 1e-07,
}
LONG = {
    "input_cost_per_token_above_200k_tokens": 2e-06,
    "output_cost_per_token_above_200k_tokens": 6e-06,
}


@pytest.mark.parametrize(
    ("row", "info"),
    [
        ({}, ModelInfo()),
        (ROW, ModelInfo(1_000, Price(1.0, 4.0, 0.1))),
        ({**ROW, **LONG}, ModelInfo(1_000, Price(1.0, 4.0, 0.1, long=(200_000, Price(2.0, 6.0))))),
        ({"max_tokens": 8, "input_cost_per_token": "x"}, ModelInfo(8)),
        ({"max_tokens": True, "max_input_tokens": "many"}, ModelInfo()),
        ({**ROW, "output_cost_per_token": -1}, ModelInfo(1_000)),
        ({"input_cost_per_token": 0, "output_cost_per_token": 0}, ModelInfo(None, Price(0, 0))),
    ],
)
def test_an_entry_of_litellms_table_becomes_model_info(
    row: dict[str, Any], info: ModelInfo
) -> None:
    assert _info(row) == info


def test_a_model_is_found_with_or_without_its_provider() -> None:
    library = types.SimpleNamespace(model_cost={"a/b": ROW, "c": {"x": 1}, "d": "odd"})
    assert _row(library, "a/b") is ROW
    assert _row(library, "openai/c") == {"x": 1}
    assert _row(library, "openai/d") == _row(library, "none") == {}
    assert _row(types.SimpleNamespace(model_cost=None), "a/b") == {}


def test_status_and_headers_are_taken_from_library_errors() -> None:
    class InternalServerError(Exception):
        status_code = 500

    class Answered(InternalServerError):
        response = types.SimpleNamespace(headers={"x": "1"}, status_code=500)

    class BadRequestError(Exception):
        code = 400

    found = [
        model_error("m", error)
        for error in (
            InternalServerError("litellm.InternalServerError: InternalServerError: lost"),
            Answered("lost"),
            BadRequestError("no"),
            ValueError("odd"),
        )
    ]
    assert [(e.status, e.retryable, e.ambiguous) for e in found] == [
        (500, True, True),  # no server's headers: the library's own word for a lost connection
        (500, True, False),
        (400, False, False),
        (None, False, False),
    ]
    assert str(found[0]) == "m: InternalServerError: lost; try again later"


@pytest.mark.parametrize(
    "text",
    [
        f"Incorrect key {KEY} given",
        "Incorrect key sk-proj-abcdefghijklmnop123 given",
        "Authorization: Bearer abcdef0123456789",
        "GET https://host/v1?key=AbCdEf&x=1",
        "https://user:secretword@host/v1",
        "the key from-the-environment is wrong",
        "x" * 290 + KEY,
    ],
)
def test_a_public_line_contains_no_secret(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "from-the-environment")
    shown = public_line(text, [KEY])
    for secret in ("private", "0123456789", "AbCdEf", "secretword", "from-the", "abcdefgh"):
        assert secret not in shown
    assert len(shown) <= 300


# -- with it --------------------------------------------------------------------------------------


@real
@heavy
async def test_a_plain_request(server: Server, client: LiteLLMClient) -> None:
    checked: Client = client
    usage = {
        "prompt_tokens": 1_000,
        "completion_tokens": 100,
        "prompt_tokens_details": {"cached_tokens": 800},
        "completion_tokens_details": {"reasoning_tokens": 7},
    }
    server.behave = replies(completion("hello", usage=usage))
    reply = await checked.complete(to(sampling={"temperature": 0.2}), timeout_seconds=10)
    assert (reply.text, reply.finish_reason, reply.model) == ("hello", "stop", "m-1-2031")
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.cached_tokens) == (1_000, 800)
    assert (reply.usage.output_tokens, reply.usage.reasoning_tokens) == (100, 7)
    assert reply.usage.cost_usd == pytest.approx((200 * 0.15 + 800 * 0.075 + 100 * 0.6) / 1e6)
    assert server.bodies == [
        {
            "model": "gpt-4o-mini",
            "messages": [{"role": "user", "content": "hi"}],
            "temperature": 0.2,
            "max_tokens": 50,
        }
    ]
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"


@real
@heavy
async def test_unknown_usage_is_none_and_a_given_price_wins(server: Server) -> None:
    info = ModelInfo(price=Price(1, 1))
    client = LiteLLMClient(api_key=KEY, base_url=server.url, infos={MODEL: info})
    assert (await client.complete(to(), timeout_seconds=10)).usage is None
    server.behave = replies(completion("x", usage={"prompt_tokens": 5, "completion_tokens": 1}))
    reply = await client.complete(to(), timeout_seconds=10)
    assert reply.usage == Usage(5, 1, requests=1)
    assert client.info(MODEL) is info
    unknown = await client.complete(to(model="openai/own-model"), timeout_seconds=10)
    assert unknown.usage == Usage(5, 1, requests=1)
    assert client.info("openai/own-model") == ModelInfo()
    await client.close()


@real
@heavy
async def test_litellms_own_table_is_used(client: LiteLLMClient) -> None:
    info = client.info(MODEL)
    assert info.window_tokens == 128_000
    assert info.price == Price(0.15, 0.6, 0.075)


@real
@heavy
async def test_a_stream(server: Server, client: LiteLLMClient) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 4}
    last = {"model": "x", "choices": [], "usage": usage}
    server.behave = streams(
        [event(delta("hel")), event(delta("lo", finish="stop")), event(last), DONE]
    )
    *texts, reply = [part async for part in client.stream(to(), timeout_seconds=10)]
    assert isinstance(reply, Reply)
    assert (texts, reply.text, reply.finish_reason) == (["hel", "lo"], "hello", "stop")
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (10, 4)
    assert reply.usage.cost_usd == pytest.approx((10 * 0.15 + 4 * 0.6) / 1e6)
    server.behave = streams([event(delta("hel"))], cut=True)
    with pytest.raises(ModelError) as caught:
        async for _ in client.stream(to(), timeout_seconds=10):
            pass
    assert (caught.value.retryable, caught.value.ambiguous) == (True, True)


@real
@heavy
async def test_tool_calls_reasoning_and_images(server: Server, client: LiteLLMClient) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 3}'}}
    message = {"tool_calls": [call], "reasoning_content": "hm"}
    server.behave = replies(completion(None, message=message, finish_reason="tool_calls"))
    image = {"type": "image", "media_type": "image/png", "data": "aGk="}
    messages = (Message("user", [{"type": "text", "text": "What is it?"}, image]),)
    reply = await client.complete(to(messages=messages, tools=(LOOK,)), timeout_seconds=10)
    assert reply.tool_calls == (ToolCall(id="c1", name="look", arguments={"at": 3}),)
    assert (reply.reasoning, reply.finish_reason) == ("hm", "tool_calls")
    content = server.bodies[0]["messages"][0]["content"]
    assert content[1]["image_url"]["url"] == "data:image/png;base64,aGk="
    assert server.bodies[0]["tools"][0]["function"]["name"] == "look"
    turn = Message("assistant", "", tool_calls=reply.tool_calls, opaque=reply.opaque)
    result = Message("tool", "a cat", tool_call_id="c1")
    await client.complete(to(messages=(*messages, turn, result)), timeout_seconds=10)
    sent = server.bodies[1]["messages"]
    assert sent[1]["tool_calls"][0]["function"]["name"] == "look"
    assert (sent[2]["role"], sent[2]["content"]) == ("tool", "a cat")


@real
@heavy
@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 422, 429, 500, 503])
async def test_a_rejected_key_is_reported_once_and_not_shown(
    server: Server, client: LiteLLMClient, status: int
) -> None:
    refusal = {"error": {"message": f"no use for {KEY}"}}
    server.behave = replies(refusal, status=status, headers={"Retry-After": "3"})
    with pytest.raises(ModelError, match="no use for") as caught:
        await client.complete(to(), timeout_seconds=10)
    assert len(server.bodies) == 1
    assert caught.value.status == status
    assert caught.value.retryable == (status in {408, 429, 500, 503})
    assert caught.value.retry_after_seconds == 3.0
    assert "private" not in str(caught.value)
    assert caught.value.__cause__ is None


@real
@heavy
@pytest.mark.parametrize(
    "behave",
    [hangs_up(), sends("nonsense"), replies({"x": 1}), replies([]), replies(None)],
    ids=["hangs up", "no json", "no choices", "a list", "null"],
)
async def test_a_broken_reply_may_have_been_billed(
    server: Server, client: LiteLLMClient, behave: Any
) -> None:
    server.behave = behave
    with pytest.raises(ModelError) as caught:
        await client.complete(to(), timeout_seconds=10)
    assert (caught.value.retryable, caught.value.ambiguous) == (True, True)
    assert len(server.bodies) == 1


@real
@heavy
async def test_timeouts_and_cancelling_close_the_connection(
    server: Server, client: LiteLLMClient
) -> None:
    for late in (True, False):
        gone = asyncio.Event()
        server.behave = never_answers(gone)
        server.reached.clear()
        task = asyncio.create_task(client.complete(to(), timeout_seconds=0.5 if late else 60))
        await server.reached.wait()
        if late:
            with pytest.raises(ModelError, match="did not answer") as caught:
                await task
            assert caught.value.ambiguous
        else:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await asyncio.wait_for(gone.wait(), 60)


@real
@heavy
async def test_models_without_a_provider_are_reported_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ConfigError, match="litellm/openai/nonsense"):
        LiteLLMClient.for_model("nonsense")
    assert capsys.readouterr().out == ""  # litellm advertises itself there if it may
