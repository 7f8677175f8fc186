"""Anthropic's messages on a real server: what is sent, and what becomes of replies."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from rlm.clients.anthropic import AnthropicClient, AnthropicDialect
from rlm.errors import ConfigError, ModelError
from rlm.messages import Message, Reply, ToolCall, ToolSpec, Usage
from tests.clients.misbehaving import Server, asked, replies

KEY = "sk-ant-0123456789"
LOOK = ToolSpec("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}})
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "sig"}
HIDDEN = {"type": "redacted_thinking", "data": "Zm9v"}
CALLS = [
    {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "Rome"}},
    {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}},
]


def message(*content: dict[str, Any], **facts: Any) -> dict[str, Any]:
    """A response as the API sends it."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5-20250929",
        "content": list(content),
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 5},
        **facts,
    }


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def body_of(*messages: Message, **facts: Any) -> dict[str, Any]:
    facts["messages"] = messages or (Message("user", "hi"),)
    request = asked(**facts)
    body: dict[str, Any] = json.loads(AnthropicDialect().body(request, stream=False))
    return body


def turns_of(*messages: Message, **facts: Any) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = body_of(*messages, **facts)["messages"]
    return turns


def back(reply: Reply) -> Message:
    """A reply as the history keeps it."""
    return Message("assistant", reply.text, tool_calls=reply.tool_calls, opaque=reply.opaque)


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AnthropicClient]:
    server.behave = replies(message(said("hello")))
    made = AnthropicClient(server.url.removesuffix("/v1"), KEY)
    yield made
    await made.close()


# -- the wire ----------------------------------------------------------------------------


async def test_a_plain_request(server: Server, client: AnthropicClient) -> None:
    reply = await client.complete(asked("hi"), timeout_seconds=5)
    assert reply == Reply(
        text="hello", usage=Usage(3, 5, requests=1), model="claude-sonnet-4-5-20250929"
    )
    assert server.paths == ["/v1/messages"]
    assert server.bodies == [
        {
            "model": "m-1",
            "max_tokens": 50,
            "messages": [{"role": "user", "content": [said("hi")]}],
        }
    ]
    assert server.headers[0]["x-api-key"] == KEY
    assert server.headers[0]["anthropic-version"] == "2023-06-01"
    assert "Authorization" not in server.headers[0]


@pytest.mark.parametrize("end", ["", "/"])
async def test_a_base_url_may_end_in_v1_and_the_version_may_be_chosen(
    server: Server, client: AnthropicClient, end: str
) -> None:
    seen: list[list[str]] = []

    async def behave(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers.getall("anthropic-version"))
        return web.json_response(message(said("x")))

    server.behave = behave
    made = AnthropicClient(server.url + end, KEY, headers={"Anthropic-Version": "2026-10-21"})
    await made.complete(asked(), timeout_seconds=5)
    await made.close()
    assert server.paths == ["/v1/messages"]
    assert seen == [["2026-10-21"]]


async def test_a_refusal_names_the_key_variable_and_never_the_key(
    server: Server, client: AnthropicClient
) -> None:
    error = {"type": "authentication_error", "message": f"invalid x-api-key {KEY}"}
    server.behave = replies({"type": "error", "error": error}, status=401)
    with pytest.raises(ModelError, match="ANTHROPIC_API_KEY") as caught:
        await client.complete(asked(), timeout_seconds=5)
    assert (caught.value.status, caught.value.retryable) == (401, False)
    assert KEY not in str(caught.value) + repr(client)
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    ("kind", "status", "retryable"),
    [
        ("invalid_request_error", 400, False),
        ("authentication_error", 401, False),
        ("billing_error", 402, False),
        ("permission_error", 403, False),
        ("not_found_error", 404, False),
        ("request_too_large", 413, False),
        ("rate_limit_error", 429, True),
        ("api_error", 500, True),
        ("timeout_error", 504, True),
        ("overloaded_error", 529, True),
        ("brand_new_error", None, True),
    ],
)
async def test_an_error_with_status_200_has_the_status_of_its_type(
    server: Server, client: AnthropicClient, kind: str, status: int | None, retryable: bool
) -> None:
    server.behave = replies({"type": "error", "error": {"type": kind, "message": "so sad"}})
    with pytest.raises(ModelError, match="so sad") as caught:
        await client.complete(asked(), timeout_seconds=5)
    assert (caught.value.status, caught.value.retryable) == (status, retryable)
    assert caught.value.ambiguous


