"""The conventions' words for events: pure, so tested without OpenTelemetry."""

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.errors import ConfigError
from rlm.events import CallEnded, ModelAsked, ModelReplied, ToolCalled
from rlm.messages import Message, ToolCall, Usage
from rlm.records.recorders import _genai
from rlm.records.recorders.telemetry import TelemetryRecorder

any_json: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
surrogates = st.text(st.characters() | st.characters(categories=["Cs"]), max_size=20)
parts = st.dictionaries(st.sampled_from(["type", "text", "image_url"]), any_json, max_size=3)
messages = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=surrogates | st.lists(parts, max_size=3),
    tool_calls=st.lists(
        st.builds(
            ToolCall,
            id=surrogates,
            name=surrogates,
            arguments=st.dictionaries(surrogates, any_json | surrogates, max_size=2),
        ),
        max_size=2,
    ).map(tuple),
    tool_call_id=st.none() | surrogates,
)


@given(st.lists(messages, max_size=4).map(tuple))
def test_any_conversation_becomes_messages_with_a_role_and_parts(told: tuple[Message, ...]) -> None:
    event = ModelAsked(
        run_id="r",
        purpose="step",
        model="a/b",
        new_messages=told,
        message_count=1,
        max_output_tokens=1,
    )
    (written,) = _genai.asked_content(event).values()
    written.encode()
    found = json.loads(written)
    assert [each["role"] for each in found] == [each.role for each in told]
    for each in found:
        assert all(isinstance(part["type"], str) for part in each["parts"])


def test_pictures_are_mentioned_but_not_sent() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    told = (Message("user", [{"type": "text", "text": "What is this?"}, picture]),)
    event = ModelAsked(
        run_id="r",
        purpose="step",
        model="a/b",
        new_messages=told,
        message_count=1,
        max_output_tokens=1,
    )
    (message,) = json.loads(_genai.asked_content(event)["gen_ai.input.messages"])
    assert message["parts"] == [
        {"type": "text", "content": "What is this?"},
        {"type": "image_url"},
    ]


def test_a_reply_has_its_reasoning_its_text_and_its_tool_calls() -> None:
    event = ModelReplied(
        run_id="r",
        purpose="step",
        model="a/b",
        text="so",
        reasoning="because",
        finish_reason="tool_calls",
        tool_calls=(ToolCall("1", "look", {"at": 2}),),
    )
    (turn,) = json.loads(_genai.answered_content(event)["gen_ai.output.messages"])
    assert [part["type"] for part in turn["parts"]] == ["reasoning", "text", "tool_call"]
    assert turn["finish_reason"] == "tool_call"
    assert _genai.answered(event)["gen_ai.response.finish_reasons"] == ["tool_call"]


@pytest.mark.parametrize(
    ("name", "provider", "model"),
    [
        ("openai/gpt-5-mini", "openai", "gpt-5-mini"),
        ("gemini/gemini-3.5-flash", "gcp.gemini", "gemini-3.5-flash"),
        ("azure/my-deployment", "azure.ai.openai", "my-deployment"),
        ("openrouter/openai/gpt-5-mini", "openrouter", "openai/gpt-5-mini"),
        ("litellm/bedrock/some.model", "aws.bedrock", "some.model"),
        ("gguf:/models/small.gguf", "gguf", "small.gguf"),
        ("gguf:small.gguf", "gguf", "small.gguf"),
        ("ScriptedClient", "custom", "ScriptedClient"),
    ],
)
def test_providers_and_models(name: str, provider: str, model: str) -> None:
    assert _genai.provider_and_model(name) == (provider, model)


def test_usage_has_only_reported_values() -> None:
    assert _genai.usage(Usage(3, 2, requests=1)) == {
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.output_tokens": 2,
    }
    full = _genai.usage(Usage(9, 8, 7, 6, 0.5, 1, 4))
    assert full["gen_ai.usage.cache_read.input_tokens"] == 7
    assert full["gen_ai.usage.cache_creation.input_tokens"] == 4
    assert full["gen_ai.usage.reasoning.output_tokens"] == 6
    assert full["rlm.cost_usd"] == 0.5


@given(surrogates)
def test_any_text_can_be_exported(text: str) -> None:
    call = CallEnded(run_id=text, call_id=text, kind="llm", model=text, reply=text)
    tool = ToolCalled(run_id=text, call_id=text, name=text, arguments={text: text}, result=text)
    for found in (
        _genai.answered_content(call),
        _genai.request(text),
        _genai.tool(text, text),
        _genai.tool_content(tool),
    ):
        json.dumps(found, ensure_ascii=False).encode()


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(ConfigError, match=r"pip install 'recursivelm\[otel\]'"):
        TelemetryRecorder()
