"""Anthropic's event streams: gathered like the whole message, however they come or break."""

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.clients.anthropic import AnthropicClient, AnthropicDialect, StreamedMessage
from rlm.errors import ConfigError, ModelError
from rlm.messages import Message, Reply, ToolCall, Usage
from tests.clients.hostile import ANYTHING, mutated, withstands
from tests.clients.misbehaving import Server, asked, event, replies, streams
from tests.clients.test_anthropic import HIDDEN, THOUGHT, back, message, said

USAGE = {"input_tokens": 3, "cache_read_input_tokens": 11, "cache_creation_input_tokens": 7}


def started(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **facts: Any) -> dict[str, Any]:
    return {
        "type": "content_block_delta",
        "index": index,
        "delta": {"type": f"{kind}_delta", **facts},
    }


def stopped(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


EVENTS: list[dict[str, Any]] = [
    {
        "type": "message_start",
        "message": message(stop_reason=None, usage={**USAGE, "output_tokens": 1}),
    },
    started(0, type="thinking", thinking="", signature=""),
    {"type": "ping"},
    delta(0, "thinking", thinking="h"),
    delta(0, "thinking", thinking="m"),
    delta(0, "signature", signature="sig"),
    stopped(0),
    started(1, **HIDDEN),
    stopped(1),
    started(2, type="text", text=""),
    delta(2, "text", text="Look"),
    delta(2, "text", text="ing."),
    stopped(2),
    started(3, type="tool_use", id="toolu_1", name="look", input={}),
    delta(3, "input_json", partial_json=""),
    delta(3, "input_json", partial_json='{"at": "Ro'),
    delta(3, "input_json", partial_json='me"}'),
    stopped(3),
    started(4, type="tool_use", id="toolu_2", name="look", input={}),
    stopped(4),
    {"type": "brand_new_event", "index": {}},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 42, "output_tokens_details": {"thinking_tokens": 9}},
    },
    {"type": "message_stop"},
]
"""The official SDK's own accumulator makes of these the content and the usage below."""

CONTENT = [
    THOUGHT,
    HIDDEN,
    said("Looking."),
    {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "Rome"}},
    {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}},
]
WHOLE = message(
    *CONTENT,
    stop_reason="tool_use",
    usage={**USAGE, "output_tokens": 42, "output_tokens_details": {"thinking_tokens": 9}},
)


def wire(events: list[dict[str, Any]]) -> bytes:
    return b"".join(f"event: {each['type']}\n".encode() + event(each) for each in events)


def gathered(events: list[dict[str, Any]]) -> Reply:
    streamed = StreamedMessage()
    for each in events:
        streamed.add(each)
    return streamed.reply()


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AnthropicClient]:
    made = AnthropicClient(server.url, "sk-ant-0123456789")
    yield made
    await made.close()


async def gather(client: AnthropicClient) -> tuple[list[str], list[Reply]]:
    parts = [part async for part in client.stream(asked(), timeout_seconds=5)]
    texts = [part for part in parts if isinstance(part, str)]
    return texts, [part for part in parts if isinstance(part, Reply)]


@pytest.mark.parametrize("size", [1, 7, 100_000])
async def test_a_stream_gives_the_same_reply_as_a_plain_request(
    server: Server, client: AnthropicClient, size: int
) -> None:
    data = wire(EVENTS)
    server.behave = streams([data[i : i + size] for i in range(0, len(data), size)])
    texts, (reply,) = await gather(client)
    assert texts == ["Look", "ing."]
    assert reply == AnthropicDialect().reply(WHOLE)
    assert reply.usage == Usage(
        21, 42, cached_tokens=11, reasoning_tokens=9, requests=1, cache_write_tokens=7
    )
    assert reply.tool_calls[0] == ToolCall("toolu_1", "look", {"at": "Rome"})
    assert server.bodies[0]["stream"] is True


def test_streamed_thinking_is_sent_back_like_plain_thinking() -> None:
    request = asked(messages=(Message("user", "x"), back(gathered(EVENTS))))
    body = json.loads(AnthropicDialect().body(request, stream=False))
    assert body["messages"][1]["content"] == CONTENT