@pytest.mark.parametrize("payload", [{}, {"content": None}, {"content": "text"}])
async def test_a_response_without_content_is_malformed(
    server: Server, client: AnthropicClient, payload: dict[str, Any]
) -> None:
    server.behave = replies(payload)
    with pytest.raises(ModelError, match="contains no content"):
        await client.complete(asked(), timeout_seconds=5)


# -- messages ----------------------------------------------------------------------------


def test_the_body_equals_that_of_the_official_sdk() -> None:
    """What anthropic 2.8.0 sent for this conversation to a local server."""
    image = {"type": "image", "media_type": "image/png", "data": "aGk="}
    reply = AnthropicDialect().reply(message(THOUGHT, said("Looking."), *CALLS))
    sent = body_of(
        Message("system", "Be brief."),
        Message("user", [said("weather?"), image]),
        back(reply),
        Message("tool", "sun", tool_call_id="toolu_1"),
        Message("tool", "rain", tool_call_id="toolu_2"),
        model="claude-opus-5",
        tools=(LOOK,),
        sampling={
            "stop": "END",
            "reasoning_effort": "low",
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": {"type": "object"}},
            },
        },
    )
    source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    results = [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sun"},
        {"type": "tool_result", "tool_use_id": "toolu_2", "content": "rain"},
    ]
    assert sent == {
        "max_tokens": 50,
        "messages": [
            {"role": "user", "content": [said("weather?"), {"type": "image", "source": source}]},
            {"role": "assistant", "content": [THOUGHT, said("Looking."), *CALLS]},
            {"role": "user", "content": results},
        ],
        "model": "claude-opus-5",
        "output_config": {
            "effort": "low",
            "format": {"type": "json_schema", "schema": {"type": "object"}},
        },
        "stop_sequences": ["END"],
        "system": [said("Be brief.")],
        "thinking": {"type": "adaptive"},
        "tools": [
            {
                "name": "look",
                "description": "Looks.",
                "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}},
            }
        ],
    }


def test_leading_instructions_become_the_system_prompt_and_later_ones_stay() -> None:
    body = body_of(
        Message("system", "one"),
        Message("system", [said("two")]),
        Message("system", " "),
        Message("user", "hi"),
        Message("assistant", "ho"),
        Message("system", "three"),
        Message("system", ""),
        Message("user", "more"),
    )
    assert body["system"] == [said("one"), said("two")]
    late = said("<system>\nthree\n</system>")
    assert body["messages"][2:] == [{"role": "user", "content": [late, said("more")]}]


def test_adjacent_messages_of_a_role_are_merged_with_tool_results_first() -> None:
    calls = (ToolCall("a", "look", {}), ToolCall("b", "look", {}))
    turns = turns_of(
        Message("user", "x"),
        Message("user", "y"),
        Message("assistant", "", tool_calls=calls),
        Message("tool", "1", tool_call_id="a"),
        Message("system", "note"),
        Message("tool", "2", tool_call_id="b"),
        Message("user", "go on"),
    )
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    assert turns[0]["content"] == [said("x"), said("y")]
    kinds = [block["type"] for block in turns[2]["content"]]
    assert kinds == ["tool_result", "tool_result", "text", "text"]


def test_empty_messages_are_not_sent() -> None:
    turns = turns_of(
        Message("user", ""),
        Message("assistant", " \n"),
        Message("user", [said(""), said("x")]),
        Message("assistant", "", tool_calls=(ToolCall("a", "look", {}),)),
        Message("tool", "", tool_call_id="a"),
    )
    contents = [turn["content"] for turn in turns]
    assert contents[:3] == [[said("(empty)")], [said("(empty)")], [said("x")]]
    assert [block["type"] for block in contents[3]] == ["tool_use"]
    assert contents[4] == [{"type": "tool_result", "tool_use_id": "a"}]


