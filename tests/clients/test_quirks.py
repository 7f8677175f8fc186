"""How each server that speaks chat completions is special, row by row of the table."""

import json
from typing import Any

import pytest

from rlm.clients._chat import ChatDialect
from rlm.clients._quirks import QUIRKS, cap_name, is_claude, is_reasoning, quirks_for
from rlm.clients.compatible import OpenAICompatClient
from rlm.errors import ConfigError, ModelError
from rlm.messages import Message, ToolCall
from rlm.wiring.registry import PROVIDERS
from tests.clients.misbehaving import Server, asked, completion, delta, event, replies, streams

KEY = "sk-test-0123456789"
CAPS = {"max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict", "num_predict"}
MARK = {"cache_control": {"type": "ephemeral"}}


def body(provider: str, **facts: Any) -> dict[str, Any]:
    stream = facts.pop("stream", False)
    sent = ChatDialect(QUIRKS[provider]).body(asked(**facts), stream=stream)
    decoded: dict[str, Any] = json.loads(sent)
    return decoded


def test_every_provider_of_this_dialect_has_quirks() -> None:
    speaking = {name for name, provider in PROVIDERS.items() if provider.dialect == "chat"}
    assert speaking <= QUIRKS.keys()


@pytest.mark.parametrize(
    ("provider", "host", "row"),
    [
        ("openai-compatible", "api.openai.com", "openai"),
        ("openai-compatible", "openrouter.ai", "openrouter"),
        ("openai-compatible", "my-place.openai.azure.com", "azure"),
        ("azure", "gateway.example.com", "azure"),
        ("openai", "localhost", "openai-compatible"),
        ("openai", "evil-openai.azure.com.example.com", "openai-compatible"),
        ("vllm", "10.0.0.7", "vllm"),
        ("something-else", "models.example.com", "openai-compatible"),
    ],
)
def test_a_known_host_takes_precedence_over_the_provider(
    provider: str, host: str, row: str
) -> None:
    assert quirks_for(provider, host) is QUIRKS[row]


@pytest.mark.parametrize(
    ("provider", "header", "value"),
    [
        ("azure", "api-key", KEY),
        ("portkey", "x-portkey-api-key", KEY),
        ("openrouter", "Authorization", f"Bearer {KEY}"),
        ("groq", "Authorization", f"Bearer {KEY}"),
        ("vllm", "Authorization", f"Bearer {KEY}"),
    ],
)
async def test_the_key_is_sent_in_the_header_the_provider_expects(
    server: Server, provider: str, header: str, value: str
) -> None:
    client = OpenAICompatClient(server.url, KEY, provider=provider)
    await client.complete(asked(), timeout_seconds=5)
    await client.close()
    sent = server.headers[0]
    assert sent[header] == value
    assert [name for name, text in sent.items() if KEY in text] == [header]
    assert not sent.keys() & {"HTTP-Referer", "X-Title"}, "nobody is told what program this is"


@pytest.mark.parametrize("provider", ["ollama", "vllm", "lmstudio", "llamacpp"])
async def test_local_servers_need_no_key(server: Server, provider: str) -> None:
    client = OpenAICompatClient(server.url, provider=provider)
    await client.complete(asked(), timeout_seconds=5)
    await client.close()
    assert "Authorization" not in server.headers[0]


# -- the output cap -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider", "model", "expected"),
    [
        ("openai", "gpt-4.1", "max_completion_tokens"),
        ("azure", "our-deployment", "max_completion_tokens"),
        ("groq", "llama-3.3-70b-versatile", "max_completion_tokens"),
        ("openrouter", "openai/gpt-5-mini", "max_tokens"),
        ("vercel", "openai/gpt-5-mini", "max_tokens"),
        ("portkey", "@openai/gpt-5-mini", "max_completion_tokens"),
        ("portkey", "@anthropic/claude-sonnet-4-5", "max_tokens"),
        ("openai-compatible", "o3-mini", "max_completion_tokens"),
        ("openai-compatible", "qwen3", "max_tokens"),
        ("ollama", "gpt-5-lookalike", "max_tokens"),
        ("llamacpp", "o1", "max_tokens"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_one_cap_is_sent_under_the_servers_own_name(
    provider: str, model: str, expected: str, stream: bool
) -> None:
    given = dict.fromkeys(CAPS, 60)
    sent = body(provider, model=model, sampling=given, stream=stream)
    assert sent.keys() & CAPS == {expected}
    assert sent[expected] == 50
    smaller = body(provider, model=model, sampling={"n_predict": 7})
    assert (smaller.keys() & CAPS, smaller[expected]) == ({expected}, 7)


@pytest.mark.parametrize("cap", [0, -1, "many", True, 1.5])
def test_an_invalid_cap_is_an_error(cap: Any) -> None:
    with pytest.raises(ConfigError, match="max_tokens must be a positive integer"):
        body("openai", sampling={"max_tokens": cap})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("o1", True),
        ("o3-mini", True),
        ("o4-mini-2025-04-16", True),
        ("gpt-5", True),
        ("gpt-5.1-chat-latest", True),
        ("@openai/gpt-5-mini", True),
        ("codex-mini-latest", True),
        ("gpt-4.1", False),
        ("gpt-oss-120b", False),
        ("o10", False),
        ("olmo-2", False),
        ("marco-o1", False),
    ],
)
def test_names_of_reasoning_models(name: str, expected: bool) -> None:
    assert is_reasoning(name) is expected
    assert (cap_name(QUIRKS["openai-compatible"], name) == "max_completion_tokens") is expected


