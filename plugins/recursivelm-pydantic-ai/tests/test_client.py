"""Models of Pydantic AI drive the engine's loop."""

import asyncio

import pytest
from pydantic_ai import models
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    BinaryContent,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.openai import OpenAIProvider
from recursivelm_pydantic_ai import PydanticAIClient
from recursivelm_pydantic_ai.messages import as_messages, as_reply
from scripted import by_rules, cell, scripted, text_of

from rlm import RLM, ConfigError, Limits
from rlm.messages import Message, Request, ToolCall, ToolSpec
from rlm.testing.fake_server import FakeServer

SECRET = "the password is swordfish-7391"
CONTEXT = "filler line\n" * 20_000 + SECRET + "\n" + "filler line\n" * 20_000


async def test_a_run_uses_a_pydantic_ai_model_that_does_not_see_the_context() -> None:
    model, asked = scripted(
        cell("where = context.find('password')\nprint(where)"),
        cell("FINAL(context[where:where + 26])"),
    )
    async with RLM(PydanticAIClient(model)) as rlm:
        result = await rlm.aask("What is the password?", CONTEXT)
    assert result.answer == "password is swordfish-7391"
    assert result.steps == len(asked) == 2
    assert not any("swordfish" in text_of(messages) for messages, _ in asked)
    assert result.usage.total.input_tokens > 0


async def test_code_asks_another_model() -> None:
    model, asked = scripted(cell("FINAL(llm_query('Say A or B: ' + context))"))
    small = by_rules(lambda text: "B" if "second" in text else "A")
    async with RLM(PydanticAIClient(model), sub_model=PydanticAIClient(small)) as rlm:
        result = await rlm.aask("Which?", "the second one")
    assert (result.answer, len(asked), result.usage.total.requests) == ("B", 1, 2)


async def test_limits_are_enforced() -> None:
    rounds = [cell("print(1)")] * 3
    model, asked = scripted(*rounds, "nothing")
    async with RLM(PydanticAIClient(model), limits=Limits(max_steps=3)) as rlm:
        result = await rlm.aask("What?", "text")
    assert (result.limit, result.steps) == ("steps", 3)
    caps = [info.model_settings["max_tokens"] for _, info in asked if info.model_settings]
    assert caps == [8_192, 8_192, 8_192, 4_096], "three steps, and the final answer"


async def test_settings_reach_the_model_and_unknown_ones_are_refused() -> None:
    model, asked = scripted("FINAL(x)")
    client = PydanticAIClient(model, settings={"max_tokens": 50, "temperature": 1.0})
    request = Request(
        model="m",
        messages=(Message("user", "hi"),),
        max_output_tokens=100,
        sampling={"temperature": 0.5, "stop": "END", "seed": 1},
        tools=(ToolSpec("python", "runs code", {"type": "object", "properties": {}}),),
    )
    await client.complete(request, timeout_seconds=5)
    settings = dict(asked[0][1].model_settings or {})
    assert settings == {
        "max_tokens": 50,
        "temperature": 0.5,
        "stop_sequences": ["END"],
        "seed": 1,
        "max_retries": 0,
        "timeout": 5,
    }
    assert [tool.name for tool in asked[0][1].function_tools] == ["python"]
    bad = Request(model="m", messages=(), max_output_tokens=1, sampling={"typo": 1})
    with pytest.raises(ConfigError, match="no setting for 'typo'; options: extra_body"):
        await client.complete(bad, timeout_seconds=5)


async def test_the_engine_retries_temporary_failures() -> None:
    busy = ModelHTTPError(status_code=503, model_name="m", body="overloaded")
    model, asked = scripted(busy, cell("FINAL('done')"))
    async with RLM(PydanticAIClient(model)) as rlm:
        assert (await rlm.aask("What?", "text")).answer == "done"
    assert len(asked) == 2


def test_messages_are_converted_in_both_directions() -> None:
    pixel = {"type": "image", "media_type": "image/png", "data": "AAAA"}
    sent = as_messages(
        (
            Message("system", "rules"),
            Message("user", [{"type": "text", "text": "look"}, pixel]),
            Message("assistant", "I run", tool_calls=(ToolCall("1", "python", {"code": "x"}),)),
            Message("tool", "42", tool_call_id="1"),
            Message("user", "and?"),
        )
    )
    first, said, last = sent
    assert isinstance(first, ModelRequest)
    assert isinstance(first.parts[1], UserPromptPart)
    assert first.parts[1].content == ["look", BinaryContent(b"\0\0\0", media_type="image/png")]
    assert isinstance(said, ModelResponse)
    assert isinstance(said.parts[1], ToolCallPart)
    assert said.parts[1].args == {"code": "x"}
    assert isinstance(last.parts[0], ToolReturnPart)
    assert (last.parts[0].tool_name, last.parts[0].content) == ("python", "42")
    with pytest.raises(ConfigError, match="texts and images, not a part of type 'sound'"):
        as_messages((Message("user", [{"type": "sound"}]),))


def test_signed_thinking_is_sent_back_unchanged() -> None:
    response = ModelResponse([ThinkingPart("hm", signature="s1"), TextPart("yes")])
    reply = as_reply(response)
    assert (reply.text, reply.reasoning) == ("yes", "hm")
    [again] = as_messages((Message("assistant", reply.text, opaque=reply.opaque),))
    assert again.parts == response.parts
    [changed] = as_messages((Message("assistant", "no", opaque=reply.opaque),))
    assert changed.parts == [TextPart("no")]


async def test_a_real_provider_package_reaches_a_server() -> None:
    with FakeServer([cell("FINAL(len(context))")]) as server:
        provider = OpenAIProvider(base_url=server.openai_url, api_key="fake")
        model = OpenAIChatModel("gpt-5-mini", provider=provider)
        client = PydanticAIClient(model)
        assert client.info("gpt-5-mini").window_tokens
        with models.override_allow_model_requests(True):
            async with RLM(client) as rlm:
                result = await rlm.aask("How long is it?", "12345")
        assert (result.answer, server.count) == ("5", 1)
        assert result.usage.total.output_tokens > 0
        await provider.client.close()


def test_model_names_are_found_by_the_entry_point_and_wrong_ones_explained() -> None:
    with RLM("pydantic-ai/test") as rlm:
        assert rlm.ask("What?").answer is not None, "no code and no context: the reply is it"
    with pytest.raises(ConfigError, match="Pydantic AI has no model 'nobody:x'"):
        PydanticAIClient("nobody:x")
    with pytest.raises(ConfigError, match="an object or a name, not int"):
        PydanticAIClient(3)  # type: ignore[arg-type]  # ty: ignore[invalid-argument-type]


async def test_many_runs_share_a_client() -> None:
    client = PydanticAIClient(TestModel(custom_output_text="FINAL(ok)"))
    async with RLM(client) as rlm:
        results = await asyncio.gather(*(rlm.aask("What?") for _ in range(8)))
    assert {result.answer for result in results} == {"ok"}
