"""Amazon Bedrock: Converse requests and replies, its OpenAI interface, keys and signatures."""

import json
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from rlm.clients._converse_request import body_of
from rlm.clients._dialect import HttpClient
from rlm.clients.converse import ConverseDialect, StreamedConverse
from rlm.errors import ConfigError, ModelError
from rlm.messages import Message, Reply, Request, ToolCall, ToolSpec
from rlm.models import about
from rlm.testing.fake_server import FakeServer
from rlm.wiring.registry import default_model, make_client, missing_key

KEY = "bedrock-api-key-0123456789"
SECRET = "a-secret-access-key-0123456789"
CLAUDE = "global.anthropic.claude-sonnet-5-5"
NOVA = "us.amazon.nova-lite-v1:0"
POINT = {"cachePoint": {"type": "default"}}
ACCESS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": SECRET}


def asked(*messages: Message, **facts: Any) -> Request:
    given = messages or (Message("system", "Be brief."), Message("user", "hi"))
    known: dict[str, Any] = {"model": NOVA, "messages": given, "max_output_tokens": 50}
    return Request(**{**known, **facts})


async def collected(client: HttpClient, request: Request) -> tuple[str, Reply]:
    parts = [part async for part in client.stream(request, timeout_seconds=10)]
    *pieces, reply = parts
    assert isinstance(reply, Reply)
    return "".join(str(piece) for piece in pieces), reply


def reach(model: str, server: FakeServer, **more: str) -> tuple[HttpClient, str]:
    variables = {
        "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": server.url,
        "AWS_BEDROCK_BASE_URL": f"{server.url}/openai/v1",
        **(more or {"AWS_BEARER_TOKEN_BEDROCK": KEY}),
    }
    client, wire_name = make_client(model, variables)
    assert isinstance(client, HttpClient)
    return client, wire_name


# -- keys, addresses, defaults ---------------------------------------------------------------------


