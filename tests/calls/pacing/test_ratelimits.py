"""Rate limits on a clock of numbers: exact, and never too late."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.calls.pacing import RateGate, RateLimit
from rlm.errors import ConfigError

MINUTE = 60.0


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "many"])
def test_a_limit_is_a_positive_whole_number(value: Any) -> None:
    with pytest.raises(ConfigError, match="requests_per_minute must be a positive whole number"):
        RateLimit(requests_per_minute=value)
    with pytest.raises(ConfigError, match="tokens_per_minute must be a positive whole number"):
        RateLimit(tokens_per_minute=value)


def test_requests_pass_until_the_minute_is_full_and_again_a_minute_after_the_first() -> None:
    gate = RateGate("x", RateLimit(requests_per_minute=2))
    for now in (0.0, 10.0):
        assert gate.ready_at(now, 5) == now
        gate.take(now, 5)
    assert gate.ready_at(20.0, 5) == MINUTE
    assert gate.ready_at(MINUTE, 5) == MINUTE
    gate.take(MINUTE, 5)
    assert gate.ready_at(MINUTE, 5) == MINUTE + 10.0


def test_tokens_count_at_their_bound_until_the_reply_says_less() -> None:
    gate = RateGate("x", RateLimit(tokens_per_minute=1_000))
    charge = gate.take(0.0, 800)
    assert gate.ready_at(1.0, 300) == MINUTE
    gate.correct(charge, 100)
    assert gate.ready_at(1.0, 300) == 1.0
    assert gate.ready_at(1.0, 901) == MINUTE


def test_what_is_in_flight_may_turn_out_to_be_free() -> None:
    gate = RateGate("x", RateLimit(tokens_per_minute=1_000))
    gate.correct(gate.take(0.0, 600), 600)
    gate.take(30.0, 400)
    assert gate.ready_at(31.0, 700) == 90.0
    assert gate.earliest(31.0, 700) == MINUTE
    assert gate.earliest(31.0, 400) == 31.0
    gate = RateGate("x", RateLimit(tokens_per_minute=1_000))
    gate.take(0.0, 400)
    gate.correct(gate.take(30.0, 600), 600)
    assert gate.earliest(31.0, 700) == 90.0


def test_a_request_larger_than_the_limit_passes_when_it_has_the_minute_for_itself() -> None:
    gate = RateGate("x", RateLimit(tokens_per_minute=100))
    assert gate.ready_at(0.0, 5_000) == 0.0
    charge = gate.take(0.0, 5_000)
    assert gate.ready_at(0.0, 1) == MINUTE
    gate.correct(charge, 150)  # more than a minute's worth: nothing else fits beside it
    assert gate.ready_at(0.0, 1) == MINUTE


def test_a_correction_after_the_minute_changes_nothing() -> None:
    gate = RateGate("x", RateLimit(tokens_per_minute=100))
    late = gate.take(0.0, 100)
    assert gate.ready_at(MINUTE, 100) == MINUTE
    gate.correct(late, 10)
    gate.take(MINUTE, 100)
    assert gate.ready_at(MINUTE, 1) == 2 * MINUTE


arrivals = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.25, 1.0, 7.5, 30.0, 59.5, 61.0]),  # seconds since the last one
        st.integers(1, 150),  # its bound
        st.none() | st.floats(0.0, 1.0),  # the part of it that it will have used
    ),
    max_size=60,
)


@given(arrivals, st.integers(1, 8), st.integers(1, 400))
def test_no_minute_ever_holds_more_than_the_limit_and_nobody_waits_too_long(
    arrivals: list[tuple[float, int, float | None]], requests: int, tokens: int
) -> None:
    gate = RateGate("x", RateLimit(requests, tokens))
    passed: list[tuple[float, int]] = []
    now = 0.0
    for pause, bound, part in arrivals:
        now += pause
        ready = gate.ready_at(now, bound)
        assert gate.earliest(now, bound) <= ready
        if ready > now:  # exactly then, and not a moment earlier
            assert gate.ready_at((now + ready) / 2, bound) == ready
            now = ready
            assert gate.ready_at(now, bound) == now
        charge = gate.take(now, bound)
        counted = min(bound, tokens)
        if part is not None:
            counted = int(counted * part)
            gate.correct(charge, counted)
        passed.append((now, counted))
        recent = [each for at, each in passed if now - MINUTE < at]
        assert len(recent) <= requests
        assert sum(recent) <= tokens