# -- sampling -------------------------------------------------------------------------------------


def test_only_options_equal_to_the_default_are_left_out() -> None:
    given = {"temperature": 1.0, "top_p": 1, "reasoning_effort": "low", "seed": None}
    sent = body("openai", model="gpt-5-mini", sampling=given)
    assert not sent.keys() & {"temperature", "top_p", "seed"}
    assert sent["reasoning_effort"] == "low"
    assert body("openai", model="gpt-4.1", sampling=given)["temperature"] == 1.0
    assert body("openai", model="gpt-5-mini", sampling={"temperature": 0})["temperature"] == 0


def test_sampling_options_pass_except_those_set_by_rlm() -> None:
    given = {
        "stream": True,
        "stream_options": {"include_usage": False},
        "model": "another",
        "messages": [],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "provider": {"order": ["a"]},
    }
    sent = body("openrouter", sampling=given)
    assert (sent["model"], len(sent["messages"])) == ("m-1", 1)
    assert not sent.keys() & {"stream", "stream_options"}
    assert (sent["tool_choice"], sent["provider"]) == ("required", {"order": ["a"]})
    assert sent["parallel_tool_calls"] is False
    streamed = body("openrouter", sampling={**given, "stream": False}, stream=True)
    assert (streamed["stream"], streamed["stream_options"]) == (True, {"include_usage": True})


@pytest.mark.parametrize("name", ["num_ctx", "options"])
def test_a_window_that_ollama_would_ignore_is_an_error(name: str) -> None:
    with pytest.raises(ConfigError, match="OLLAMA_CONTEXT_LENGTH"):
        body("ollama", sampling={name: 32_000})
    assert body("vllm", sampling={name: 1})[name] == 1


# -- parts ----------------------------------------------------------------------------------------


def test_images_become_image_urls_and_other_parts_are_unchanged() -> None:
    audio: dict[str, Any] = {"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}}
    parts = [
        {"type": "text", "text": "What is it?"},
        {"type": "image", "media_type": "image/png", "data": "iVBO"},
        {"type": "image", "url": "https://example.com/a.png"},
        audio,
    ]
    sent = body("openai", messages=(Message("user", parts),))
    assert sent["messages"][0]["content"] == [
        parts[0],
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        audio,
    ]


# -- prompt caches --------------------------------------------------------------------------------


def turns(count: int) -> tuple[Message, ...]:
    messages = [Message("system", "Be brief. 日本"), Message("user", "The task.")]
    for number in range(count):
        call = ToolCall(f"c{number}", "execute_python", {"code": f"print({number})"})
        messages.append(Message("assistant", "" if number % 2 else "Hm.", tool_calls=(call,)))
        messages.append(Message("tool", f"{number}\n", tool_call_id=f"c{number}"))
    return tuple(messages)


@pytest.mark.parametrize("provider", sorted(QUIRKS))
def test_the_messages_of_each_step_start_with_those_of_the_previous(provider: str) -> None:
    dialect = ChatDialect(QUIRKS[provider])
    before = b""
    for count in range(4):
        sent = dialect.body(asked(messages=turns(count), grows=True), stream=False)
        messages = sent[sent.index(b'"messages":[') :]
        messages = messages[: messages.rindex(b"]")]
        assert messages.startswith(before)
        assert len(messages) > len(before)
        before = messages


@pytest.mark.parametrize("provider", ["openrouter", "vercel", "portkey", "litellm-proxy"])
def test_requests_for_claude_through_gateways_have_cache_marks(provider: str) -> None:
    request: dict[str, Any] = {"model": "anthropic/claude-sonnet-4.5", "grows": True}
    system, user = body(provider, messages=turns(0), **request)["messages"]
    assert system["content"] == [{"type": "text", "text": "Be brief. 日本", **MARK}]
    assert user["content"] == [{"type": "text", "text": "The task.", **MARK}]
    *_, said, result, empty, last = body(provider, messages=turns(2), **request)["messages"]
    assert said["content"] == [{"type": "text", "text": "Hm.", **MARK}]
    assert (result["content"], empty["content"], last["content"]) == ("0\n", None, "1\n")


def test_a_mark_is_on_text_even_if_an_image_is_last() -> None:
    parts = [{"type": "text", "text": "Look."}, {"type": "image", "url": "https://x.example/a"}]
    request: dict[str, Any] = {"model": "anthropic/claude-sonnet-4.5", "grows": True}
    sent = body("openrouter", messages=(Message("user", parts),), **request)
    text, image = sent["messages"][0]["content"]
    assert text == {"type": "text", "text": "Look.", **MARK}
    assert "cache_control" not in image


@pytest.mark.parametrize(
    ("provider", "model", "grows"),
    [
        ("openrouter", "anthropic/claude-sonnet-4.5", False),
        ("openrouter", "openai/gpt-5", True),
        ("openai-compatible", "anthropic/claude-sonnet-4.5", True),
    ],
)
def test_other_requests_have_no_cache_marks(provider: str, model: str, grows: bool) -> None:
    sent = body(provider, model=model, grows=grows, messages=turns(2))
    assert "cache_control" not in json.dumps(sent)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("anthropic/claude-sonnet-4.5", True),
        ("@anthropic/claude-sonnet-4-5", True),
        ("bedrock/us.anthropic.claude-sonnet-4", True),
        ("claude-opus-4-1", True),
        ("openai/gpt-5", False),
        ("acme/claudette-7b", False),
    ],
)
def test_names_of_claude_models(name: str, expected: bool) -> None:
    assert is_claude(name) is expected