def test_keys_regions_and_addresses_of_bedrock() -> None:
    key = {"AWS_BEARER_TOKEN_BEDROCK": KEY}
    assert default_model(key) == f"bedrock/{CLAUDE}"
    assert default_model(ACCESS) is None, (
        "an access key to AWS does not mean that Bedrock is wanted"
    )
    assert missing_key(f"bedrock/{NOVA}", key) is None
    assert missing_key(f"bedrock/{NOVA}", ACCESS) is None
    assert missing_key("bedrock/a", {}) == (
        "bedrock/a needs a key: set AWS_BEARER_TOKEN_BEDROCK, "
        "or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )
    with pytest.raises(ConfigError, match="or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
        make_client("bedrock-openai/a", {})
    here = {**key, "AWS_REGION": "eu-west-1"}
    client, _ = make_client("bedrock/a", here)
    assert repr(client) == "ConverseClient('bedrock-runtime.eu-west-1.amazonaws.com')"
    client, _ = make_client("bedrock-openai/a", key)
    assert repr(client) == "OpenAICompatClient('bedrock-runtime.us-east-1.amazonaws.com')"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_and_its_cost(stream: bool) -> None:
    usage = {
        "input_tokens": 1_000,
        "output_tokens": 200,
        "cached_tokens": 400,
        "cache_write_tokens": 100,
    }
    async with FakeServer([{"reply": "Hello there.", "usage": usage}]) as server:
        client, wire_name = reach(f"bedrock/{CLAUDE}", server)
        request = asked(model=wire_name, sampling={"temperature": 0.3, "stop": ["END"], "top_k": 5})
        if stream:
            text, reply = await collected(client, request)
            assert text == "Hello there."
        else:
            reply = await client.complete(request, timeout_seconds=10)
        await client.close()
        (received,) = server.requests
    operation = "converse-stream" if stream else "converse"
    assert received.path == f"/model/{CLAUDE}/{operation}"
    assert received.headers["Authorization"] == f"Bearer {KEY}"
    assert received.asked is not None
    assert received.asked.body == {
        "inferenceConfig": {"maxTokens": 50, "temperature": 0.3, "stopSequences": ["END"]},
        "additionalModelRequestFields": {"top_k": 5},
        "system": [{"text": "Be brief."}],
        "messages": [{"role": "user", "content": [{"text": "hi"}]}],
    }
    assert (reply.text, reply.finish_reason) == ("Hello there.", "stop")
    assert reply.usage is not None
    counts = reply.usage.input_tokens, reply.usage.cached_tokens, reply.usage.cache_write_tokens
    assert counts == (1_000, 400, 100)
    price = about("bedrock", CLAUDE).price
    assert price is not None
    assert price.cost(reply.usage) == (500 * 2 + 400 * 0.1 + 100 * 2.5 + 200 * 10) * 10**6


async def test_requests_are_signed_for_their_address() -> None:
    async with FakeServer(["fine", "fine"]) as server:
        client, wire_name = reach(f"bedrock/{NOVA}", server, **ACCESS, AWS_SESSION_TOKEN="a-token")
        await client.complete(asked(model=wire_name), timeout_seconds=10)
        await client.close()
        other, wire_name = reach("bedrock-openai/openai.gpt-oss-120b-1:0", server, **ACCESS)
        await other.complete(asked(model=wire_name), timeout_seconds=10)
        await other.close()
        first, second = server.requests
    assert first.path == f"/model/{NOVA}/converse"
    assert first.headers["X-Amz-Security-Token"] == "a-token"
    assert re.fullmatch(r"\d{8}T\d{6}Z", first.headers["X-Amz-Date"])
    for received in (first, second):
        assert re.fullmatch(
            r"AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/\d{8}/us-east-1/bedrock/aws4_request, "
            r"SignedHeaders=host;x-amz-date(;x-amz-security-token)?, Signature=[0-9a-f]{64}",
            received.headers["Authorization"],
        )
        assert SECRET not in str(received.headers)
    assert second.path == "/openai/v1/chat/completions"


async def test_a_bedrock_key_is_preferred_to_an_access_key() -> None:
    async with FakeServer(["fine"]) as server:
        both = {**ACCESS, "AWS_BEARER_TOKEN_BEDROCK": KEY}
        client, wire_name = reach(f"bedrock/{NOVA}", server, **both)
        await client.complete(asked(model=wire_name), timeout_seconds=10)
        await client.close()
        (received,) = server.requests
    assert received.headers["Authorization"] == f"Bearer {KEY}"


async def test_a_secret_in_an_error_is_hidden() -> None:
    async with FakeServer([{"status": 403, "error": f"your key {SECRET} is wrong"}]) as server:
        client, wire_name = reach(f"bedrock/{NOVA}", server, **ACCESS)
        with pytest.raises(ModelError, match=r"your key \[secret\] is wrong"):
            await client.complete(asked(model=wire_name), timeout_seconds=10)
        await client.close()


@pytest.mark.parametrize("stream", [False, True])
async def test_models_with_openais_interface_use_it(stream: bool) -> None:
    model = "openai.gpt-oss-120b-1:0"
    said = "<reasoning>Hm.</reasoning>Blue."
    async with FakeServer(
        [{"reply": said, "usage": {"input_tokens": 9, "output_tokens": 4}}]
    ) as server:
        client, wire_name = reach(f"bedrock-openai/{model}", server)
        request = asked(model=wire_name)
        if stream:
            _, reply = await collected(client, request)
        else:
            reply = await client.complete(request, timeout_seconds=10)
        await client.close()
        (received,) = server.requests
    assert received.path == "/openai/v1/chat/completions"
    assert received.headers["Authorization"] == f"Bearer {KEY}"
    assert received.asked is not None
    assert received.asked.body["model"] == model
    assert received.asked.body["max_completion_tokens"] == 50
    assert (reply.text, reply.reasoning) == ("Blue.", "Hm.")
    price = about("bedrock-openai", model).price
    assert price is not None
    assert reply.usage is not None
    assert price.cost(reply.usage) == round((9 * 0.15 + 4 * 0.6) * 10**6)


@pytest.mark.parametrize(
    ("status", "error", "retryable", "words"),
    [
        (400, "Input is too long for requested model.", False, "Input is too long"),
        (403, "not authorized", False, "the key in AWS_BEARER_TOKEN_BEDROCK may use this model"),
        (429, "Too many requests", True, "wait, lower max_concurrent_calls"),
    ],
)
@pytest.mark.parametrize("behaviour", [(), ("error_event",)])
@pytest.mark.parametrize("stream", [False, True])
async def test_failures_are_classified(
    stream: bool, behaviour: tuple[str, ...], status: int, error: str, retryable: bool, words: str
) -> None:
    answer = {"reply": "some words", "status": status, "error": error, "behaviour": behaviour}
    async with FakeServer([answer]) as server:
        client, wire_name = reach(f"bedrock/{NOVA}", server)
        request = asked(model=wire_name)
        plain = partial(client.complete, timeout_seconds=10)
        ask: Callable[[Request], Awaitable[Any]] = partial(collected, client) if stream else plain
        with pytest.raises(ModelError) as caught:
            await ask(request)
        await client.close()
    assert (caught.value.status, caught.value.retryable) == (status, retryable)
    assert caught.value.ambiguous is bool(behaviour)
    assert words in str(caught.value)


def test_a_model_stream_error_is_retryable() -> None:
    reported = ConverseDialect().error_in({"modelStreamErrorException": {"message": "oops"}})
    assert reported == (None, "oops")
    assert ConverseDialect().error_in({"contentBlockDelta": {}}) is None


# -- requests --------------------------------------------------------------------------------------


def test_a_whole_conversation() -> None:
    picture = {"type": "image", "media_type": "image/png", "data": "aWNvbg=="}
    thoughts = [
        {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
        {"type": "redacted_thinking", "data": "hidden"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": 1}},
    ]
    request = asked(
        Message("user", [{"type": "text", "text": "What is it?"}, picture]),
        Message(
            "assistant",
            "I look.",
            tool_calls=(ToolCall("t1", "look", {"at": 1}),),
            opaque={"anthropic_content": thoughts},
        ),
        Message("tool", "a cat", tool_call_id="t1"),
        tools=(ToolSpec("look", "Look at it.", {"properties": {"at": {"type": "integer"}}}),),
        sampling={"tool_choice": "required"},
    )
    body = body_of(request)
    assert body["messages"] == [
        {
            "role": "user",
            "content": [
                {"text": "What is it?"},
                {"image": {"format": "png", "source": {"bytes": "aWNvbg=="}}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "sig"}}},
                {"reasoningContent": {"redactedContent": "hidden"}},
                {"text": "I look."},
                {"toolUse": {"toolUseId": "t1", "name": "look", "input": {"at": 1}}},
            ],
        },
        {
            "role": "user",
            "content": [{"toolResult": {"toolUseId": "t1", "content": [{"text": "a cat"}]}}],
        },
    ]
    schema = {"type": "object", "properties": {"at": {"type": "integer"}}}
    spec = {"name": "look", "description": "Look at it.", "inputSchema": {"json": schema}}
    assert body["toolConfig"] == {"tools": [{"toolSpec": spec}], "toolChoice": {"any": {}}}


def test_a_reply_is_sent_back_unchanged() -> None:
    content = [
        {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "sig"}}},
        {"reasoningContent": {"redactedContent": "hidden"}},
        {"text": "I look."},
        {"toolUse": {"toolUseId": "t1", "name": "look", "input": {"at": 1}}},
    ]
    payload = {"output": {"message": {"content": content}}, "stopReason": "tool_use"}
    reply = ConverseDialect().reply(payload)
    assert (reply.text, reply.reasoning, reply.finish_reason) == ("I look.", "Hm.", "tool_calls")
    said = Message("assistant", reply.text, tool_calls=reply.tool_calls, opaque=reply.opaque)
    result = Message("tool", "a cat", tool_call_id="t1")
    assert body_of(asked(Message("user", "hi"), said, result))["messages"][1]["content"] == content