def test_the_first_turn_is_the_users_and_a_final_assistant_turn_is_trimmed() -> None:
    turns = turns_of(Message("system", "s"), Message("assistant", "The answer is \n"))
    assert turns == [
        {"role": "user", "content": [said("(empty)")]},
        {"role": "assistant", "content": [said("The answer is")]},
    ]
    assert turns_of(Message("system", "s")) == turns[:1]


def test_images_become_sources_and_other_parts_are_unchanged() -> None:
    pdf = {"type": "document", "source": {"type": "url", "url": "https://x/y.pdf"}}
    own = {"type": "image", "source": {"type": "file", "file_id": "f"}}
    parts: list[dict[str, Any]] = [
        {"type": "image", "url": "https://x/y.png"},
        {"type": "image", "url": "data:image/gif;base64,R0lG"},
        pdf,
        own,
    ]
    (turn,) = turns_of(Message("user", parts))
    assert turn["content"] == [
        {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/gif", "data": "R0lG"},
        },
        pdf,
        own,
    ]
    call = Message("assistant", "", tool_calls=(ToolCall("a", "look", {}),))
    result = turns_of(call, Message("tool", parts[:1], tool_call_id="a"))[-1]["content"][0]
    assert result["content"] == turn["content"][:1]


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"type": "image", "data": "aGk="}, "media_type"),
        ({"type": "image", "url": "data:image/png,abc"}, "base64"),
        ({"type": "image", "url": 3}, "url"),
        ("text", "must be a dict"),
    ],
)
def test_a_part_that_cannot_be_sent_is_named(part: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        body_of(Message("user", [part]))


def test_call_ids_of_other_providers_are_rewritten_for_anthropic() -> None:
    call = ToolCall("functions.look:0", "look", {})
    turns = turns_of(
        Message("user", "x"),
        Message("assistant", "", tool_calls=(call,)),
        Message("tool", "1", tool_call_id=call.id),
    )
    assert turns[1]["content"][0]["id"] == "functions_look_0"
    assert turns[2]["content"][0]["tool_use_id"] == "functions_look_0"
    odd = AnthropicDialect().reply(message(THOUGHT, {**CALLS[0], "id": "a.b"}))
    assert turns_of(Message("user", "x"), back(odd))[1]["content"][-1]["id"] == "a_b"
    with pytest.raises(ConfigError, match="tool_call_id"):
        body_of(Message("tool", "1"))


# -- thoughts ----------------------------------------------------------------------------


def test_thinking_is_sent_back_unchanged_and_in_place() -> None:
    content = [THOUGHT, HIDDEN, said("One."), THOUGHT, CALLS[0], said("Two."), CALLS[1]]
    reply = AnthropicDialect().reply(message(*content, stop_reason="tool_use"))
    assert (reply.text, reply.reasoning) == ("One.Two.", "hm\n\nhm")
    assert [call.id for call in reply.tool_calls] == ["toolu_1", "toolu_2"]
    turns = turns_of(Message("user", "x"), back(reply))
    assert turns[1]["content"] == content


def test_a_reply_without_thinking_carries_no_opaque_parts() -> None:
    reply = AnthropicDialect().reply(message(said("One."), *CALLS))
    assert reply.opaque is None
    assert turns_of(Message("user", "x"), back(reply))[1]["content"] == [said("One."), *CALLS]


def test_parts_that_the_api_would_refuse_are_left_out() -> None:
    cut = {"type": "thinking", "thinking": "h", "signature": ""}
    reply = AnthropicDialect().reply(message(THOUGHT, said("\n\n"), cut, stop_reason="max_tokens"))
    assert reply.finish_reason == "length"
    turns = turns_of(Message("user", "x"), back(reply), Message("user", "y"))
    assert turns[1]["content"] == [THOUGHT, said("(empty)")]


def test_an_edited_message_keeps_its_thinking_but_not_its_old_text_or_calls() -> None:
    reply = AnthropicDialect().reply(message(THOUGHT, said("old"), *CALLS))
    edited = Message("assistant", "new", tool_calls=reply.tool_calls[1:], opaque=reply.opaque)
    turns = turns_of(Message("user", "x"), edited)
    assert turns[1]["content"] == [THOUGHT, said("new"), CALLS[1]]
    added = Message("assistant", "old", tool_calls=(ToolCall("z", "go", {}),), opaque=reply.opaque)
    blocks = turns_of(Message("user", "x"), added)[1]["content"]
    assert [block.get("id") for block in blocks] == [None, None, "z"]


def test_replacing_a_lone_surrogate_does_not_count_as_an_edit() -> None:
    reply = AnthropicDialect().reply(message(THOUGHT, said("a\ud800"), THOUGHT, said("b")))
    cleaned = Message("assistant", "a\ufffdb", opaque=reply.opaque)
    turns = turns_of(Message("user", "x"), cleaned)
    assert turns[1]["content"] == [THOUGHT, said("a\ufffd"), THOUGHT, said("b")]


@pytest.mark.parametrize(
    "opaque",
    [
        None,
        "text",
        {"gemini_parts": [{"text": "x"}], "tool_calls": [{}]},
        {"anthropic_content": "x"},
        {"anthropic_content": [3, {"type": ["tool_use"], "id": {}}]},
        {"anthropic_content": [{"type": "tool_use", "id": []}]},
    ],
)
def test_invalid_opaque_parts_do_no_harm(opaque: Any) -> None:
    turns = turns_of(Message("user", "x"), Message("assistant", "y", opaque=opaque))
    assert said("y") in turns[1]["content"]
    assert not [block for block in turns[1]["content"] if block["type"] == "tool_use"]


# -- replies -----------------------------------------------------------------------------


def test_usage_counts_cache_reads_as_input_and_thinking_as_output() -> None:
    """Counts as the SDK's Usage model has them."""
    stated = {
        "input_tokens": 3,
        "output_tokens": 5,
        "cache_creation_input_tokens": 7,
        "cache_read_input_tokens": 11,
        "output_tokens_details": {"thinking_tokens": 2},
        "service_tier": "standard",
    }
    reply = AnthropicDialect().reply(message(said("x"), usage=stated))
    assert reply.usage == Usage(
        21, 5, cached_tokens=11, reasoning_tokens=2, requests=1, cache_write_tokens=7
    )
    for broken in (None, {}, {"input_tokens": 3}, {"input_tokens": 3, "output_tokens": "many"}):
        assert AnthropicDialect().reply(message(said("x"), usage=broken)).usage is None


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("pause_turn", "other"),
        ("refusal", "refusal"),
        ("something_new", "other"),
        (None, "other"),
        (["x"], "other"),
    ],
)
def test_stop_reasons_are_translated(reason: Any, finish: str) -> None:
    reply = AnthropicDialect().reply(message(said("x"), stop_reason=reason))
    assert (reply.text, reply.finish_reason) == ("x", finish)


