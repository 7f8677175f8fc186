"""Streaming: the text as it comes, then the reply; and every way in which a stream breaks."""

from typing import Any

import pytest

from rlm.clients.compatible import OpenAICompatClient
from rlm.errors import ModelError
from rlm.messages import Reply, ToolCall, Usage
from tests.clients.misbehaving import (
    Server,
    asked,
    completion,
    delta,
    event,
    replies,
    sends,
    streams,
)


async def gather(client: OpenAICompatClient) -> tuple[list[str], list[Reply]]:
    parts = [part async for part in client.stream(asked(), timeout_seconds=5)]
    texts = [part for part in parts if isinstance(part, str)]
    return texts, [part for part in parts if isinstance(part, Reply)]


async def test_a_stream(server: Server, client: OpenAICompatClient) -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}
    chunks = [delta(reasoning_content="hm"), delta("Hel"), delta("lo"), delta(finish="stop"), usage]
    server.behave = streams([*map(event, chunks), b"data: [DONE]\n\n"])
    texts, finals = await gather(client)
    assert texts == ["Hel", "lo"]
    assert finals == [
        Reply(text="Hello", reasoning="hm", usage=Usage(1, 2, requests=1), model="m-1-2031")
    ]
    assert server.bodies[0]["stream"] is True
    assert server.bodies[0]["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("size", [1, 2, 3, 7])
async def test_a_stream_split_anywhere(
    server: Server, client: OpenAICompatClient, size: int
) -> None:
    data = (
        b": ping\r\nevent: message\r\n"
        + event(delta("naïve 😀 "))
        + event(delta("日本", finish="length")).replace(b"data: ", b"data:").replace(b"\n", b"\r\n")
        + b"data: [DONE]"
    )
    server.behave = streams([data[i : i + size] for i in range(0, len(data), size)])
    texts, (reply,) = await gather(client)
    assert texts == ["naïve 😀 ", "日本"]
    assert (reply.text, reply.finish_reason) == ("naïve 😀 日本", "length")


async def test_tool_calls_in_a_stream(server: Server, client: OpenAICompatClient) -> None:
    def part(index: int, **function: str) -> dict[str, Any]:
        return delta(tool_calls=[{"index": index, "function": function}])

    first = delta(tool_calls=[{"index": 0, "id": "a", "function": {"name": "look"}}])
    chunks = [first, part(0, arguments='{"at"'), part(1, name="go"), part(0, arguments=": 1}")]
    chunks.append(delta(finish="tool_calls"))
    server.behave = streams([event(chunk) for chunk in chunks])
    texts, (reply,) = await gather(client)
    assert texts == []
    assert reply.tool_calls == (ToolCall("a", "look", {"at": 1}), ToolCall("call_1", "go", {}))
    assert reply.finish_reason == "tool_calls"


@pytest.mark.parametrize("identity", [{}, {"id": None}, {"id": {}}])
async def test_tool_calls_without_an_index_or_id_are_complete(
    server: Server, client: OpenAICompatClient, identity: dict[str, Any]
) -> None:
    calls = [{**identity, "function": {"name": name, "arguments": {"at": 1}}} for name in "ab"]
    server.behave = streams([event(delta(tool_calls=calls, finish="stop"))])
    _, (reply,) = await gather(client)
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [
        ("a", {"at": 1}),
        ("b", {"at": 1}),
    ]
    assert [call.id for call in reply.tool_calls] == ["call_0", "call_1"]


@pytest.mark.parametrize("cut", [True, False])
async def test_a_truncated_stream_is_ambiguous(
    server: Server, client: OpenAICompatClient, cut: bool
) -> None:
    server.behave = streams([event(delta("Hel"))], cut=cut)
    with pytest.raises(ModelError) as caught:
        await gather(client)
    assert (caught.value.retryable, caught.value.ambiguous) == (True, True)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (event({"error": {"message": "overloaded", "code": "busy"}}), "overloaded"),
        (event({"error": {"message": "overloaded", "code": 503}}), "HTTP 503"),
        (b"data: {broken\n\n", "malformed"),
    ],
)
async def test_an_error_in_a_stream_is_ambiguous(
    server: Server, client: OpenAICompatClient, data: bytes, words: str
) -> None:
    server.behave = streams([event(delta("Hel")), data])
    with pytest.raises(ModelError, match=words) as caught:
        await gather(client)
    assert (caught.value.retryable, caught.value.ambiguous) == (True, True)


async def test_a_stream_without_any_choice_is_malformed(
    server: Server, client: OpenAICompatClient
) -> None:
    server.behave = streams([event({"choices": []}), b"data: [DONE]\n\n"])
    with pytest.raises(ModelError, match="no choices") as caught:
        await gather(client)
    assert (caught.value.retryable, caught.value.ambiguous) == (True, True)


async def test_a_server_that_does_not_stream_is_accepted(
    server: Server, client: OpenAICompatClient
) -> None:
    texts, (reply,) = await gather(client)
    assert (texts, reply.text) == (["hello"], "hello")


async def test_a_rejected_stream_has_its_status(server: Server, client: OpenAICompatClient) -> None:
    server.behave = sends("no", status=400)
    with pytest.raises(ModelError) as caught:
        await gather(client)
    assert (caught.value.status, caught.value.retryable) == (400, False)


async def test_leaving_a_stream_early_closes_its_connection(
    server: Server, client: OpenAICompatClient
) -> None:
    server.behave = streams([event(delta("x"))] * 10_000)
    stream = client.stream(asked(), timeout_seconds=5)
    assert await anext(stream) == "x"
    await stream.aclose()
    server.behave = replies(completion("next"))
    assert (await client.complete(asked(), timeout_seconds=5)).text == "next"
    assert len(server.connections) == 2
