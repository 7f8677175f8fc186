"""Events in any order, also in orders that no engine would tell: for property tests."""

from typing import Any

from hypothesis import strategies as st

from rlm.events import (
    BudgetChanged,
    CallEnded,
    CallRetried,
    CallStarted,
    CellEnded,
    CellOutput,
    CellStarted,
    Compacted,
    DataRead,
    Diverged,
    Event,
    ModelAsked,
    ModelReplied,
    RunEnded,
    RunStarted,
    SessionLost,
    SessionOpened,
    StepStarted,
    ToolCalled,
)
from rlm.messages import Usage

texts = st.text(max_size=8)
counts = st.integers(0, 9)
usages = st.builds(
    Usage, counts, counts, counts, counts, st.none() | st.floats(0, 1), counts, counts
)
own: dict[str, Any] = {
    "run_id": st.sampled_from(["a", "b", "c"]),
    "parent_id": st.sampled_from(["a", "b", "c", None]),
    "depth": st.integers(0, 3),
    "step": st.integers(0, 3),
    "model": st.just("a/b") | texts,
    "call_id": st.sampled_from(["1", "2"]),
    "usage": st.none() | usages,
    "error": st.none() | texts,
    "cell": counts,
}


def of(kind: Any, **more: Any) -> st.SearchStrategy[Any]:
    given = {name: each for name, each in own.items() if name in kind.__struct_fields__}
    return st.builds(kind, **{**given, **more})


structural: st.SearchStrategy[Event] = st.one_of(
    of(RunStarted, parent_call_id=st.sampled_from([None, "1", "2"])),
    of(RunEnded, usage=usages),
    of(CallStarted),
    of(CallEnded),
)
others: st.SearchStrategy[Event] = st.one_of(
    of(CallRetried, call_id=st.sampled_from([None, "1", "2"])),
    of(ModelAsked, new_messages=st.just(())),
    of(ModelReplied, tool_calls=st.just(())),
    of(DataRead, count=counts, bytes=counts),
    of(ToolCalled, arguments=st.dictionaries(texts, texts, max_size=2)),
    *(of(kind) for kind in (StepStarted, BudgetChanged, Compacted, CellStarted, CellOutput)),
    *(of(kind) for kind in (CellEnded, Diverged, SessionLost, SessionOpened)),
)
many_events = st.lists(structural | others, min_size=25, max_size=50)
"""Half of them open or close something, so that odd nestings are common."""