@pytest.mark.parametrize(
    ("kind", "status"), [("overloaded_error", 529), ("rate_limit_error", 429), ("x", None)]
)
async def test_an_error_in_the_middle_of_a_stream(
    server: Server, client: AnthropicClient, kind: str, status: int | None
) -> None:
    error = {"type": "error", "error": {"type": kind, "message": "Overloaded"}}
    server.behave = streams([wire(EVENTS[:11]), b"event: error\n", event(error)])
    with pytest.raises(ModelError, match="Overloaded") as caught:
        await gather(client)
    assert (caught.value.status, caught.value.retryable) == (status, True)
    assert caught.value.ambiguous


@pytest.mark.parametrize("end", [1, 5, 11, 17, 21])
async def test_a_stream_without_a_stop_reason_was_cut_off(
    server: Server, client: AnthropicClient, end: int
) -> None:
    server.behave = streams([wire(EVENTS[:end])])
    with pytest.raises(ModelError, match="cut off"):
        await gather(client)


@pytest.mark.parametrize("last", [EVENTS[-2:-1], EVENTS[-1:]])
async def test_either_of_the_last_events_completes_a_stream(
    server: Server, client: AnthropicClient, last: list[dict[str, Any]]
) -> None:
    server.behave = streams([wire(EVENTS[:13] + last)])
    _, (reply,) = await gather(client)
    assert reply.text == "Looking."


async def test_a_server_that_does_not_stream_is_accepted(
    server: Server, client: AnthropicClient
) -> None:
    server.behave = replies(WHOLE)
    texts, (reply,) = await gather(client)
    assert texts == ["Looking."]
    assert reply == AnthropicDialect().reply(WHOLE)


async def test_a_stream_without_a_message_is_malformed(
    server: Server, client: AnthropicClient
) -> None:
    server.behave = streams([event({"type": "message_stop"})])
    with pytest.raises(ModelError, match="no message"):
        await gather(client)


def test_arguments_that_are_not_json_are_kept_as_text() -> None:
    events = [started(0, type="tool_use", id="a", name="look", input={})]
    events += [delta(0, "input_json", partial_json=piece) for piece in ('{"at": ', "Rome")]
    reply = gathered([*EVENTS[:1], *events, *EVENTS[-2:]])
    assert reply.tool_calls == (ToolCall("a", "look", {"_raw": '{"at": Rome'}),)


def test_text_in_or_without_a_start_event_is_not_lost() -> None:
    streamed = StreamedMessage()
    given = [
        started(0, type="text", text="a"),
        delta(0, "text", text="b"),
        delta(5, "text", text="c"),
    ]
    assert [streamed.add(each) for each in given] == ["a", "b", "c"]
    assert not streamed.complete
    streamed.finish()
    assert streamed.complete
    assert streamed.reply().text == "abc"


def test_citations_are_sent_back_with_their_text() -> None:
    cited = {"type": "char_location", "cited_text": "x"}
    events = [
        started(0, type="text", text="", citations=[]),
        delta(0, "text", text="x"),
        delta(0, "citations", citation=cited),
    ]
    reply = gathered([*EVENTS[:1], *events, *EVENTS[-1:]])
    assert reply.opaque == {"anthropic_content": [{**said("x"), "citations": [cited]}]}


def test_a_streamed_refusal_is_explained() -> None:
    why = {"stop_reason": "refusal", "stop_details": {"type": "refusal", "category": "cyber"}}
    reply = gathered([EVENTS[0], {"type": "message_delta", "delta": why}])
    assert (reply.finish_reason, reply.text) == (
        "refusal",
        "The model refused to answer (cyber).",
    )


@given(mutated([WHOLE]))
def test_a_broken_response_is_read_or_refused(payload: dict[str, Any]) -> None:
    withstands(AnthropicDialect(), [payload])


@given(st.lists(mutated(EVENTS) | st.dictionaries(st.text(), ANYTHING), max_size=8))
def test_no_response_crashes_the_parser(payloads: list[dict[str, Any]]) -> None:
    withstands(AnthropicDialect(), payloads)


@given(st.lists(mutated(EVENTS), max_size=4), st.integers(0, len(EVENTS)))
def test_a_stream_with_broken_events_is_read_and_can_be_sent_back(
    broken: list[dict[str, Any]], at: int
) -> None:
    events = [*EVENTS[:at], *broken, *EVENTS[at:]]
    reply = gathered(events)
    results = [Message("tool", "r", tool_call_id=call.id) for call in reply.tool_calls]
    request = asked(messages=(Message("user", "x"), back(reply), *results), grows=True)
    with suppress(ConfigError):  # NaN can be read, but not written
        AnthropicDialect().body(request, stream=True)
