"""The client of /responses on a real server: what it sends, and what it makes of replies.

The bodies and replies are those that OpenAI's own library (3.49) sends and accepts.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rlm.clients._quirks import QUIRKS
from rlm.clients.responses import ResponsesClient, ResponsesDialect
from rlm.errors import ConfigError, ModelError
from rlm.messages import Message, ToolCall, ToolSpec, Usage
from tests.clients.misbehaving import Server, asked, replies

KEY = "sk-test-0123456789"
THOUGHT = {
    "id": "rs_1",
    "type": "reasoning",
    "encrypted_content": "gAAAA",
    "summary": [{"type": "summary_text", "text": "I look."}],
}
SAID = {
    "id": "msg_1",
    "type": "message",
    "status": "completed",
    "role": "assistant",
    "content": [{"type": "output_text", "annotations": [], "logprobs": [], "text": "Let me see."}],
}
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "status": "completed",
    "arguments": '{"code":"1"}',
    "call_id": "call_1",
    "name": "execute_python",
}


def response(*output: dict[str, Any], **facts: Any) -> dict[str, Any]:
    """A well-formed response."""
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": "gpt-5-pro-2025-10-06",
        "output": list(output),
        "usage": {
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 0},
            "output_tokens": 40,
            "output_tokens_details": {"reasoning_tokens": 32},
            "total_tokens": 140,
        },
        **facts,
    }


def body(*, stream: bool = False, **facts: Any) -> dict[str, Any]:
    facts.setdefault("model", "gpt-5-pro")
    decoded: dict[str, Any] = json.loads(ResponsesDialect().body(asked(**facts), stream=stream))
    return decoded


@pytest.fixture
async def client(server: Server) -> AsyncIterator[ResponsesClient]:
    server.behave = replies(response(SAID))
    made = ResponsesClient(server.url, KEY)
    yield made
    await made.close()


# -- what is sent ---------------------------------------------------------------------------------


async def test_a_plain_request(server: Server, client: ResponsesClient) -> None:
    reply = await client.complete(asked("hi", model="gpt-5-pro"), timeout_seconds=5)
    assert (reply.text, reply.finish_reason) == ("Let me see.", "stop")
    assert reply.model == "gpt-5-pro-2025-10-06"
    assert reply.usage == Usage(100, 40, cached_tokens=64, reasoning_tokens=32, requests=1)
    assert server.paths == ["/v1/responses"]
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert server.bodies == [
        {
            "model": "gpt-5-pro",
            "input": [{"role": "user", "content": "hi"}],
            "max_output_tokens": 50,
            "store": False,
            "include": ["reasoning.encrypted_content"],
        }
    ]


def test_reasoning_is_requested_only_from_reasoning_models() -> None:
    assert "include" not in body(model="gpt-4.1")
    asked_for = body(sampling={"include": ["message.output_text.logprobs"]})["include"]
    assert asked_for == ["message.output_text.logprobs", "reasoning.encrypted_content"]


def test_messages_become_items() -> None:
    call = ToolCall("call_1", "look", {"at": "ü"})
    messages = (
        Message("system", "Be brief."),
        Message(
            "user",
            [
                {"type": "text", "text": "What?"},
                {"type": "image", "media_type": "image/png", "data": "iVBO"},
                {"type": "image", "url": "https://example.com/a.png"},
                {"type": "input_file", "file_id": "file_1"},
            ],
        ),
        Message("assistant", "I look.", tool_calls=(call,)),
        Message("tool", "A cat.", tool_call_id="call_1"),
        Message("assistant", "", tool_calls=(call,)),
        Message("tool", [{"type": "text", "text": "Again."}], tool_call_id="call_1"),
        Message("assistant", [{"type": "text", "text": "A cat."}]),
    )
    called = {
        "type": "function_call",
        "call_id": "call_1",
        "name": "look",
        "arguments": '{"at":"ü"}',
    }
    png = "data:image/png;base64,iVBO"
    assert body(messages=messages)["input"] == [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "What?"},
                {"type": "input_image", "image_url": png, "detail": "auto"},
                {
                    "type": "input_image",
                    "image_url": "https://example.com/a.png",
                    "detail": "auto",
                },
                {"type": "input_file", "file_id": "file_1"},
            ],
        },
        {"role": "assistant", "content": "I look."},
        called,
        {"type": "function_call_output", "call_id": "call_1", "output": "A cat."},
        called,
        {
            "type": "function_call_output",
            "call_id": "call_1",
            "output": [{"type": "input_text", "text": "Again."}],
        },
        {"role": "assistant", "content": [{"type": "output_text", "text": "A cat."}]},
    ]


def test_tools_are_flat_and_not_strict() -> None:
    spec = ToolSpec("look", "Looks.", {"type": "object"})
    assert body(tools=(spec,))["tools"] == [
        {
            "type": "function",
            "name": "look",
            "description": "Looks.",
            "parameters": {"type": "object"},
            "strict": False,
        }
    ]


def test_sampling_options_of_chat_completions_are_translated() -> None:
    schema = {"name": "answer", "schema": {"type": "object"}, "strict": True}
    sent = body(
        sampling={
            "max_tokens": 20,
            "max_completion_tokens": 30,
            "temperature": 1,
            "reasoning_effort": "high",
            "verbosity": "low",
            "response_format": {"type": "json_schema", "json_schema": schema},
            "tool_choice": {"type": "function", "function": {"name": "look"}},
            "parallel_tool_calls": False,
            "frequency_penalty": 0,
            "logprobs": False,
            "stop": None,
            "n": 1,
        }
    )
    assert sent["max_output_tokens"] == 20
    assert sent["reasoning"] == {"effort": "high"}
    assert sent["text"] == {
        "format": {"type": "json_schema", **schema},
        "verbosity": "low",
    }
    assert sent["tool_choice"] == {"type": "function", "name": "look"}
    assert sent["parallel_tool_calls"] is False
    gone = {"max_tokens", "max_completion_tokens", "temperature", "reasoning_effort", "verbosity"}
    gone |= {"response_format", "frequency_penalty", "logprobs", "stop", "n", "messages"}
    assert not sent.keys() & gone


def test_native_options_are_passed_on_and_win() -> None:
    native = {
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"format": {"type": "json_object"}},
        "truncation": "auto",
        "tool_choice": "required",
        "store": True,
    }
    sent = body(sampling={**native, "reasoning_effort": "high", "verbosity": "low"})
    assert sent["reasoning"] == {"effort": "low", "summary": "auto"}
    assert sent["text"] == {"format": {"type": "json_object"}, "verbosity": "low"}
    assert (sent["truncation"], sent["tool_choice"], sent["store"]) == ("auto", "required", True)


def test_options_set_by_rlm_cannot_be_overridden() -> None:
    given = {"stream": True, "stream_options": {}, "model": "x", "input": "x"}
    sent = body(sampling={**given, "max_output_tokens": 9_999})
    assert not sent.keys() & {"stream", "stream_options"}
    assert (sent["model"], sent["max_output_tokens"]) == ("gpt-5-pro", 50)
    assert sent["input"] == [{"role": "user", "content": "hi"}]
    assert body(sampling={"stream": False}, stream=True)["stream"] is True


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        ({"stop": ["x"]}, "'stop'"),
        ({"seed": 0}, "'seed'"),
        ({"presence_penalty": 0.5}, "'presence_penalty'"),
        ({"logit_bias": {"1": 1}}, "'logit_bias'"),
        ({"n": 2}, "n must be 1"),
        ({"max_tokens": "many"}, "positive integer"),
        ({"previous_response_id": "resp_1"}, "the budget can't see"),
        ({"conversation": "conv_1"}, "the budget can't see"),
        ({"background": True}, "waits for each"),
    ],
)
def test_options_the_api_lacks_are_errors(sampling: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        body(sampling=sampling)


def test_the_input_of_each_step_starts_with_that_of_the_previous() -> None:
    dialect = ResponsesDialect()
    messages = [Message("system", "Be brief."), Message("user", "The task.")]
    before = b""
    for number in range(4):
        request = asked(messages=tuple(messages), model="gpt-5-pro", grows=True)
        sent = dialect.body(request, stream=False)
        items = sent[sent.index(b'"input":[') :]
        items = items[: items.rindex(b"]")]
        assert items.startswith(before)
        before = items
        reply = dialect.reply(response(THOUGHT, {**CALL, "call_id": f"call_{number}"}))
        messages.append(
            Message("assistant", reply.text, tool_calls=reply.tool_calls, opaque=reply.opaque)
        )
        messages.append(Message("tool", f"{number}", tool_call_id=f"call_{number}"))


# -- what comes back ------------------------------------------------------------------------------


async def test_tool_calls_and_reasoning_are_sent_back_unchanged_and_in_place(
    server: Server, client: ResponsesClient
) -> None:
    output = (THOUGHT, SAID, CALL, {**CALL, "id": "fc_2", "call_id": "call_2"})
    server.behave = replies(response(*output))
    reply = await client.complete(asked(model="gpt-5-pro"), timeout_seconds=5)
    assert (reply.text, reply.reasoning) == ("Let me see.", "I look.")
    assert reply.finish_reason == "tool_calls"
    assert reply.tool_calls == (
        ToolCall("call_1", "execute_python", {"code": "1"}),
        ToolCall("call_2", "execute_python", {"code": "1"}),
    )
    messages = (
        Message("user", "hi"),
        Message("assistant", reply.text, tool_calls=reply.tool_calls, opaque=reply.opaque),
        Message("tool", "1", tool_call_id="call_1"),
        Message("tool", "1", tool_call_id="call_2"),
    )
    await client.complete(asked(messages=messages, model="gpt-5-pro"), timeout_seconds=5)
    assert server.bodies[1]["input"] == [
        {"role": "user", "content": "hi"},
        *output,
        {"type": "function_call_output", "call_id": "call_1", "output": "1"},
        {"type": "function_call_output", "call_id": "call_2", "output": "1"},
    ]


def test_reasoning_without_encrypted_content_is_not_sent_back() -> None:
    bare = {name: value for name, value in THOUGHT.items() if name != "encrypted_content"}
    dialect = ResponsesDialect()
    assert dialect.reply(response(bare, SAID)).opaque is None
    calling = dialect.reply(response(bare, CALL))
    assert calling.opaque == {"responses_output": [CALL]}
    assert calling.reasoning == "I look."


def test_the_phase_of_a_message_is_kept() -> None:
    remark = {**SAID, "phase": "commentary"}
    reply = ResponsesDialect().reply(response(remark, {**SAID, "phase": "final_answer"}))
    assert reply.text == "Let me see.\n\nLet me see."
    assert reply.opaque["responses_output"][0] == remark


def test_opaque_parts_of_other_dialects_are_not_sent() -> None:
    said = Message("assistant", "4", opaque={"reasoning_details": [{"type": "x"}]})
    assert body(messages=(said,))["input"] == [{"role": "assistant", "content": "4"}]


@pytest.mark.parametrize(
    ("payload", "text", "finish"),
    [
        (response(SAID), "Let me see.", "stop"),
        (response(), "", "stop"),
        (
            response(SAID, status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
            "Let me see.",
            "length",
        ),
        (
            response(status="incomplete", incomplete_details={"reason": "content_filter"}),
            "",
            "refusal",
        ),
        (response(SAID, status="incomplete", incomplete_details=None), "Let me see.", "other"),
        (
            response({**SAID, "content": [{"type": "refusal", "refusal": "I won't."}]}),
            "I won't.",
            "refusal",
        ),
    ],
)
def test_statuses_become_finish_reasons(payload: dict[str, Any], text: str, finish: str) -> None:
    reply = ResponsesDialect().reply(payload)
    assert (reply.text, reply.finish_reason) == (text, finish)


def test_reasoning_text_is_read_in_full() -> None:
    shown = {
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "Hm"}],
    }
    assert ResponsesDialect().reply(response(shown, SAID)).reasoning == "Hm"


def test_a_cost_stated_by_a_gateway_is_read() -> None:
    usage = {"input_tokens": 1, "output_tokens": 1, "cost": 0.25}
    reply = ResponsesDialect(QUIRKS["openrouter"]).reply(response(SAID, usage=usage))
    assert reply.usage is not None
    assert reply.usage.cost_usd == 0.25


@pytest.mark.parametrize(
    ("payload", "status", "retryable", "words"),
    [
        (
            response(status="failed", error={"code": "server_error", "message": "oh"}),
            500,
            True,
            "oh",
        ),
        (
            response(status="failed", error={"code": "rate_limit_exceeded", "message": "slow"}),
            429,
            True,
            "slow",
        ),
        (
            response(status="failed", error={"code": "invalid_prompt", "message": "bad"}),
            400,
            False,
            "bad",
        ),
        (response(status="failed"), None, True, "failed"),
        ({"error": {"message": "odd", "code": "odd"}}, None, True, "odd"),
        (response(status="queued"), None, True, "queued"),
        (response(status="cancelled"), None, True, "cancelled"),
        ({"id": "x"}, None, True, "no output"),
    ],
)
async def test_unusable_replies_are_failures(
    server: Server,
    client: ResponsesClient,
    payload: dict[str, Any],
    status: int | None,
    retryable: bool,
    words: str,
) -> None:
    server.behave = replies(payload)
    with pytest.raises(ModelError, match=words) as caught:
        await client.complete(asked(), timeout_seconds=5)
    error = caught.value
    assert (error.status, error.retryable, error.ambiguous) == (status, retryable, True)
