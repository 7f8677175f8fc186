"""Progress, fed with events: readable with many calls and children, harmless with any text."""

import io
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rlm.events import (
    CallEnded,
    CallStarted,
    CellEnded,
    CellOutput,
    CellStarted,
    Event,
    ModelAsked,
    ModelReplied,
    RunEnded,
    RunStarted,
    SessionLost,
    StepStarted,
)
from rlm.messages import Usage
from rlm.records.recorders.console import CONTROL, ConsoleRecorder, harmless, one_line
from rlm.records.recorders.live import LiveRecorder
from tests.cli.scripts import HOSTILE
from tests.records.recorders.terminal import OURS, shown

texts = st.text() | st.text(alphabet="\x1b[]()0;m\x07\r\n\t\u202eab/") | st.just(HOSTILE)


def started(run_id: str, parent_id: str | None = None, depth: int = 0, **facts: Any) -> RunStarted:
    given: dict[str, Any] = {
        "query": "?",
        "model": "a/b",
        "sub_model": "a/b",
        "strategy": "rlm",
        "environment": "local",
        "context_kind": "text",
        "context_bytes": 1_000,
        "context_sha256": "0",
        "context_description": "",
    }
    return RunStarted(run_id=run_id, parent_id=parent_id, depth=depth, **{**given, **facts})


def ended(run_id: str, parent_id: str | None = None, depth: int = 0, **facts: Any) -> RunEnded:
    given: dict[str, Any] = {
        "stop_reason": "answer",
        "answer_source": "submitted",
        "answer": "4",
        "steps": 2,
        "usage": Usage(1_000, 200, cost_usd=0.25, requests=3),
        "seconds": 1.5,
    }
    return RunEnded(run_id=run_id, parent_id=parent_id, depth=depth, **{**given, **facts})


class Terminal(io.StringIO):
    encoding = "utf-8"


def tree(events: list[Event]) -> list[str]:
    """The lines of the live tree after these events."""
    recorder = LiveRecorder(Terminal())
    for event in events:
        recorder.record(event)
    return [line.plain for line in recorder.lines(100, 25)]


def calls(run_id: str, count: int, done: int, failed: int = 0) -> Iterator[Event]:
    for number in range(count):
        about: dict[str, Any] = {"call_id": f"{run_id}.{number}", "kind": "llm", "model": "a/b"}
        yield CallStarted(run_id=run_id, **about, prompt="p")
        if number < done:
            usage = Usage(10, 5, cost_usd=0.001, requests=1)
            error = "no" if number < failed else None
            yield CallEnded(run_id=run_id, **about, usage=usage, error=error)


def test_sixty_four_calls_take_one_line() -> None:
    lines = tree(
        [
            started("root"),
            StepStarted(run_id="root", step=3),
            CellStarted(run_id="root", step=3, cell=1, code="x"),
            *calls("root", 64, 12, failed=2),
        ]
    )
    assert len(lines) == 2
    assert " · 52 calls open · 180 tokens · $0.0120 · a/b · run root" in lines[0]
    assert lines[1].startswith("└─ step 3 · cell 1 · 12 of 64 calls done, 52 open, 2 failed · ")
    assert lines[1].endswith(" · slowest 0 s: p")


def test_grandchildren_fit_on_a_screen() -> None:
    events: list[Event] = [started("root"), StepStarted(run_id="root", step=1)]
    for child in range(12):
        events.append(started(f"child-{child}", "root", 1))
        events += [started(f"grand-{child}-{n}", f"child-{child}", 2) for n in range(4)]
    events += [ended("child-11", "root", 1), ended("grand-0-0", "child-0", 2)]
    lines = tree(events)
    assert len(lines) == 2 + 5 + 16 + 1 == 25 - 1
    assert lines[-1] == "   └─ and 6 more child runs, 1 done"
    assert lines[2].startswith("   ├─ child hild-0 · starting · ")
    assert lines[3].startswith("   │  ├─ child nd-0-1")
    assert lines[5] == "   │  └─ and 1 more child run, 1 done"


def test_the_current_activity_of_a_run_is_shown() -> None:
    events: list[Event] = [started("root")]
    assert "starting" in tree(events)[1]
    asked = ModelAsked(
        run_id="root",
        step=2,
        purpose="compaction",
        model="a/b",
        new_messages=(),
        message_count=1,
        max_output_tokens=1,
    )
    assert "shortening its history" in tree([*events, asked])[1]
    replied = ModelReplied(
        run_id="root", purpose="step", model="a/b", usage=Usage(7, 1, requests=1)
    )
    assert " · 8 tokens · a/b" in tree([*events, replied])[0]  # an unknown cost is not shown
    cell_ended = CellEnded(run_id="root", cell=1, seconds=0.1, calls=0)
    assert "reading the output" in tree([*events, cell_ended])[1]
    assert tree([])[0].endswith("reading the context")
    assert tree([*events, ended("root")]) == [], "nothing is read after the end"
    assert tree([*events, ended("root"), started("other")])[0].endswith("run other")


