"""Gemini's generateContent on a real server: what is sent, and what becomes of replies."""

import json
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web

from rlm.clients.gemini import GeminiClient, GeminiDialect
from rlm.errors import ConfigError, ModelError
from rlm.messages import Message, Reply, ToolCall, ToolSpec, Usage
from tests.clients.misbehaving import Server, asked, replies

KEY = "AIza-0123456789"
LOOK = ToolSpec("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}})
THOUGHT = {"text": "hm", "thought": True}
SIGNED = {
    "functionCall": {"id": "fc1", "name": "look", "args": {"at": "Rome"}},
    "thoughtSignature": "c2ln",
}
SECOND = {"functionCall": {"name": "look", "args": {}}}


def response(*parts: dict[str, Any], **facts: Any) -> dict[str, Any]:
    """A response as the API sends it."""
    candidate = {"content": {"role": "model", "parts": list(parts)}, "finishReason": "STOP"}
    return {
        "candidates": [{**candidate, "index": 0, **facts.pop("candidate", {})}],
        "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 3},
        "modelVersion": "gemini-3-pro",
        "responseId": "r1",
        **facts,
    }


def body_of(*messages: Message, **facts: Any) -> dict[str, Any]:
    facts["messages"] = messages or (Message("user", "hi"),)
    request = asked(**facts)
    body: dict[str, Any] = json.loads(GeminiDialect().body(request, stream=False))
    return body


def turns_of(*messages: Message, **facts: Any) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = body_of(*messages, **facts)["contents"]
    return turns


def back(reply: Reply) -> Message:
    """A reply as the history keeps it."""
    return Message("assistant", reply.text, tool_calls=reply.tool_calls, opaque=reply.opaque)


@pytest.fixture
async def client(server: Server) -> AsyncIterator[GeminiClient]:
    server.behave = replies(response({"text": "hello"}))
    made = GeminiClient(server.url.removesuffix("/v1"), KEY)
    yield made
    await made.close()


# -- the wire ----------------------------------------------------------------------------


async def test_a_plain_request(server: Server, client: GeminiClient) -> None:
    reply = await client.complete(asked("hi"), timeout_seconds=5)
    assert reply == Reply(text="hello", usage=Usage(10, 3, requests=1), model="gemini-3-pro")
    assert server.paths == ["/v1beta/models/m-1:generateContent"]
    assert server.bodies == [
        {
            "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
            "generationConfig": {"maxOutputTokens": 50},
        }
    ]
    assert server.headers[0]["x-goog-api-key"] == KEY
    assert "Authorization" not in server.headers[0]


@pytest.mark.parametrize("end", ["", "/"])
async def test_a_base_url_may_name_the_version(
    server: Server, client: GeminiClient, end: str
) -> None:
    made = GeminiClient(server.url + end, KEY)
    await made.complete(asked(), timeout_seconds=5)
    await made.close()
    assert server.paths == ["/v1/models/m-1:generateContent"]


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("gemini-3-pro", "models/gemini-3-pro"),
        ("models/gemini-3-pro", "models/gemini-3-pro"),
        ("tunedModels/x y", "tunedModels/x%20y"),
        ("a/b?c#d:e", "models/a%2Fb%3Fc%23d%3Ae"),
        ("../../v1/files", "models/..%2F..%2Fv1%2Ffiles"),
        ("models/../x", "models/..%2Fx"),
        ("é\ud800", "models/%C3%A9%EF%BF%BD"),
    ],
)
async def test_no_model_name_leads_to_another_path(
    server: Server, client: GeminiClient, model: str, path: str
) -> None:
    seen: list[str] = []

    async def behave(request: web.Request) -> web.StreamResponse:
        seen.append(request.raw_path)
        return web.json_response(response({"text": "x"}))

    server.behave = behave
    await client.complete(asked(model=model), timeout_seconds=5)
    assert [one.replace("%3A", ":").replace(":", "%3A") for one in seen] == [
        f"/v1beta/{path}:generateContent".replace(":", "%3A")
    ]


async def test_a_refusal_names_the_key_variable_and_never_the_key(
    server: Server, client: GeminiClient
) -> None:
    error = {"code": 403, "message": f"bad key {KEY}", "status": "PERMISSION_DENIED"}
    server.behave = replies({"error": error}, status=403)
    with pytest.raises(ModelError, match="GEMINI_API_KEY") as caught:
        await client.complete(asked(), timeout_seconds=5)
    assert (caught.value.status, caught.value.retryable) == (403, False)
    assert KEY not in str(caught.value) + repr(client)
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    ("error", "status", "retryable"),
    [
        ({"code": 429, "message": "so sad", "status": "RESOURCE_EXHAUSTED"}, 429, True),
        ({"code": 400, "message": "so sad"}, 400, False),
        ({"code": "?", "message": "so sad"}, None, True),
        ("so sad", None, True),
    ],
)
async def test_an_error_with_status_200(
    server: Server, client: GeminiClient, error: Any, status: int | None, retryable: bool
) -> None:
    server.behave = replies({"error": error})
    with pytest.raises(ModelError, match="so sad") as caught:
        await client.complete(asked(), timeout_seconds=5)
    assert (caught.value.status, caught.value.retryable) == (status, retryable)
    assert caught.value.ambiguous


