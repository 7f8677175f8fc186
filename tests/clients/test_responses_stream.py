"""Streams of /responses: the text as it comes, then the reply, whatever the last event holds."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from rlm.clients.responses import ResponsesClient
from rlm.errors import ModelError
from rlm.messages import Reply, ToolCall
from tests.clients.misbehaving import Server, asked, event, replies, streams
from tests.clients.test_responses import CALL, SAID, THOUGHT, response


@pytest.fixture
async def client(server: Server) -> AsyncIterator[ResponsesClient]:
    made = ResponsesClient(server.url)
    yield made
    await made.close()


async def gather(client: ResponsesClient) -> tuple[list[str], Reply]:
    parts = [part async for part in client.stream(asked(model="o3-pro"), timeout_seconds=5)]
    reply = parts.pop()
    assert isinstance(reply, Reply)
    texts = [part for part in parts if isinstance(part, str)]
    assert len(texts) == len(parts)
    return texts, reply


def text(delta: str, index: int = 1) -> dict[str, Any]:
    return {
        "type": "response.output_text.delta",
        "item_id": "msg_1",
        "output_index": index,
        "content_index": 0,
        "delta": delta,
        "logprobs": [],
    }


def added(index: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(index: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def ended(*output: dict[str, Any], kind: str = "completed", **facts: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "response": response(*output, status=kind, **facts)}


CREATED = {"type": "response.created", "response": response(status="in_progress", usage=None)}
EVENTS: list[dict[str, Any]] = [
    CREATED,
    added(0, {"id": "rs_1", "type": "reasoning", "summary": []}),
    {
        "type": "response.reasoning_summary_text.delta",
        "output_index": 0,
        "summary_index": 0,
        "delta": "I look.",
    },
    done(0, THOUGHT),
    added(1, {**SAID, "status": "in_progress", "content": []}),
    text("Let me"),
    {"type": "response.something.new", "delta": "ignored", "output_index": 1},
    text(" see."),
    {"type": "response.output_text.done", "output_index": 1, "text": "Let me see."},
    done(1, SAID),
    added(2, {**CALL, "arguments": ""}),
    {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": '{"code"'},
    {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": ':"1"}'},
    {
        "type": "response.function_call_arguments.done",
        "output_index": 2,
        "arguments": '{"code":"1"}',
    },
    done(2, CALL),
]


async def test_a_stream(server: Server, client: ResponsesClient) -> None:
    server.behave = streams([event(each) for each in [*EVENTS, ended(THOUGHT, SAID, CALL)]])
    texts, reply = await gather(client)
    assert texts == ["Let me", " see."]
    assert (reply.text, reply.reasoning) == ("Let me see.", "I look.")
    assert reply.tool_calls == (ToolCall("call_1", "execute_python", {"code": "1"}),)
    assert reply.opaque == {"responses_output": [THOUGHT, SAID, CALL]}
    assert reply.finish_reason == "tool_calls"
    assert reply.usage is not None
    assert reply.usage.input_tokens == 100
    assert server.bodies[0]["stream"] is True


async def test_an_empty_final_event_changes_nothing(
    server: Server, client: ResponsesClient
) -> None:
    server.behave = streams([event(each) for each in [*EVENTS, ended(THOUGHT, SAID, CALL)]])
    _, whole = await gather(client)
    server.behave = streams([event(each) for each in [*EVENTS, ended()]])
    _, gathered = await gather(client)
    assert gathered == whole


async def test_a_stream_without_completed_items_is_assembled_from_its_pieces(
    server: Server, client: ResponsesClient
) -> None:
    pieces = [each for each in EVENTS if each["type"] != "response.output_item.done"]
    server.behave = streams([*map(event, pieces), b"data: [DONE]\n\n"])
    texts, reply = await gather(client)
    assert texts == ["Let me", " see."]
    assert (reply.text, reply.reasoning) == ("Let me see.", "I look.")
    assert reply.tool_calls == (ToolCall("call_1", "execute_python", {"code": "1"}),)
    assert (reply.model, reply.usage) == ("gpt-5-pro-2025-10-06", None)
    assert reply.opaque["responses_output"][0]["type"] == "message"


async def test_two_messages_are_separated(server: Server, client: ResponsesClient) -> None:
    both = ended({**SAID, "phase": "commentary"}, SAID)
    server.behave = streams(
        [event(each) for each in [text("Let me see.", 0), text("Let me see."), both]]
    )
    texts, reply = await gather(client)
    assert "".join(texts) == reply.text == "Let me see.\n\nLet me see."


async def test_a_stream_cut_at_its_cap_has_the_finish_reason_length(
    server: Server, client: ResponsesClient
) -> None:
    last = ended(SAID, kind="incomplete", incomplete_details={"reason": "max_output_tokens"})
    server.behave = streams([event(text("Let me see.")), event(last)])
    _, reply = await gather(client)
    assert (reply.text, reply.finish_reason) == ("Let me see.", "length")


async def test_a_refusal_in_a_stream(server: Server, client: ResponsesClient) -> None:
    pieces = [
        {"type": "response.refusal.delta", "output_index": 0, "delta": "I "},
        {"type": "response.refusal.delta", "output_index": 0, "delta": "won't."},
    ]
    server.behave = streams([event(each) for each in [*pieces, ended()]])
    texts, reply = await gather(client)
    assert (texts, reply.text, reply.finish_reason) == ([], "I won't.", "refusal")


@pytest.mark.parametrize(
    ("last", "status", "retryable", "words"),
    [
        (
            ended(kind="failed", error={"code": "server_error", "message": "oh no"}),
            500,
            True,
            "oh no",
        ),
        (
            ended(kind="failed", error={"code": "bio_policy", "message": "no"}),
            400,
            False,
            "no",
        ),
        ({"type": "error", "code": "rate_limit_exceeded", "message": "slow"}, 429, True, "slow"),
        ({"type": "error", "code": None, "message": "oh no"}, None, True, "oh no"),
        ({"type": "error", "error": {"code": "429", "message": "slow"}}, 429, True, "slow"),
    ],
)
async def test_errors_in_a_stream_are_classified(
    server: Server,
    client: ResponsesClient,
    last: dict[str, Any],
    status: int | None,
    retryable: bool,
    words: str,
) -> None:
    server.behave = streams([event(CREATED), event(text("Let")), event(last)])
    with pytest.raises(ModelError, match=words) as caught:
        await gather(client)
    error = caught.value
    assert (error.status, error.retryable, error.ambiguous) == (status, retryable, True)


async def test_a_stream_without_a_final_event_was_cut_off(
    server: Server, client: ResponsesClient
) -> None:
    server.behave = streams([event(each) for each in EVENTS])
    with pytest.raises(ModelError, match="cut off") as caught:
        await gather(client)
    assert (caught.value.retryable, caught.value.ambiguous) == (True, True)


async def test_a_server_that_does_not_stream_is_accepted(
    server: Server, client: ResponsesClient
) -> None:
    server.behave = replies(response(SAID))
    texts, reply = await gather(client)
    assert (texts, reply.text) == (["Let me see."], "Let me see.")
