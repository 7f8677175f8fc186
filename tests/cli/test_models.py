"""Which model a command takes: as asked for, by variable, by the first key, else offline."""

import pytest

from rlm.cli._models import choose
from rlm.registry import PROVIDERS, default_model, make_client

ALL_KEYS = {name: "k" for each in PROVIDERS.values() for name in each.key_variables}


@pytest.mark.parametrize(
    ("model", "variables", "chosen", "why"),
    [
        ("groq/x", {"RLM_MODEL": "openai/y"}, "groq/x", "it was asked for"),
        (None, {"RLM_MODEL": "openai/y", "GROQ_API_KEY": "k"}, "openai/y", "RLM_MODEL names it"),
        (None, ALL_KEYS, "openai/gpt-5-mini", "OPENAI_API_KEY is set"),
        (
            None,
            {"GROQ_API_KEY": "k", "OPENROUTER_API_KEY": "k", "OPENAI_API_KEY": ""},
            "groq/llama-3.3-70b-versatile",
            "GROQ_API_KEY is set",
        ),
        (
            None,
            {"AI_GATEWAY_API_KEY": "k"},
            "vercel/openai/gpt-5-mini",
            "AI_GATEWAY_API_KEY is set",
        ),
        (None, {"OPENROUTER_API_KEY": "k"}, "openrouter/openai/gpt-5-mini", None),
        (None, {"LLM_API_KEY": "k"}, "offline/extractive", "no model is configured"),
        (None, {}, "offline/extractive", "no model is configured"),
    ],
)
def test_the_model(
    model: str | None, variables: dict[str, str], chosen: str, why: str | None
) -> None:
    choice = choose(model, None, variables)
    assert choice.model == chosen
    assert why in {None, choice.why}
    assert choice.fallback is (chosen == "offline/extractive")


def test_the_model_for_calls() -> None:
    variables = {"RLM_SUB_MODEL": "groq/small"}
    assert choose("a/b", None, variables).sub_model == "groq/small"
    assert choose("a/b", "c/d", variables).names == ("a/b", "c/d")
    assert choose("a/b", None, {}).names == ("a/b",)


@pytest.mark.parametrize("name", [name for name, each in PROVIDERS.items() if each.default_model])
def test_every_default_can_be_reached_with_its_key(name: str) -> None:
    variables = {PROVIDERS[name].key_variables[0]: "k"}
    model = default_model(variables)
    assert model == f"{name}/{PROVIDERS[name].default_model}"
    assert make_client(model, variables)[1] == PROVIDERS[name].default_model