def test_redacted_thinking_in_a_stream_is_kept() -> None:
    streamed = StreamedConverse()
    hidden = {"reasoningContent": {"redactedContent": "hidden"}}
    events: list[dict[str, Any]] = [
        {"messageStart": {"role": "assistant"}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": hidden}},
        {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"text": "Blue."}}},
        {"messageStop": {"stopReason": "end_turn"}},
        {"metadata": {"usage": {"inputTokens": 7, "outputTokens": 3}}},
    ]
    assert [streamed.add(event) for event in events] == ["", "", "Blue.", "", ""]
    reply = streamed.reply()
    assert reply.opaque["anthropic_content"][0] == {"type": "redacted_thinking", "data": "hidden"}
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (7, 3)


@pytest.mark.parametrize(
    ("model", "grows", "marked"),
    [
        (CLAUDE, True, True),
        (CLAUDE, False, False),
        ("anthropic.claude-3-haiku-20240307-v1:0", True, False),
        ("us.anthropic.claude-3-7-sonnet-20250219-v1:0", True, True),
        ("openai.gpt-oss-120b-1:0", True, False),
    ],
)
def test_cache_points_mark_the_stable_prefix(model: str, grows: bool, marked: bool) -> None:
    talk = (
        Message("system", "Be brief."),
        *(Message("user", "one"), Message("assistant", "1")),
        *(Message("user", "two"), Message("assistant", "2")),
        Message("user", "three"),
    )
    body = body_of(asked(*talk, model=model, grows=grows))
    found = [POINT in each["content"] for each in body["messages"]]
    assert found == ([False, False, True, False, True] if marked else [False] * 5)
    assert (POINT in body["system"]) is marked
    assert all(each["content"].count(POINT) <= 1 for each in body["messages"])