@pytest.mark.parametrize("payload", [{}, {"candidates": []}, {"candidates": [3]}])
async def test_a_response_without_candidates_is_malformed(
    server: Server, client: GeminiClient, payload: dict[str, Any]
) -> None:
    server.behave = replies(payload)
    with pytest.raises(ModelError, match="no candidates"):
        await client.complete(asked(), timeout_seconds=5)


# -- messages ----------------------------------------------------------------------------


QUESTION = [
    {"text": "weather?"},
    {"inlineData": {"mimeType": "image/png", "data": "aGk="}},
    {"fileData": {"mimeType": "image/png", "fileUri": "https://x/y.png"}},
]
RESULTS: list[dict[str, Any]] = [
    {"functionResponse": {"id": "fc1", "name": "look", "response": {"output": "sun"}}},
    {"functionResponse": {"name": "look", "response": {"output": "rain"}}},
]
DECLARED = {"name": "look", "description": "Looks.", "parametersJsonSchema": LOOK.parameters}
SDK_BODY = {
    "contents": [
        {"role": "user", "parts": QUESTION},
        {"role": "model", "parts": [THOUGHT, {"text": "Looking."}, SIGNED, SECOND]},
        {"role": "user", "parts": RESULTS},
    ],
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
    "tools": [{"functionDeclarations": [DECLARED]}],
    "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
    "serviceTier": "flex",
    "generationConfig": {
        "temperature": 0.2,
        "topP": 0.9,
        "topK": 5,
        "maxOutputTokens": 50,
        "stopSequences": ["END"],
        "presencePenalty": 0.1,
        "frequencyPenalty": 0.2,
        "seed": 7,
        "responseMimeType": "application/json",
        "responseJsonSchema": {"type": "object"},
        "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "low"},
    },
}
"""What google-genai 3.1.0 sent for this conversation to a local server.

Besides, it wrote nested names in snake case and the level in capitals, which the API takes too,
and gave the instructions a role, which means nothing.
"""

SDK_OPTIONS = {
    "temperature": 0.2,
    "top_p": 0.9,
    "top_k": 5,
    "stop": ["END"],
    "seed": 7,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.2,
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "x", "schema": {"type": "object"}},
    },
    "reasoning_effort": "low",
    "thinking_config": {"includeThoughts": True},
    "safety_settings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
    "tool_choice": "required",
    "service_tier": "flex",
}


def test_the_body_equals_that_of_the_official_sdk() -> None:
    reply = GeminiDialect().reply(response(THOUGHT, {"text": "Looking."}, SIGNED, SECOND))
    first, second = reply.tool_calls
    sent = body_of(
        Message("system", "Be brief."),
        Message(
            "user",
            [
                {"type": "text", "text": "weather?"},
                {"type": "image", "media_type": "image/png", "data": "aGk="},
                {"type": "image", "url": "https://x/y.png"},
            ],
        ),
        back(reply),
        Message("tool", "sun", tool_call_id=first.id),
        Message("tool", "rain", tool_call_id=second.id),
        model="gemini-3-pro",
        tools=(LOOK,),
        sampling=SDK_OPTIONS,
    )
    assert sent == SDK_BODY


def test_leading_instructions_become_the_system_prompt_and_later_ones_stay() -> None:
    body = body_of(
        Message("system", "one"),
        Message("system", "two"),
        Message("user", "hi"),
        Message("assistant", "ho"),
        Message("system", "three"),
        Message("system", ""),
        Message("user", "more"),
    )
    assert body["systemInstruction"] == {"parts": [{"text": "one"}, {"text": "two"}]}
    late = {"text": "<system>\nthree\n</system>"}
    assert body["contents"][2:] == [{"role": "user", "parts": [late, {"text": "more"}]}]


def test_adjacent_messages_of_a_role_are_merged_with_tool_results_first() -> None:
    calls = (ToolCall("a", "look", {}), ToolCall("b", "go", {}))
    turns = turns_of(
        Message("user", "x"),
        Message("user", "y"),
        Message("assistant", "", tool_calls=calls),
        Message("system", "note"),
        Message("tool", "2", tool_call_id="b"),
        Message("tool", "1", tool_call_id="a"),
    )
    assert [turn["role"] for turn in turns] == ["user", "model", "user"]
    assert turns[0]["parts"] == [{"text": "x"}, {"text": "y"}]
    assert turns[2]["parts"][0]["functionResponse"]["name"] == "go"
    assert turns[2]["parts"][1]["functionResponse"]["id"] == "a"
    assert "text" in turns[2]["parts"][2]