def test_a_refusal_without_text_is_explained() -> None:
    details = {"type": "refusal", "category": "bio", "explanation": "No."}
    reply = AnthropicDialect().reply(message(stop_reason="refusal", stop_details=details))
    assert reply.finish_reason == "refusal"
    assert reply.text == "The model refused to answer (bio: No.)."
    assert "no reason" in AnthropicDialect().reply(message(stop_reason="refusal")).text


def test_a_paused_turn_is_continued_from_its_content() -> None:
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    reply = AnthropicDialect().reply(message(said("x"), search, stop_reason="pause_turn"))
    assert (reply.finish_reason, reply.tool_calls) == ("other", ())
    assert turns_of(Message("user", "x"), back(reply))[1]["content"] == [said("x"), search]


def test_malformed_tool_calls_are_read() -> None:
    odd: list[dict[str, Any]] = [
        {"type": "tool_use"},
        {"type": "tool_use", "id": 3, "name": None, "input": "not json"},
        {"type": "tool_use", "id": "c", "name": "look", "input": '{"at": 1}'},
    ]
    reply = AnthropicDialect().reply(message(*odd))
    assert reply.tool_calls == (
        ToolCall("call_0", "", {}),
        ToolCall("call_1", "", {"_raw": "not json"}),
        ToolCall("c", "look", {"at": 1}),
    )
    assert reply.finish_reason == "tool_calls"
    ids = [block["id"] for block in turns_of(Message("user", "x"), back(reply))[1]["content"]]
    assert sorted(ids) == ["c", "call_0", "call_1"]