def test_options_are_translated() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
    body = body_of(
        asked(sampling={"response_format": form, "top_p": 0.5, "max_tokens": 7, "seed": None})
    )
    assert body["inferenceConfig"] == {"maxTokens": 7, "topP": 0.5}
    wanted = body["outputConfig"]["textFormat"]
    assert wanted["type"] == "json_schema"
    assert wanted["structure"]["jsonSchema"]["name"] == "a"
    assert json.loads(wanted["structure"]["jsonSchema"]["schema"]) == {"type": "object"}
    guard = {"guardrailIdentifier": "g"}
    assert body_of(asked(sampling={"guardrailConfig": guard}))["guardrailConfig"] == guard
    thinking = body_of(asked(model=CLAUDE, sampling={"reasoning_effort": "high"}))
    assert thinking["additionalModelRequestFields"] == {
        "output_config": {"effort": "high"},
        "thinking": {"type": "adaptive"},
    }
    plain = body_of(asked(model="openai.gpt-oss-120b-1:0", sampling={"reasoning_effort": "low"}))
    assert plain["additionalModelRequestFields"] == {"reasoning_effort": "low"}


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        ({"seed": 1}, "seed"),
        ({"n": 2}, "must be 1"),
        ({"stop": 3}, "string or a list"),
        ({"tool_choice": "sometimes"}, "auto, none or required"),
        ({"response_format": {"type": "json_object"}}, "json_schema"),
        ({"additionalModelRequestFields": 1}, "must be a dict"),
    ],
)
def test_untranslatable_options_are_named(sampling: dict[str, Any], words: str) -> None:
    tools = (ToolSpec("look", "Look.", {}),)
    with pytest.raises(ConfigError, match=words):
        body_of(asked(sampling=sampling, tools=tools))


def test_images_need_their_data() -> None:
    for source in ({"url": "https://example.com/a.png"}, {"media_type": "image/bmp", "data": "x"}):
        with pytest.raises(ConfigError, match=r"Converse (accepts|does not)"):
            body_of(asked(Message("user", [{"type": "image", **source}])))