def test_a_tool_result_names_the_latest_call_with_its_id() -> None:
    turns = turns_of(
        Message("user", "x"),
        Message("assistant", "", tool_calls=(ToolCall("call_0", "look", {}),)),
        Message("tool", "1", tool_call_id="call_0"),
        Message("assistant", "", tool_calls=(ToolCall("call_0", "go", {}),)),
        Message("tool", "2", tool_call_id="call_0"),
    )
    names = [turns[n]["parts"][0]["functionResponse"]["name"] for n in (2, 4)]
    assert names == ["look", "go"]
    for lost in ("nowhere", None):
        with pytest.raises(ConfigError, match="no earlier message"):
            body_of(Message("tool", "1", tool_call_id=lost))


def test_tool_results_may_contain_images() -> None:
    image = {"type": "image", "media_type": "image/png", "data": "aGk="}
    content = [{"type": "text", "text": "see"}, image]
    call = Message("assistant", "", tool_calls=(ToolCall("a", "look", {}),))
    turns = turns_of(Message("user", "x"), call, Message("tool", content, tool_call_id="a"))
    answer = turns[2]["parts"][0]["functionResponse"]
    assert answer["response"] == {"output": "see"}
    assert answer["parts"] == [{"inlineData": {"mimeType": "image/png", "data": "aGk="}}]


def test_empty_messages_are_not_sent_and_the_first_turn_is_the_users() -> None:
    turns = turns_of(
        Message("assistant", ""), Message("user", " "), Message("assistant", "", opaque={})
    )
    assert [turn["role"] for turn in turns] == ["user", "model", "user", "model"]
    assert all(turn["parts"] == [{"text": "(empty)"}] for turn in turns)
    own = {"fileData": {"fileUri": "gs://x"}}
    assert turns_of(Message("user", [own, {"text": "as it is"}]))[0]["parts"] == [
        own,
        {"text": "as it is"},
    ]


# -- thoughts ----------------------------------------------------------------------------


def test_signatures_are_sent_back_unchanged_and_in_place() -> None:
    last = {"text": "", "thoughtSignature": "ZW5k"}
    parts: list[dict[str, Any]] = [
        THOUGHT,
        {"text": "One."},
        SIGNED,
        {"text": "Two."},
        SECOND,
        last,
    ]
    reply = GeminiDialect().reply(response(*parts))
    assert (reply.text, reply.reasoning) == ("One.Two.", "hm")
    assert [call.id for call in reply.tool_calls] == ["fc1", "r1_1"]
    assert turns_of(Message("user", "x"), back(reply))[1]["parts"] == parts


def test_a_reply_without_signatures_carries_no_opaque_parts() -> None:
    assert GeminiDialect().reply(response({"text": "One."})).opaque is None
    signed = GeminiDialect().reply(response({"text": "One.", "thoughtSignature": "c2ln"}))
    assert signed.opaque is not None


def test_an_edited_message_keeps_its_signed_calls_but_not_its_text() -> None:
    reply = GeminiDialect().reply(response(THOUGHT, {"text": "old"}, SIGNED, SECOND))
    edited = Message("assistant", "new", tool_calls=reply.tool_calls, opaque=reply.opaque)
    turns = turns_of(Message("user", "x"), edited)
    assert turns[1]["parts"] == [THOUGHT, {"text": "new"}, SIGNED, SECOND]
    fewer = Message("assistant", "old", opaque=reply.opaque)
    assert turns_of(Message("user", "x"), fewer)[1]["parts"] == [THOUGHT, {"text": "old"}]


@pytest.mark.parametrize(
    ("model", "signed"),
    [("gemini-3-pro", True), ("models/gemini-3.8-flash", True), ("gemini-2.5-pro", False)],
)
def test_tool_calls_of_other_providers_are_marked_for_models_that_check(
    model: str, signed: bool
) -> None:
    calls = (ToolCall("a", "look", {}), ToolCall("b", "look", {}))
    foreign = Message("assistant", "", tool_calls=calls, opaque={"anthropic_content": [{}]})
    parts = turns_of(Message("user", "x"), foreign, model=model)[1]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == [
        "skip_thought_signature_validator" if signed else None,
        None,
    ]


@pytest.mark.parametrize(
    "opaque", [None, "x", {"gemini_parts": 3}, {"gemini_parts": [3, {}, {"functionCall": 5}]}]
)
def test_invalid_opaque_parts_do_no_harm(opaque: Any) -> None:
    turns = turns_of(Message("user", "x"), Message("assistant", "y", opaque=opaque))
    assert {"text": "y"} in turns[1]["parts"]


