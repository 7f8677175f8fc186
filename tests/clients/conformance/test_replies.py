"""What a model says arrives exactly, however oddly the server sends it."""

import json
from typing import Any

import pytest

from rlm.clients._dialect import HttpClient
from rlm.messages import Message, ToolCall, Usage
from tests.clients.conformance.bench import DIALECTS, MODEL, ask, asked, failure, serving, until

TEXT = 'Grüße, "Köln" 🎉!\n\n  two  spaces, a tab\t, 日本語 and a long word: ' + "x" * 300
USAGE = {"input_tokens": 100, "output_tokens": 50, "cached_tokens": 30, "reasoning_tokens": 10}
TOOLS: list[dict[str, Any]] = [
    {"name": "look_up", "arguments": {"city": "Köln", "deep": {"list": [1, None, "ü"]}}},
    {"name": "stop", "arguments": {}},
]
MAY_BE_EMPTY = ("anthropic", "responses", "converse")
"""Where a reply is a list of blocks, an empty list is a reply too."""


@pytest.mark.parametrize(
    "behaviour",
    [
        *("drip", "gzip", "crlf", "wrong_type", "unstreamed", "no_done", "close"),
        ["drip", "gzip"],
        ["drip", "crlf", "no_done", "wrong_type"],
        [],
    ],
    ids=str,
)
async def test_the_reply_is_exact(dialect: str, how: str, behaviour: object) -> None:
    answer = {"reply": TEXT, "reasoning": "Hm, Köln…", "behaviour": behaviour}
    async with serving(dialect, {**answer, "usage": USAGE}) as (_, client):
        pieces, reply = await ask(client, how)
    assert reply.text == TEXT
    assert "".join(pieces) == (TEXT if how == "stream" else "")
    assert (reply.reasoning, reply.finish_reason) == ("Hm, Köln…", "stop")
    stated = "" if dialect == "converse" else MODEL  # Bedrock does not say which model answered
    assert (reply.model, reply.tool_calls) == (stated, ())


async def test_a_stream_comes_in_pieces(dialect: str) -> None:
    async with serving(dialect, {"reply": "one two three", "pause_seconds": 0.001}) as (_, client):
        pieces, _ = await ask(client, "stream")
    assert pieces == ["one ", "two ", "three"]


async def test_a_slow_first_byte_is_awaited(dialect: str, how: str) -> None:
    async with serving(dialect, {"reply": "at last", "delay_seconds": 0.05}) as (_, client):
        assert (await ask(client, how)).reply.text == "at last"


async def test_tool_calls(dialect: str, how: str) -> None:
    async with serving(dialect, {"reply": "I look.", "tool_calls": TOOLS}) as (_, client):
        _, reply = await ask(client, how)
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [
        (tool["name"], tool["arguments"]) for tool in TOOLS
    ]
    assert all(call.id for call in reply.tool_calls)
    assert len({call.id for call in reply.tool_calls}) == 2
    assert (reply.text, reply.finish_reason) == ("I look.", "tool_calls")


async def test_a_reply_with_only_tool_calls_has_no_text(dialect: str, how: str) -> None:
    async with serving(dialect, {"tool_calls": TOOLS}) as (_, client):
        _, reply = await ask(client, how)
    assert (reply.text, len(reply.tool_calls)) == ("", 2)


async def test_usage_includes_cached_and_reasoning_tokens(dialect: str, how: str) -> None:
    async with serving(dialect, {"reply": "hello", "usage": USAGE}) as (_, client):
        usage = (await ask(client, how)).reply.usage
    assert usage is not None
    silent = dialect in {"anthropic", "converse"}  # they do not say how much was thought
    thought = {} if silent else {"reasoning_tokens": 10}
    assert usage == Usage(
        input_tokens=100, output_tokens=50, cached_tokens=30, requests=1, **thought
    )


async def test_missing_usage_is_none_and_not_zero(dialect: str, how: str) -> None:
    async with serving(dialect, {"reply": "hello", "behaviour": "no_usage"}) as (_, client):
        _, reply = await ask(client, how)
    assert (reply.text, reply.usage) == ("hello", None)


async def test_a_refusal_has_the_finish_reason_refusal(dialect: str, how: str) -> None:
    async with serving(dialect, {"refusal": "I won't"}, {"finish_reason": "refusal"}) as (
        _,
        client,
    ):
        said = (await ask(client, how)).reply
        silent = (await ask(client, how)).reply
    assert (said.finish_reason, said.text) == ("refusal", "I won't")
    assert silent.finish_reason == "refusal", "with or without a text that says so"