def test_the_tree_is_replaced_by_one_line_at_the_end() -> None:
    terminal = Terminal()
    with LiveRecorder(terminal) as recorder:
        recorder.record(started("root"))
        recorder.note("Stopping")
        recorder.record(ended("root", stop_reason="limit", limit="tokens"))
    assert shown(terminal.getvalue(), 200, 24) == [
        "run root ended: limit (tokens), 2 steps, 3 requests, 1,200 tokens, $0.2500, 1.50 s"
    ]


def test_the_size_of_values_is_in_units_of_what_was_given() -> None:
    """The bytes of their encoding would be those of nothing that the user has."""
    stream = io.StringIO()
    about = {"context_kind": "json", "context_description": "a dict of 2 files, name to text."}
    ConsoleRecorder(stream).record(replace(started("root"), **about))
    assert stream.getvalue() == "run root on a/b, context: a dict of 2 files, name to text\n"


def test_plain_progress_lines() -> None:
    stream = io.StringIO()
    recorder = ConsoleRecorder(stream)
    for event in [
        started("root"),
        StepStarted(run_id="root", step=1),
        CellStarted(run_id="root", cell=1, code="x"),
        *calls("root", 3, 3, failed=1),
        CellOutput(run_id="root", cell=1, stream="stdout", text="out", written_chars=3),
        CellEnded(run_id="root", cell=1, seconds=0.5, calls=3, error_type="E", error_message="m"),
        started("child", "root", 1),
        ended("child", "root", 1),
        SessionLost(run_id="root", reason="killed"),
        ended("root", steps=1),
    ]:
        recorder.record(event)
    assert stream.getvalue().splitlines() == [
        "run root on a/b, context of 1,000 bytes",
        "step 1",
        "  cell 1: 0.50 s, 3 calls (1 failed), E: m",
        "  run child on a/b, context of 1,000 bytes",
        "  run child ended: answer, 2 steps, 3 requests, 1,200 tokens, $0.2500, 1.50 s",
        "  the session was lost: killed",
        "run root ended: answer, 1 step, 3 requests, 1,200 tokens, $0.2500, 1.50 s",
    ]


def test_verbose_shows_cells_and_truncates_them() -> None:
    stream = io.StringIO()
    recorder = ConsoleRecorder(stream, verbose=True)
    recorder.record(CellStarted(run_id="root", step=2, cell=1, code="a = 1\nb = 2"))
    long = "x\n" * 10_000
    recorder.record(
        CellOutput(run_id="root", step=2, cell=1, stream="stdout", text=long, written_chars=5)
    )
    lines = stream.getvalue().splitlines()
    assert lines[:4] == [
        "    cell 1 of step 2, run root, runs:",
        "    > a = 1",
        "    > b = 2",
        "    cell 1 of step 2, run root, wrote:",
    ]
    assert len(lines) == 4 + 30 + 1
    assert lines[-1] == "    | … (20,000 characters in total)"


@pytest.mark.parametrize("error", [BrokenPipeError(), ValueError("closed")])
def test_a_broken_output_stream_does_not_end_the_run(error: Exception) -> None:
    class Broken(io.StringIO):
        writes = 0

        def write(self, _: str) -> int:
            self.writes += 1
            raise error

    stream = Broken()
    recorder = ConsoleRecorder(stream)
    recorder.record(started("root"))
    recorder.note("more")
    assert stream.writes == 1


@given(texts)
def test_harmless_escapes_control_characters(text: str) -> None:
    visible = harmless(text)
    assert CONTROL.search(visible) is None
    assert harmless(visible) == visible
    visible.encode()
    assert "\n" not in one_line(text)
    if text.isascii() and text.isprintable():
        assert visible == text


@given(texts, st.booleans())
def test_any_text_is_escaped_in_progress(text: str, verbose: bool) -> None:
    """Only our own control sequences reach the terminal, and rich reads no markup in texts."""
    events: list[Event] = [
        started(text, model=text),
        StepStarted(run_id=text, step=1),
        CellStarted(run_id=text, cell=1, code=text),
        CellOutput(run_id=text, cell=1, stream="stderr", text=text, written_chars=1),
        CellEnded(run_id=text, cell=1, seconds=1, calls=0, error_type=text, error_message=text),
        SessionLost(run_id=text, reason=text),
        ended(text, limit=text),
    ]
    plain, live = io.StringIO(), Terminal()
    with (
        ConsoleRecorder(plain, verbose=verbose) as lines,
        LiveRecorder(live, verbose=verbose) as tree,
    ):
        for recorder in (lines, tree):
            recorder.note(text)
            for event in events:
                recorder.record(event)
        drawn = [line.plain for line in tree.lines(100, 25)]
    for written in (plain.getvalue(), OURS.sub("", live.getvalue()), *drawn):
        assert CONTROL.search(written) is None
    assert all("\n" not in line for line in drawn)
    if "[bold]" in text:
        assert "[bold]" in live.getvalue()
