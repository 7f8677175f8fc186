"""Sessions: handles that only their owner can use, and budgets that hold."""

from pathlib import Path
from typing import Any

import pytest

from rlm.data.filesystem.denial import Denials
from rlm.gateway.errors import BudgetSpent, Refused
from rlm.gateway.paths import Root
from rlm.gateway.sessions import Ceilings, Sessions


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def roots(tmp_path: Path) -> list[Root]:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    return [Root(tmp_path / name, name, Denials()) for name in ("one", "two")]


@pytest.fixture
def sessions(roots: list[Root], clock: Clock) -> Sessions:
    return Sessions(roots, Ceilings(calls=3, bytes=100, seconds=50, idle_seconds=20), clock)


def test_a_session_and_its_handles_belong_to_their_principal(
    sessions: Sessions, roots: list[Root]
) -> None:
    mine = sessions.open("ada", None, {})
    other = sessions.open("mira", ["two"], {})
    handle = mine.handle_for(roots[0], ("a.txt",))
    assert mine.handle_for(roots[0], ("a.txt",)) == handle
    assert mine.handle_for(roots[1], ("a.txt",)) != handle
    assert mine.handle(handle).parts == ("a.txt",)
    assert "a.txt" not in handle
    with pytest.raises(Refused, match="no such handle"):
        other.handle(handle)
    assert sessions.get(mine.id, "ada") is mine
    for session_id, principal in [(mine.id, "mira"), (other.id, "ada"), ("s_nothing", "ada")]:
        with pytest.raises(Refused, match="unknown, or has ended"):
            sessions.get(session_id, principal)
    assert (list(mine.roots), list(other.roots)) == (["one", "two"], ["two"])


def test_ceilings_can_only_be_lowered(sessions: Sessions) -> None:
    low = sessions.open("ada", None, {"calls": 2, "bytes": 10**9, "cost_usd": 0.5})
    assert (low.ceilings.calls, low.ceilings.bytes, low.ceilings.cost_usd) == (2, 100, 0.5)
    wrong: list[dict[str, Any]] = [{"calls": "x"}, {"calls": -1}, {"calls": True}, {"lines": 1}]
    wrong += [{"bytes": float("nan")}, {"clock": 1}, {"calls": None}]
    for limits in wrong:
        with pytest.raises(Refused):
            sessions.open("ada", None, limits)
    with pytest.raises(Refused, match="there is no root 'three'; roots: one, two"):
        sessions.open("ada", ["three"], {})


def test_requests_beyond_a_ceiling_are_refused(sessions: Sessions, clock: Clock) -> None:
    one = sessions.open("ada", None, {"runs": 1})
    for _ in range(3):
        one.count_call(clock.now)
    with pytest.raises(BudgetSpent, match="all 3 calls"):
        one.count_call(clock.now)
    one.count_bytes(60)
    with pytest.raises(BudgetSpent, match="has 40 bytes left"):
        one.count_bytes(41)
    one.count_bytes(40)
    one.count_run()
    with pytest.raises(BudgetSpent, match="the only run is used"):
        one.count_run()
    left = {"calls": 0, "bytes": 0, "seconds": 50, "runs": 0, "cost_usd": None}
    assert one.left(clock.now) == left


def test_unused_sessions_end(sessions: Sessions, clock: Clock) -> None:
    idle, busy = sessions.open("ada", None, {}), sessions.open("ada", None, {})
    clock.now = 15
    busy.count_call(clock.now)
    clock.now = 21
    assert sessions.get(busy.id, "ada") is busy
    with pytest.raises(Refused):
        sessions.get(idle.id, "ada")
    busy.count_call(clock.now)
    clock.now = 40
    busy.count_call(clock.now)
    clock.now = 50
    with pytest.raises(BudgetSpent, match="time of this session"):
        busy.count_call(clock.now)
    with pytest.raises(Refused):
        sessions.get(busy.id, "ada")
    closed = sessions.open("ada", None, {})
    sessions.close(closed)
    with pytest.raises(Refused):
        sessions.get(closed.id, "ada")
