"""Replies that a cell had paid for when its session was lost are not paid for again."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm import RLM, Limits, ModelError, ScriptedClient
from rlm.calls.scope import SavedReplies
from rlm.engine.bridge import SUB_CALL_SYSTEM
from rlm.events import CallEnded, ModelReplied
from rlm.messages import Reply, Request
from rlm.results import RunResult
from tests.fakes import PlanEnvironment, cell

LOST = pytest.mark.parametrize("loss", ["die", "restore"])


def models(*steps: str, **options: Any) -> tuple[ScriptedClient, ScriptedClient, RLM]:
    root = ScriptedClient(steps)
    sub = ScriptedClient(rules=[("", lambda request: f"about {request.messages[-1].content}")])
    return root, sub, RLM(root, sub_model=sub, environment=PlanEnvironment(), **options)


def stored(result: RunResult) -> list[bool]:
    return [event.stored for event in result.events if isinstance(event, CallEnded)]


@LOST
async def test_replies_of_a_lost_cell_are_reused_by_the_next_cell(loss: str) -> None:
    _, sub, engine = models(
        cell(["llm", 1], ["batch", 3], [loss]), cell(["llm", 1], ["batch", 4], ["final", "x"])
    )
    result = await engine.aask("What?", "context")
    assert result.answer == "x"
    # "piece 0" was asked twice, and so was answered twice; piece 3 is new.
    assert len(sub.requests) == 5
    assert sorted(stored(result)) == [False] * 5 + [True] * 4
    assert result.usage.total.requests == 5 + result.steps


async def test_a_cell_that_merely_fails_does_not_save_its_replies() -> None:
    _, sub, engine = models(cell(["llm", 2], ["fail"]), cell(["llm", 2], ["final", "x"]))
    result = await engine.aask("What?", "context")
    assert (len(sub.requests), stored(result)) == (4, [False] * 4)


async def test_replies_lost_twice_are_still_reused() -> None:
    lost = cell(["llm", 2], ["die"])
    _, sub, engine = models(lost, lost, cell(["llm", 2], ["final", "x"]))
    result = await engine.aask("What?", "context")
    assert (len(sub.requests), stored(result)) == (2, [False] * 2 + [True] * 4)


@LOST
async def test_children_of_a_lost_cell_are_not_paid_for_again(loss: str) -> None:
    def reply(request: Request) -> str:
        is_call = request.messages[0].content == SUB_CALL_SYSTEM
        return "ok" if is_call else cell(["llm", 3], ["final", "child"])

    root = ScriptedClient([cell(["rlm", 2], [loss]), cell(["rlm", 2], ["final", "x"])])
    sub = ScriptedClient(rules=[("", reply)])
    slot, limits = PlanEnvironment(), Limits(max_depth=2)
    result = await RLM(root, sub_model=sub, environment=slot, limits=limits).aask("What?", "text")
    assert result.answer == "x"
    steps = [event for event in result.events if isinstance(event, ModelReplied) and event.depth]
    assert [event.stored for event in steps] == [False] * 2 + [True] * 2
    assert len(sub.requests) == 2 * (1 + 3)
    assert result.usage.total.requests == 2 + len(sub.requests)


async def test_a_resumed_run_does_not_pay_again_for_replies_of_a_lost_cell(tmp_path: Path) -> None:
    """The second time the session is not lost, so that there is nothing to salvage."""
    first, sub, engine = models(
        cell(["llm", 2], ["die"]),
        cell(["llm", 2]),
        journal=tmp_path,
    )
    run_id = "20261115-120000-000-abcdef01"
    with pytest.raises(ModelError):
        await engine.aask("What?", "context", run_id=run_id)
    assert (len(first.requests), len(sub.requests)) == (3, 2)
    second, other_sub, again = models(cell(["final", "x"]), journal=tmp_path)
    result = await again.aask("What?", "context", run_id=run_id)
    assert result.answer == "x"
    assert (len(second.requests), len(other_sub.requests)) == (1, 0)
    assert result.usage.total.requests == 2 + 2 + 1  # each once, though two were used twice


digests = st.sampled_from(["a", "b", "c"])


@given(st.lists(digests), st.lists(digests))
def test_each_saved_reply_is_used_once(had: list[str], wanted: list[str]) -> None:
    kept, lost = SavedReplies(), SavedReplies()
    for number, digest in enumerate(had):
        lost.add(digest, Reply(text=f"{digest}{number}"))
    kept.add_all(lost)
    found = [kept.take(digest) for digest in wanted]
    texts = [reply.text for reply in found if reply is not None]
    assert len(set(texts)) == len(texts)
    for digest in "abc":
        given_out = [text for text in texts if text.startswith(digest)]
        assert len(given_out) == min(had.count(digest), wanted.count(digest))
        assert given_out == sorted(given_out, key=lambda text: int(text[1:]))
