"""Tokens and cost in the spellings of many servers; each is what one of them really sends."""

from typing import Any

import pytest

from rlm.clients._fields import usage_of
from rlm.messages import Usage


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        (  # OpenAI
            {
                "prompt_tokens": 1200,
                "completion_tokens": 90,
                "total_tokens": 1290,
                "prompt_tokens_details": {"cached_tokens": 1024, "cache_write_tokens": 100},
                "completion_tokens_details": {"reasoning_tokens": 64},
            },
            Usage(1200, 90, 1024, 64, requests=1, cache_write_tokens=100),
        ),
        (  # OpenAI, /responses
            {
                "input_tokens": 100,
                "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 0},
                "output_tokens": 40,
                "output_tokens_details": {"reasoning_tokens": 32},
                "total_tokens": 140,
            },
            Usage(100, 40, 64, 32, requests=1),
        ),
        (  # DeepSeek
            {
                "prompt_tokens": 50,
                "completion_tokens": 5,
                "total_tokens": 55,
                "prompt_cache_hit_tokens": 40,
                "prompt_cache_miss_tokens": 10,
            },
            Usage(50, 5, 40, requests=1),
        ),
        (  # LiteLLM proxy in front of Anthropic: in the prompt's tokens
            {
                "prompt_tokens": 2000,
                "completion_tokens": 5,
                "total_tokens": 2005,
                "prompt_tokens_details": {"cached_tokens": 1500},
                "cache_creation_input_tokens": 300,
                "cache_read_input_tokens": 1500,
            },
            Usage(2000, 5, 1500, requests=1, cache_write_tokens=300),
        ),
        (  # Portkey in front of Anthropic: beside them, and in the total
            {
                "prompt_tokens": 2000,
                "completion_tokens": 5,
                "total_tokens": 3805,
                "prompt_tokens_details": {"cached_tokens": 1500},
                "cache_creation_input_tokens": 300,
                "cache_read_input_tokens": 1500,
            },
            Usage(3800, 5, 1500, requests=1, cache_write_tokens=300),
        ),
        (  # an older LiteLLM: beside them, and not in the total
            {
                "prompt_tokens": 31,
                "completion_tokens": 467,
                "total_tokens": 498,
                "prompt_tokens_details": {"cached_tokens": 0},
                "cache_creation_input_tokens": 1253,
                "cache_read_input_tokens": 0,
            },
            Usage(1284, 467, 0, requests=1, cache_write_tokens=1253),
        ),
        (  # xAI: thinking is beside the completion, and in the total
            {
                "prompt_tokens": 10,
                "completion_tokens": 30,
                "total_tokens": 596,
                "completion_tokens_details": {"reasoning_tokens": 556},
            },
            Usage(10, 586, 0, 556, requests=1),
        ),
    ],
    ids=["openai", "responses", "deepseek", "litellm", "portkey", "old litellm", "xai"],
)
def test_input_includes_cached_and_output_includes_reasoning_tokens(
    stated: dict[str, Any], expected: Usage
) -> None:
    assert usage_of({"usage": stated}) == expected


def test_llamacpps_timings_are_read_as_usage() -> None:
    timings = {"cache_n": 236, "prompt_n": 1, "predicted_n": 35, "prompt_ms": 30.9}
    assert usage_of({"timings": timings}) == Usage(237, 35, 236, requests=1)
    stated = {"prompt_tokens": 237, "completion_tokens": 35}
    assert usage_of({"usage": stated, "timings": timings}) == Usage(237, 35, 236, requests=1)


@pytest.mark.parametrize(
    ("stated", "cost"),
    [
        ({"cost": 0.95}, 0.95),
        ({"cost": 0}, 0.0),
        ({}, None),
        ({"cost": 0, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.036}}, 0.036),
        ({"cost": 0.01, "is_byok": True, "cost_details": {"upstream_inference_cost": 1}}, 1.01),
        ({"cost": 0.5, "is_byok": False, "cost_details": {"upstream_inference_cost": 0.5}}, 0.5),
        ({"cost": 0, "is_byok": True, "market_cost": 0.02}, 0.02),
        ({"cost": 0, "is_byok": True}, None),
        ({"cost": "0.1"}, None),
        ({"cost": -1}, None),
        ({"cost": float("inf")}, None),
        ({"cost": float("nan")}, None),
        ({"cost": 10**400}, None),
        ({"cost": True}, None),
        ({"cost": {"total_cost": 1}}, None),
    ],
)
def test_a_cost_stated_by_a_gateway_is_read(stated: dict[str, Any], cost: float | None) -> None:
    payload = {"usage": {"prompt_tokens": 1, "completion_tokens": 1, **stated}}
    usage = usage_of(payload, states_cost=True)
    assert usage is not None
    assert usage.cost_usd == cost
    believed = usage_of(payload)
    assert believed is not None
    assert believed.cost_usd is None, "any server may claim that it costs nothing"


@pytest.mark.parametrize(
    "count", [True, "7", -1, 1 << 41, 10**400, float("inf"), float("nan"), [7], None]
)
def test_invalid_counts_are_ignored(count: Any) -> None:
    assert usage_of({"usage": {"prompt_tokens": count, "completion_tokens": 1}}) is None
