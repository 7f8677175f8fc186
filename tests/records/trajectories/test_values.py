"""Any value of foreign JSON becomes one that can be used."""

import math
from typing import Any

import pytest

from rlm.messages import Message, Usage
from rlm.records.trajectories.values import (
    as_count,
    as_message,
    as_seconds,
    as_text,
    as_time,
    as_usage,
    described,
)


@pytest.mark.parametrize("value", [-1, True, 1.0, "1", None, [], {}, 10**30])
def test_an_invalid_count_is_zero(value: Any) -> None:
    assert as_count(value) == 0
    assert as_count(7) == 7


@pytest.mark.parametrize("value", [-1, True, "1", None, math.nan, math.inf, 10**400, [1]])
def test_an_invalid_duration_is_zero(value: Any) -> None:
    assert as_seconds(value) == 0.0
    assert as_seconds(7) == 7.0


@pytest.mark.parametrize("value", ["", "yesterday", "9" * 5_000, "0001-01-01", None, {}, math.nan])
def test_an_invalid_time_is_zero(value: Any) -> None:
    assert as_time(value) == 0.0


def test_a_time_with_a_time_zone() -> None:
    assert as_time("1970-01-01T01:00:10+01:00") == 10.0


def test_any_value_becomes_text() -> None:
    assert as_text("a\ud800") == "a\ufffd"
    assert as_text(None) == ""
    assert as_text({"a": [1, None]}) == '{"a": [1, null]}'
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert as_text(deep) == "(list)"


def test_any_value_becomes_a_message() -> None:
    parts = [{"type": "text", "text": "one"}, 2]
    assert as_message({"role": "assistant", "content": parts}) == Message("assistant", "one\n[int]")
    assert as_message({"role": "king", "content": None}) == Message("user", "")
    assert as_message("bare") == Message("user", "bare")


def test_any_value_becomes_usage() -> None:
    part = {"total_calls": 2, "total_input_tokens": 3, "total_output_tokens": -4, "total_cost": 0.5}
    assert as_usage({"model_usage_summaries": {"m": part, "n": "x"}}) == Usage(
        3, 0, cost_usd=0.5, requests=2
    )
    assert as_usage([1]) == Usage()


def test_values_are_described_briefly() -> None:
    assert described("x" * 1_000) == "x" * 200
    assert described({"a": 1}) == "dict of 1"
    assert described(3.5) == "3.5"