def test_a_malformed_part_beside_a_signed_call_keeps_the_signature() -> None:
    reply = GeminiDialect().reply(response({"functionCall": 5}, SIGNED))
    assert turns_of(Message("user", "x"), back(reply))[1]["parts"][-1] == SIGNED


def test_each_step_starts_with_the_bytes_of_the_previous_one() -> None:
    messages: list[Message] = [Message("system", "Be brief."), Message("user", "go")]
    bodies = [GeminiDialect().body(asked(messages=tuple(messages), grows=True), stream=False)]
    contents: tuple[list[dict[str, Any]], ...] = (
        [THOUGHT, {"text": "so"}, SIGNED, SECOND],
        [],
        [{"text": "done "}],
    )
    for step in range(6):
        reply = GeminiDialect().reply(response(*contents[step % 3], responseId=f"r{step}"))
        messages.append(back(reply))
        messages += [Message("tool", "r", tool_call_id=call.id) for call in reply.tool_calls]
        if not reply.tool_calls:
            messages.append(Message("user", ""))
        request = asked(messages=tuple(messages), grows=True, tools=(LOOK,))
        bodies.append(GeminiDialect().body(request, stream=True))
    for shorter, longer in pairwise(bodies):
        stable, closing, _ = shorter.rpartition(b"]" if b'"tools"' not in shorter else b'],"tools"')
        assert closing
        assert len(stable) > 50
        assert longer.startswith(stable)


# -- replies -----------------------------------------------------------------------------


def test_usage_counts_thinking_as_output_and_the_cache_as_input() -> None:
    """Counts as the SDK's usage model has them; their sum is its totalTokenCount."""
    stated = {
        "promptTokenCount": 10,
        "cachedContentTokenCount": 4,
        "candidatesTokenCount": 3,
        "thoughtsTokenCount": 7,
        "toolUsePromptTokenCount": 2,
        "totalTokenCount": 22,
    }
    usage = GeminiDialect().reply(response({"text": "x"}, usageMetadata=stated)).usage
    assert usage == Usage(12, 10, cached_tokens=4, reasoning_tokens=7, requests=1)
    assert usage.total_tokens == 22
    for broken in (None, {}, {"candidatesTokenCount": 3}, {"promptTokenCount": "many"}):
        assert GeminiDialect().reply(response(usageMetadata=broken)).usage is None
    blocked = response(usageMetadata={"promptTokenCount": 4, "totalTokenCount": 4})
    assert GeminiDialect().reply(blocked).usage == Usage(4, 0, requests=1)


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "refusal"),
        ("RECITATION", "refusal"),
        ("PROHIBITED_CONTENT", "refusal"),
        ("BLOCKLIST", "refusal"),
        ("SPII", "refusal"),
        ("MALFORMED_FUNCTION_CALL", "other"),
        ("SOMETHING_NEW", "other"),
        (None, "other"),
        ({}, "other"),
    ],
)
def test_finish_reasons_are_translated(reason: Any, finish: str) -> None:
    reply = GeminiDialect().reply(response({"text": "x"}, candidate={"finishReason": reason}))
    assert (reply.text, reply.finish_reason) == ("x", finish)


def test_a_refusal_is_explained() -> None:
    stopped = {"finishReason": "SAFETY", "finishMessage": "Unsafe.", "content": None}
    reply = GeminiDialect().reply(response(candidate=stopped))
    assert (reply.finish_reason, reply.text) == (
        "refusal",
        "Gemini stopped the answer (SAFETY: Unsafe.).",
    )
    blocked = {
        "promptFeedback": {"blockReason": "PROHIBITED_CONTENT"},
        "usageMetadata": {"promptTokenCount": 4},
    }
    reply = GeminiDialect().reply(blocked)
    assert (reply.finish_reason, reply.text) == (
        "refusal",
        "Gemini refused the prompt (PROHIBITED_CONTENT).",
    )
    assert reply.usage == Usage(4, 0, requests=1)


def test_a_cap_used_up_by_thinking_is_not_a_malformed_reply() -> None:
    reply = GeminiDialect().reply(response(candidate={"finishReason": "MAX_TOKENS", "content": {}}))
    assert (reply.text, reply.finish_reason, reply.opaque) == ("", "length", None)


def test_malformed_tool_calls_are_read() -> None:
    odd = [{"functionCall": call} for call in ({}, {"id": 3, "name": [], "args": "no"}, 5)]
    reply = GeminiDialect().reply(response(*odd, responseId=None))
    assert reply.tool_calls == (
        ToolCall("call_0", "", {}),
        ToolCall("call_1", "", {"_raw": "no"}),
    )
    assert reply.finish_reason == "tool_calls"