# -- replies --------------------------------------------------------------------------------------


async def streamed(server: Server, provider: str, *chunks: dict[str, Any]) -> Any:
    server.behave = streams([event(chunk) for chunk in chunks])
    client = OpenAICompatClient(server.url, provider=provider)
    try:
        parts: list[Any] = [part async for part in client.stream(asked(), timeout_seconds=5)]
    finally:
        await client.close()
    assert "".join(parts[:-1]) == parts[-1].text
    return parts[-1]


async def test_reasoning_details_are_joined_from_a_stream(server: Server) -> None:
    def piece(**facts: Any) -> dict[str, Any]:
        return delta(reasoning_details=[{"type": "reasoning.text", "index": 0, **facts}])

    reply = await streamed(
        server,
        "openrouter",
        piece(text="I ", signature=None),
        piece(text="add."),
        piece(signature="sig"),
        delta(reasoning_details=[{"type": "reasoning.encrypted", "index": 1, "data": "xyz"}]),
        delta("4", finish="stop"),
    )
    assert reply.reasoning == "I add."
    assert reply.opaque == {
        "reasoning_details": [
            {"type": "reasoning.text", "index": 0, "text": "I add.", "signature": "sig"},
            {"type": "reasoning.encrypted", "index": 1, "data": "xyz"},
        ]
    }


def test_plain_reasoning_is_sent_back_only_with_tool_calls() -> None:
    dialect = ChatDialect(QUIRKS["openai-compatible"])
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    thought = {"reasoning_content": "I should look."}
    calling = dialect.reply(completion(None, message={"tool_calls": [call], **thought}))
    assert calling.opaque == thought
    assert dialect.reply(completion("4", message=thought)).opaque is None
    said = Message("assistant", "", tool_calls=calling.tool_calls, opaque=calling.opaque)
    sent = json.loads(dialect.body(asked(messages=(said,)), stream=False))
    assert sent["messages"][0]["reasoning_content"] == "I should look."


def test_opaque_parts_of_other_dialects_are_not_sent() -> None:
    said = Message("assistant", "4", opaque={"responses_output": [{"type": "reasoning"}]})
    assert body("openai", messages=(said,))["messages"] == [{"role": "assistant", "content": "4"}]


async def test_groqs_usage_in_a_stream_is_read(server: Server) -> None:
    last = delta(finish="stop") | {
        "x_groq": {"id": "r", "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    }
    reply = await streamed(server, "groq", delta("hi"), last)
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (3, 2)


async def test_a_stream_that_ends_with_an_error_is_a_failure(server: Server) -> None:
    said = {"code": 502, "message": "upstream gone"}
    broken = {"error": said, "choices": [{"delta": {"content": ""}, "finish_reason": "error"}]}
    with pytest.raises(ModelError, match=r"HTTP 502.*upstream gone") as caught:
        await streamed(server, "openrouter", delta("Hal"), broken)
    assert (caught.value.retryable, caught.value.ambiguous) == (True, True)
    with pytest.raises(ModelError, match="ended with an error"):
        await streamed(server, "openrouter", delta("Hal", finish="error"))


async def test_groqs_error_inside_a_stream_is_a_failure(server: Server) -> None:
    with pytest.raises(ModelError, match="over_capacity"):
        await streamed(server, "groq", delta("Hal"), {"x_groq": {"error": "over_capacity"}})


async def test_a_plain_reply_that_ended_with_an_error_is_a_failure(server: Server) -> None:
    server.behave = replies(completion("Hal", finish_reason="error"))
    client = OpenAICompatClient(server.url, provider="openrouter")
    with pytest.raises(ModelError, match="ended with an error") as caught:
        await client.complete(asked(), timeout_seconds=5)
    await client.close()
    assert (caught.value.retryable, caught.value.ambiguous) == (True, True)
