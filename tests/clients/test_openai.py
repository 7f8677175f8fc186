"""The chat-completions client on a real server: what it sends, and what it makes of replies."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rlm.clients.compatible import OpenAICompatClient
from rlm.errors import ConfigError
from rlm.messages import Message, ToolCall, ToolSpec, Usage
from tests.clients.misbehaving import (
    Server,
    asked,
    completion,
    replies,
)


@pytest.fixture
async def client(server: Server) -> AsyncIterator[OpenAICompatClient]:
    made = OpenAICompatClient(server.url, "sk-test-0123456789")
    yield made
    await made.close()


async def test_a_plain_request(server: Server, client: OpenAICompatClient) -> None:
    reply = await client.complete(asked("hi"), timeout_seconds=5)
    assert (reply.text, reply.finish_reason, reply.model) == ("hello", "stop", "m-1-2031")
    assert server.paths == ["/v1/chat/completions"]
    assert server.bodies == [
        {"model": "m-1", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 50}
    ]
    assert server.headers[0]["Authorization"] == "Bearer sk-test-0123456789"


async def test_the_base_url_may_end_in_a_slash_and_the_key_in_a_line_break(server: Server) -> None:
    client = OpenAICompatClient(server.url + "/", "sk-test-0123456789\n", headers={"X-Title": "t"})
    await client.complete(asked(), timeout_seconds=5)
    await client.close()
    assert server.paths == ["/v1/chat/completions"]
    assert server.headers[0]["Authorization"] == "Bearer sk-test-0123456789"
    assert server.headers[0]["X-Title"] == "t"


@pytest.mark.parametrize("key", [None, "", "  "])
async def test_without_a_key_there_is_no_auth_header(server: Server, key: str | None) -> None:
    client = OpenAICompatClient(server.url, key)
    await client.complete(asked(), timeout_seconds=5)
    await client.close()
    assert "Authorization" not in server.headers[0]


async def test_sampling_is_merged_and_can_only_lower_the_cap(
    server: Server, client: OpenAICompatClient
) -> None:
    for given in ({"temperature": 0.2, "max_tokens": 9_999}, {"max_completion_tokens": 7}):
        await client.complete(asked(sampling={**given, "stream": True}), timeout_seconds=5)
    first, second = server.bodies
    assert (first["temperature"], first["max_tokens"], second["max_tokens"]) == (0.2, 50, 7)
    assert "stream" not in first
    assert "max_completion_tokens" not in second


async def test_one_request_is_one_reply(server: Server, client: OpenAICompatClient) -> None:
    with pytest.raises(ConfigError, match="n must be 1"):
        await client.complete(asked(sampling={"n": 3}), timeout_seconds=5)
    with pytest.raises(ConfigError, match="JSON"):
        await client.complete(asked(sampling={"seed": object()}), timeout_seconds=5)
    assert server.bodies == []


async def test_openai_itself_gets_the_newer_name_of_the_cap(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = OpenAICompatClient("https://api.openai.com/v1", "sk-test-0123456789")
    monkeypatch.setattr(client._endpoint, "base_url", server.url)
    await client.complete(asked(), timeout_seconds=5)
    await client.close()
    assert server.bodies[0]["max_completion_tokens"] == 50
    assert "max_tokens" not in server.bodies[0]


async def test_lone_surrogates_become_replacement_characters(
    server: Server, client: OpenAICompatClient
) -> None:
    request = asked("a\ud800b \ud83d\ude00 ü", sampling={"stop": ["\udfff"]})
    await client.complete(request, timeout_seconds=5)
    assert server.bodies[0]["messages"][0]["content"] == "a\ufffdb 😀 ü"
    assert server.bodies[0]["stop"] == ["\ufffd"]


async def test_usage_with_cached_and_reasoning_tokens(
    server: Server, client: OpenAICompatClient
) -> None:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 8},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    server.behave = replies(completion("x", usage=usage))
    reply = await client.complete(asked(), timeout_seconds=5)
    assert reply.usage == Usage(10, 4, cached_tokens=8, reasoning_tokens=3, requests=1)


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        (None, None),
        ({}, None),
        ({"prompt_tokens": 3}, None),
        ({"prompt_tokens": 3, "completion_tokens": None}, None),
        ({"prompt_tokens": 3, "completion_tokens": 0}, Usage(3, 0, requests=1)),
        (
            {"prompt_tokens": 3, "completion_tokens": 1, "prompt_tokens_details": None},
            Usage(3, 1, requests=1),
        ),
    ],
)
async def test_unstated_usage_is_none(
    server: Server, client: OpenAICompatClient, stated: Any, expected: Usage | None
) -> None:
    server.behave = replies(completion("x", usage=stated))
    assert (await client.complete(asked(), timeout_seconds=5)).usage == expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("tool_calls", "tool_calls"),
        ("content_filter", "refusal"),
        ("weather", "other"),
        (None, "other"),
    ],
)
async def test_finish_reasons(
    server: Server, client: OpenAICompatClient, said: str | None, expected: str
) -> None:
    server.behave = replies(completion("x", finish_reason=said))
    assert (await client.complete(asked(), timeout_seconds=5)).finish_reason == expected


@pytest.mark.parametrize(
    ("message", "text", "reasoning", "finish"),
    [
        ({"content": None}, "", "", "stop"),
        (
            {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            "ab",
            "",
            "stop",
        ),
        ({"content": "x", "reasoning_content": "why"}, "x", "why", "stop"),
        ({"content": "x", "reasoning": "because"}, "x", "because", "stop"),
        ({"content": None, "refusal": "I won't"}, "I won't", "", "refusal"),
    ],
)
async def test_message_content_in_every_shape_is_read(
    server: Server,
    client: OpenAICompatClient,
    message: dict[str, Any],
    text: str,
    reasoning: str,
    finish: str,
) -> None:
    server.behave = replies(completion(None, message=message))
    reply = await client.complete(asked(), timeout_seconds=5)
    assert (reply.text, reply.reasoning, reply.finish_reason) == (text, reasoning, finish)


async def test_tools_and_tool_calls_both_ways(server: Server, client: OpenAICompatClient) -> None:
    spec = ToolSpec("look", "Looks.", {"type": "object"})
    calls = [
        {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}},
        {"id": "b", "type": "function", "function": {"name": "look", "arguments": '{"at": '}},
        {"type": "function", "function": {"name": "look", "arguments": ""}},
    ]
    server.behave = replies(completion(None, message={"tool_calls": calls}))
    reply = await client.complete(asked(tools=(spec,)), timeout_seconds=5)
    assert reply.tool_calls == (
        ToolCall("a", "look", {"at": 1}),
        ToolCall("b", "look", {"_raw": '{"at": '}),
        ToolCall("call_2", "look", {}),
    )
    assert (reply.finish_reason, reply.opaque) == ("tool_calls", None)
    assert server.bodies[0]["tools"] == [
        {
            "type": "function",
            "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}},
        }
    ]
    history = (
        Message("user", "hi"),
        Message("assistant", "", tool_calls=reply.tool_calls[:1]),
        Message("tool", "seen", tool_call_id="a"),
    )
    await client.complete(asked(messages=history), timeout_seconds=5)
    _, assistant, tool = server.bodies[1]["messages"]
    assert assistant["content"] is None
    assert json.loads(assistant["tool_calls"][0]["function"]["arguments"]) == {"at": 1}
    assert tool == {"role": "tool", "content": "seen", "tool_call_id": "a"}


async def test_opaque_parts_travel_back_unchanged(
    server: Server, client: OpenAICompatClient
) -> None:
    call = {
        "id": "a",
        "type": "function",
        "function": {"name": "look", "arguments": "{}"},
        "extra_content": {"google": {"thought_signature": "abc"}},
    }
    details = [{"type": "reasoning.encrypted", "data": "xyz"}]
    message = {"tool_calls": [call], "reasoning_details": details}
    server.behave = replies(completion(None, message=message))
    reply = await client.complete(asked(), timeout_seconds=5)
    said = Message("assistant", "", tool_calls=reply.tool_calls, opaque=reply.opaque)
    await client.complete(asked(messages=(said,)), timeout_seconds=5)
    assert server.bodies[1]["messages"][0]["tool_calls"] == [call]
    assert server.bodies[1]["messages"][0]["reasoning_details"] == details
