"""Inspect's models drive the engine, inside and outside of evaluations."""

import pytest
from inspect_ai.model import (
    ChatMessageAssistant,
    ChatMessageTool,
    ChatMessageUser,
    ContentImage,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    ModelOutput,
    ModelUsage,
    get_model,
)
from recursivelm_inspect import InspectClient
from recursivelm_inspect.messages import as_messages, as_reply, as_tools

from rlm import RLM, ConfigError, ModelError
from rlm.messages import Message, Request, ToolCall, ToolSpec
from rlm.testing.fake_server import FakeServer


def cell(code: str) -> str:
    return f"```repl\n{code}\n```"


async def test_a_model_name_of_inspect_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeServer([cell("FINAL(len(context))")]) as server:
        monkeypatch.setenv("FAKE_BASE_URL", server.openai_url)
        monkeypatch.setenv("FAKE_API_KEY", "fake")
        async with RLM("inspect/openai-api/fake/policy") as rlm:
            result = await rlm.aask("How long?", "12345")
    assert (result.answer, result.steps, server.count) == ("5", 1, 1)
    assert result.usage.total.input_tokens > 0


async def test_settings_and_the_smallest_cap_reach_the_model() -> None:
    seen: list[GenerateConfig] = []

    def answer(_: object, __: object, ___: object, config: GenerateConfig) -> ModelOutput:
        seen.append(config)
        output = ModelOutput.from_content("mockllm/model", "hi")
        output.usage = ModelUsage(input_tokens=100, output_tokens=10, total_tokens=110)
        return output

    model = get_model(
        "mockllm/model",
        custom_outputs=answer,
        config=GenerateConfig(max_tokens=50),
        memoize=False,
    )
    client = InspectClient(model)
    sampling = {"temperature": 0.5, "stop": "END", "max_tokens": 80}
    request = Request(
        model="m", messages=(Message("user", "x"),), max_output_tokens=100, sampling=sampling
    )
    await client.complete(request, timeout_seconds=5)
    assert (seen[0].max_tokens, seen[0].temperature, seen[0].stop_seqs) == (50, 0.5, ["END"])
    bad = Request(model="m", messages=(), max_output_tokens=1, sampling={"typo": 1})
    with pytest.raises(ConfigError, match="no setting for 'typo'; options: extra_body"):
        await client.complete(bad, timeout_seconds=5)


def test_messages_are_converted_in_both_directions() -> None:
    pixel = {"type": "image", "media_type": "image/png", "data": "AAAA"}
    user, said, tool = as_messages(
        (
            Message("user", [{"type": "text", "text": "look"}, pixel]),
            Message("assistant", "I run", tool_calls=(ToolCall("1", "python", {"code": "x"}),)),
            Message("tool", "42", tool_call_id="1"),
        )
    )
    assert isinstance(user, ChatMessageUser)
    assert user.content == [
        ContentText(text="look"),
        ContentImage(image="data:image/png;base64,AAAA"),
    ]
    assert isinstance(said, ChatMessageAssistant)
    assert said.tool_calls
    assert said.tool_calls[0].arguments == {"code": "x"}
    assert isinstance(tool, ChatMessageTool)
    assert tool.tool_call_id == "1"
    schema = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}
    [made] = as_tools([ToolSpec("python", "runs code", schema)])
    assert made.parameters.required == ["code"]
    with pytest.raises(ConfigError, match="texts and images, not a part of type 'sound'"):
        as_messages((Message("user", [{"type": "sound"}]),))


def test_signed_thinking_is_sent_back_and_cached_tokens_count_as_input() -> None:
    thought = ContentReasoning(reasoning="hm", signature="s1")
    message = ChatMessageAssistant(content=[thought, ContentText(text="yes")])
    output = ModelOutput.from_message(message)
    output.usage = ModelUsage(input_tokens=10, output_tokens=5, input_tokens_cache_read=90)
    reply = as_reply(output)
    assert (reply.text, reply.reasoning) == ("yes", "hm")
    assert reply.usage
    assert (reply.usage.input_tokens, reply.usage.cached_tokens) == (100, 90)
    [again] = as_messages((Message("assistant", "yes", opaque=reply.opaque),))
    assert again.content == message.content
    [changed] = as_messages((Message("assistant", "no", opaque=reply.opaque),))
    assert changed.content == "no"


def test_an_output_without_a_reply_is_an_error() -> None:
    with pytest.raises(ModelError, match="the output has no choice"):
        as_reply(ModelOutput(model="m"))
    with pytest.raises(ConfigError, match="Inspect has no model 'nobody/x'"):
        InspectClient("nobody/x")
