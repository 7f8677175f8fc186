"""Sampling options on their way to Gemini: translated, passed on, or refused by name."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from rlm.clients.gemini import GeminiClient
from rlm.errors import ConfigError
from tests.clients.misbehaving import Server, asked
from tests.clients.test_gemini import KEY, LOOK, body_of


@pytest.fixture
async def client(server: Server) -> AsyncIterator[GeminiClient]:
    made = GeminiClient(server.url, KEY)
    yield made
    await made.close()


def config_of(**facts: Any) -> dict[str, Any]:
    config: dict[str, Any] = body_of(**facts)["generationConfig"]
    return config


def test_geminis_own_options_are_accepted_in_either_spelling() -> None:
    body = body_of(
        sampling={
            "topP": 0.5,
            "media_resolution": "LOW",
            "generation_config": {"temperature": 0.1, "top_k": 3, "seed": None},
            "cachedContent": "cachedContents/x",
            "tools": [{"googleSearch": {}}],
            "logprobs": True,
            "top_logprobs": 2,
            "user": "u",
            "stream": True,
            "n": 1,
            "parallel_tool_calls": True,
            "logit_bias": {},
        }
    )
    assert body["generationConfig"] == {
        "topP": 0.5,
        "mediaResolution": "LOW",
        "temperature": 0.1,
        "topK": 3,
        "responseLogprobs": True,
        "logprobs": 2,
        "maxOutputTokens": 50,
    }
    assert body["cachedContent"] == "cachedContents/x"
    assert body["tools"] == [{"googleSearch": {}}]
    assert body.keys() == {"contents", "generationConfig", "cachedContent", "tools"}


@pytest.mark.parametrize(
    "name", ["max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens"]
)
def test_the_output_cap_is_always_sent_and_can_only_be_lowered(name: str) -> None:
    for cap, expected in [(7, 7), (7_000, 50)]:
        for sampling in ({name: cap}, {"generationConfig": {name: cap}}):
            assert config_of(sampling=sampling) == {"maxOutputTokens": expected}
    with pytest.raises(ConfigError, match=name):
        config_of(sampling={name: "7"})


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        ({"n": 2}, "n must be 1"),
        ({"candidate_count": 2}, "candidate_count must be 1"),
        ({"generationConfig": {"candidateCount": 2}}, "candidateCount must be 1"),
        ({"generationConfig": 3}, "generationConfig must be"),
        ({"logit_bias": {"1": 2}}, "'logit_bias'"),
        ({"parallel_tool_calls": False}, "'parallel_tool_calls'"),
        ({"stop": 3}, "stop must be"),
        ({"response_format": "json"}, "response_format must be"),
        ({"reasoning_effort": "huge"}, "reasoning_effort must be"),
        ({"reasoning_effort": "low", "thinking_config": 3}, "thinkingConfig must be"),
        ({"tool_choice": "some"}, "tool_choice must be"),
    ],
)
async def test_an_untranslatable_option_is_named_before_anything_is_sent(
    server: Server, client: GeminiClient, sampling: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        await client.complete(asked(sampling=sampling), timeout_seconds=5)
    assert server.bodies == []


@pytest.mark.parametrize(
    ("model", "cap", "effort", "expected"),
    [
        ("gemini-3-pro", 50, "none", {"thinkingLevel": "minimal"}),
        ("gemini-3-pro", 50, "medium", {"thinkingLevel": "medium"}),
        ("gemini-3.8-flash", 50, "max", {"thinkingLevel": "high"}),
        ("gemini-2.5-flash", 50_000, "none", {"thinkingBudget": 0}),
        ("gemini-2.5-flash", 50_000, "low", {"thinkingBudget": 1024}),
        ("gemini-2.5-flash", 50_000, "high", {"thinkingBudget": 24_576}),
        ("gemini-2.5-flash", 8_000, "high", {"thinkingBudget": 6_000}),
        ("gemini-2.5-flash", 800, "high", None),
    ],
)
def test_effort_becomes_a_level_or_a_budget(
    model: str, cap: int, effort: str, expected: Any
) -> None:
    sampling = {"reasoning_effort": effort}
    config = config_of(model=model, max_output_tokens=cap, sampling=sampling)
    assert config.get("thinkingConfig") == expected


def test_an_explicit_thinking_config_overrides_effort() -> None:
    own = {"thinking_budget": 5}
    config = config_of(sampling={"reasoning_effort": "high", "thinkingConfig": own})
    assert config == {"thinkingConfig": own, "maxOutputTokens": 50}


def test_json_without_a_schema_and_a_required_tool() -> None:
    choice = {"type": "function", "function": {"name": "look"}}
    given = {"response_format": {"type": "json_object"}, "tool_choice": choice}
    body = body_of(sampling=given, tools=(LOOK,))
    assert body["generationConfig"]["responseMimeType"] == "application/json"
    assert "responseJsonSchema" not in body["generationConfig"]
    calling = {"mode": "ANY", "allowedFunctionNames": ["look"]}
    assert body["toolConfig"] == {"functionCallingConfig": calling}
