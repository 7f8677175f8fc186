"""Plain lines for what is not every run's business: retries, the journal, tools, divergence."""

import io
from typing import Any

from rlm.events import (
    CallEnded,
    CallRetried,
    CellEnded,
    Compacted,
    Diverged,
    Event,
    ModelReplied,
    Planned,
    ToolCalled,
)
from rlm.messages import Usage
from rlm.records.recorders.console import ConsoleRecorder
from tests.cli.test_progress import ended, started

PAID = Usage(100, 10, cost_usd=0.01, requests=1)
CALL: dict[str, Any] = {"kind": "llm", "model": "a/b"}


def lines(events: list[Event]) -> list[str]:
    stream = io.StringIO()
    recorder = ConsoleRecorder(stream)
    for event in events:
        recorder.record(event)
    assert not recorder._tallies
    return stream.getvalue().splitlines()


def test_a_cell_reports_the_outcome_of_its_calls() -> None:
    again: dict[str, Any] = {"attempt": 1, "wait_seconds": 1.0, "error": "busy", "model": "a/b"}
    shown = lines(
        [
            started("root"),
            CallRetried(run_id="root", call_id="root.1", **again),
            CallEnded(run_id="root", call_id="root.1", error="no", **CALL),
            CallEnded(run_id="root", call_id="root.2", stored=True, usage=PAID, **CALL),
            ToolCalled(run_id="root", call_id="root.3", name="look", arguments={}),
            CellEnded(run_id="root", cell=1, seconds=1, calls=2),
            CellEnded(run_id="root", cell=2, seconds=1, calls=1),
            ended("root"),
        ]
    )
    assert shown[1:3] == [
        "  cell 1: 1.00 s, 2 calls (1 failed, 1 stored, 1 retry), 1 tool call",
        "  cell 2: 1.00 s, 1 call",
    ]


def test_the_last_line_counts_free_replies_of_the_whole_tree() -> None:
    shown = lines(
        [
            started("root"),
            ModelReplied(run_id="root", purpose="step", model="a/b", stored=True, usage=PAID),
            started("child", "root", 1),
            CallEnded(run_id="child", call_id="1", stored=True, usage=PAID, **CALL),
            CallEnded(run_id="child", call_id="2", stored=True, usage=Usage(), **CALL),
            ended("child", "root", 1),
            ended("root"),
        ]
    )
    assert ", $0.2500, 1 reply from the journal for free, 1.50 s" in shown[-2]
    assert ", $0.2500, 2 replies from the journal for free, 1.50 s" in shown[-1]


def test_a_run_resumed_after_a_kill_starts_counting_again() -> None:
    replied = ModelReplied(run_id="root", purpose="step", model="a/b", stored=True, usage=PAID)
    shown = lines([started("root"), replied, started("root"), replied, ended("root")])
    assert "1 reply from the journal" in shown[-1]


def test_divergence_and_compaction_are_reported() -> None:
    shown = lines(
        [
            started("root"),
            Diverged(run_id="root", step=2, recorded="secret", now="other"),
            Compacted(
                run_id="root",
                messages_before=41,
                messages_after=3,
                chars_before=9,
                chars_after=2,
            ),
            ended("root"),
        ]
    )
    assert shown[1].startswith("  cells of step 2 printed something different this time")
    assert shown[2] == "  the history was shortened from 41 messages to 3"
    assert "secret" not in "\n".join(shown)


def test_the_size_of_pieces_is_stated_as_the_most_that_one_has() -> None:
    """They have different sizes; a single one may be far smaller."""
    planned = Planned(
        run_id="root", strategy="mapreduce", reason="it is large", pieces=1, piece_chars=60_000
    )
    assert lines([started("root"), planned, ended("root")])[1] == (
        "  mapreduce: it is large; 1 piece of at most 60,000 characters"
    )