async def test_a_reply_cut_at_its_cap_has_the_finish_reason_length(dialect: str, how: str) -> None:
    async with serving(dialect, {"reply": "half a", "finish_reason": "length"}) as (_, client):
        _, reply = await ask(client, how)
    assert (reply.finish_reason, reply.text) == ("length", "half a")


async def test_the_output_cap_is_sent_to_the_server(dialect: str, how: str) -> None:
    async with serving(dialect, "x" * 4_000) as (server, client):
        _, reply = await ask(client, how, asked(max_output_tokens=64))
        assert [each.asked and each.asked.max_output_tokens for each in server.requests] == [64]
    assert reply.finish_reason == "length"
    assert reply.usage is not None
    assert reply.usage.output_tokens == 64


async def test_a_stream_gives_the_same_reply_as_a_plain_request(dialect: str) -> None:
    answer = {"reply": TEXT, "reasoning": "Hm", "tool_calls": TOOLS, "usage": USAGE}
    found = []
    for how in ("complete", "stream"):
        async with serving(dialect, answer) as (_, client):
            found.append((await ask(client, how)).reply)
    plain, streamed = found
    assert streamed == plain


@pytest.mark.parametrize("dialect", [each for each in DIALECTS if each != "chat"])
async def test_signed_parts_are_sent_back_unchanged(dialect: str, how: str) -> None:
    """Reasoning with tool calls: the next request must carry the reasoning's signature."""
    answer = {"reply": "I look.", "reasoning": "Hm", "tool_calls": TOOLS[:1]}
    async with serving(dialect, answer, "done") as (server, client):
        first = asked("look")
        _, reply = await ask(client, how, first)
        (call,) = reply.tool_calls
        turn = Message("assistant", reply.text, reply.tool_calls, opaque=reply.opaque)
        result = Message("tool", "sunny", tool_call_id=call.id)
        await ask(client, how, asked(messages=(*first.messages, turn, result)))
        body = server.requests[-1].asked
    assert body is not None
    sent = json.dumps(body.body)
    assert "ZmFrZS1zaWduYXR1cmUtb2YtdGhvdWdodHM=" in sent
    assert "sunny" in sent


@pytest.mark.parametrize("pause_seconds", [0, 0.005])
async def test_requests_share_a_connection(dialect: str, how: str, pause_seconds: float) -> None:
    answers = [{"reply": "hello there", "pause_seconds": pause_seconds}] * 4
    async with serving(dialect, *answers) as (server, client):
        for _ in range(4):
            await ask(client, how)
        assert {each.connection for each in server.requests} == {1}


async def test_a_pooled_connection_that_was_closed_is_replaced(dialect: str, how: str) -> None:
    async with serving(dialect, {"reply": "one", "behaviour": "close"}, "two") as (server, client):
        await ask(client, how)
        await until(lambda: _closed(client), "the client saw its connection closed")
        assert (await ask(client, how)).reply.text == "two"
        assert [each.connection for each in server.requests] == [1, 2]


def _closed(client: HttpClient) -> bool:
    """Whether no connection in the pool is still alive."""
    (session,) = client._endpoint._pool._sessions.values()
    connector: Any = session.connector
    waiting = [each for group in connector._conns.values() for each in group]
    return not any(protocol.is_connected() for protocol, *_ in waiting)


async def test_a_tool_call_keeps_the_servers_id(dialect: str, how: str) -> None:
    tools = [{"name": "f", "arguments": {"a": 1}, "id": "id-from-the-script"}]
    async with serving(dialect, {"tool_calls": tools}) as (_, client):
        _, reply = await ask(client, how)
    assert reply.tool_calls == (ToolCall("id-from-the-script", "f", {"a": 1}),)


@pytest.mark.parametrize("dialect", [each for each in DIALECTS if each not in MAY_BE_EMPTY])
async def test_a_reply_without_an_answer_is_an_error(dialect: str, how: str) -> None:
    async with serving(dialect, {"behaviour": "no_choices"}) as (_, client):
        error = await failure(client, how)
    assert (error.retryable, error.ambiguous) == (True, True)


@pytest.mark.parametrize("dialect", MAY_BE_EMPTY)
async def test_a_reply_without_an_answer_is_empty(dialect: str, how: str) -> None:
    async with serving(dialect, {"behaviour": "no_choices"}) as (_, client):
        _, reply = await ask(client, how)
    assert (reply.text, reply.tool_calls, reply.finish_reason) == ("", (), "stop")
