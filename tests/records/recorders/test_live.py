"""The live tree: it fits every terminal, tells what matters first, and breaks nothing."""

import io
import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from rlm.events import (
    CallEnded,
    CallRetried,
    CallStarted,
    CellStarted,
    Diverged,
    Event,
    ModelReplied,
    OutputStreamed,
    RunEnded,
    SessionLost,
    StepStarted,
)
from rlm.messages import Usage
from rlm.records.recorders._progress import Progress
from rlm.records.recorders.live import (
    PLAIN,
    PRETTY,
    Drawing,
    Line,
    LiveRecorder,
    Screen,
    age,
    shortly,
)
from tests.cli.scripts import HOSTILE
from tests.cli.test_progress import Terminal, calls, ended, started
from tests.records.recorders.any_events import many_events
from tests.records.recorders.terminal import TinyTerminal, shown

PAID = Usage(100, 10, cost_usd=0.01, requests=1)
WIDE = "第一章をすべて読んで、日付と人名を列挙してください。"
texts = st.text(max_size=60) | st.sampled_from(
    [HOSTILE, WIDE, "مرحبا بالعالم 123 שלום", "e\u0301" * 40]
)


def tree(
    events: list[Event], columns: int = 100, rows: int = 25, glyphs: Any = PRETTY
) -> list[str]:
    """The lines of the tree 10 seconds after these events."""
    progress = Progress()
    for event in events:
        progress.add(event)
    drawing = Drawing(progress, 10 + max(event.monotonic_time for event in events), columns, glyphs)
    return [line.plain for line in drawing.lines(rows, 0.0, [])]


def busy(run_id: str = "root", parent: str | None = None, depth: int = 0) -> list[Event]:
    """A run in its second step, with four calls open and two done."""
    own: dict[str, Any] = {"parent_id": parent, "depth": depth}
    return [
        started(run_id, parent, depth),
        StepStarted(run_id=run_id, step=2, **own),
        CellStarted(run_id=run_id, step=2, cell=1, code="x", **own),
        *calls(run_id, 6, 2),
    ]


def three_deep(children: int = 12, grandchildren: int = 4) -> list[Event]:
    events = busy()
    for child in range(children):
        events += busy(f"child-{child:02}", "root", 1)
        for grand in range(grandchildren):
            events += busy(f"grand-{child:02}-{grand}", f"child-{child:02}", 2)
    return events


# -- what is told ---------------------------------------------------------------------------------


def test_the_first_line_sums_up_the_whole_tree() -> None:
    head = tree(three_deep(3, 2), columns=200)[0]
    assert " 10 s · 40 calls open · 300 tokens · $0.0200 · 9 child runs · a/b · run root" in head


def test_a_narrow_terminal_shows_the_same_more_briefly() -> None:
    lines = tree(three_deep(), columns=39, rows=14)
    assert lines[0][2:] == "10 s · 244 open · 1k tokens · $0.12"
    assert lines[1] == "└─ step 2 · cell 1 · 2/6 calls · 10 s"
    assert lines[2] == "   ├─ step 2 · cell 1 · 2/6 calls"
    assert lines[3] == "   │  ├─ step 2 · cell 1 · 2/6 calls"
    assert lines[-1] == "   └─ and 10 more child runs"


def test_the_slowest_open_call_is_shown_with_the_beginning_of_its_prompt() -> None:
    events = busy()[:3]
    for number, prompt in enumerate(["first", "Read\nchapter  2", "third"]):
        about: dict[str, Any] = {"call_id": str(number), "kind": "llm", "model": "a/b"}
        events.append(CallStarted(run_id="root", **about, prompt=prompt * (1 + 99 * number)))
    over = CallEnded(run_id="root", call_id="0", kind="llm", model="a/b")
    assert tree([*events, over])[1].endswith(
        " · slowest 10 s: Read chapter 2Read chapter 2Read cha…"
    )


def test_a_child_run_is_not_shown_as_a_slow_call() -> None:
    call = CallStarted(run_id="root", call_id="1", kind="rlm", model="a/b", prompt="read")
    lines = tree([*busy()[:3], call, *busy("child", "root", 1)], rows=6)
    assert lines[1] == "└─ step 2 · cell 1 · 0 of 1 call done, 1 open · 10 s"
    assert " · 4 calls open · " in lines[0]


def test_retries_are_counted_for_the_run_and_for_the_tree() -> None:
    def again(call_id: str | None) -> CallRetried:
        about: dict[str, Any] = {"attempt": 2, "wait_seconds": 1.0, "error": "busy"}
        return CallRetried(run_id="root", model="a/b", call_id=call_id, **about)

    lines = tree([*busy(), again("root.4"), again("root.5")])
    assert "4 open, 2 retries" in lines[1]
    assert " · 2 retries · " in lines[0]
    assert "asking again (try 2 failed)" in tree([*busy(), again(None)])[1]


def test_replies_of_the_journal_and_of_the_cache_are_distinguished() -> None:
    about: dict[str, Any] = {"run_id": "root", "kind": "llm", "model": "a/b", "stored": True}
    events: list[Event] = [
        started("root"),
        ModelReplied(run_id="root", purpose="step", model="a/b", usage=PAID, stored=True),
        CallEnded(call_id="1", usage=PAID, **about),
        CallEnded(call_id="2", usage=Usage(cost_usd=0.0), **about),
    ]
    assert " · 2 replies from the journal, free · 1 from the cache · " in tree(events)[0]
    assert " · 2 from the journal" in tree(events, columns=60)[0]


def test_the_last_line_says_how_many_replies_were_free() -> None:
    terminal = Terminal()
    child: dict[str, Any] = {"parent_id": "root", "depth": 1, "kind": "llm", "model": "a/b"}
    events: list[Event] = [
        started("root"),
        ModelReplied(run_id="root", purpose="step", model="a/b", usage=PAID, stored=True),
        started("child", "root", 1),
        CallEnded(run_id="child", call_id="1", usage=PAID, stored=True, **child),
        ended("child", "root", 1),
        Diverged(run_id="root", step=1, recorded="1", now="2"),
        ended("root"),
    ]
    with LiveRecorder(terminal) as live:
        for event in events:
            live.record(event)
    diverged, last = shown(terminal.getvalue(), 200, 24)
    assert diverged.startswith("cells of step 1 printed something different this time; ")
    assert last.endswith("1,200 tokens, $0.2500, 2 replies from the journal for free, 1.50 s")


def test_calls_that_outlive_their_cell_are_still_counted() -> None:
    events = [*busy(), CellStarted(run_id="root", step=2, cell=2, code="y")]
    assert "cell 2 · 0 of 4 calls done, 4 open" in tree(events)[1]
    late = CallEnded(run_id="root", call_id="root.5", kind="llm", model="a/b")
    assert "cell 2 · 1 of 4 calls done, 3 open" in tree([*events, late])[1]
    unknown = CallEnded(run_id="root", call_id="nobody", kind="llm", model="a/b")
    assert "cell 2 · 0 of 4 calls done, 4 open" in tree([*events, unknown])[1]


def test_a_run_that_ends_takes_its_open_calls_and_children_with_it() -> None:
    progress = Progress()
    for event in [*three_deep(3, 2), ended("child-00", "root", 1)]:
        progress.add(event)
    assert (progress.requests_open, progress.child_runs) == (7 * 4, 6)
    progress.add(ended("root"))
    assert (progress.requests_open, progress.child_runs) == (0, 0)
    assert not progress.roots
    assert not progress._runs


@given(many_events)
def test_totals_are_consistent_for_any_events(events: list[Event]) -> None:
    progress = Progress()
    for event in events:
        progress.add(event)
        Drawing(progress, event.monotonic_time, 80, PRETTY).lines(24, 0.0, [])
        runs = list(progress._runs.values())
        waiting = [call for run in runs for call in run.open_calls.values() if call.is_request]
        assert progress.requests_open == len(waiting)
        assert progress.child_runs == sum(len(run.children) for run in runs)
        assert progress.child_runs + len(progress.roots) == len(runs)
    for run_id in ("a", "b", "c"):
        progress.add(ended(run_id))
    assert not progress._runs


def test_a_run_resumed_after_a_kill_is_drawn_from_its_start() -> None:
    lines = tree([*three_deep(2, 2), started("root")])
    assert len(lines) == 2
    assert lines[1] == "└─ starting · 10 s"


def test_concurrent_runs_are_shown_side_by_side() -> None:
    lines = tree([*busy("first-run"), *busy("second-run")])
    assert lines[1].startswith("├─ run st-run · step 2 · cell 1 · ")
    assert lines[2].startswith("└─ run nd-run · step 2 · cell 1 · ")


def test_without_unicode_the_tree_is_ascii() -> None:
    lines = tree(three_deep(), glyphs=PLAIN)
    assert all(line.isascii() for line in lines)
    assert lines[1].startswith("`- step 2 - cell 1 - 2 of 6 calls done, 4 open")


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0 s"), (119.9, "119 s"), (125, "2 m 05 s"), (7_320, "2 h 02 m")]
)
def test_ages_are_short(seconds: float, text: str) -> None:
    assert age(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"), [(999, "999"), (12_345, "12k"), (999_999, "999k"), (3_450_000, "3.5M")]
)
def test_large_numbers_are_abbreviated(number: int, text: str) -> None:
    assert shortly(number) == text


# -- it always fits -------------------------------------------------------------------------------


@given(st.integers(1, 150), st.integers(1, 40), st.integers(0, 30), st.integers(0, 5), texts)
def test_no_tree_is_larger_than_its_terminal(
    columns: int, rows: int, children: int, grandchildren: int, text: str
) -> None:
    events = three_deep(children, grandchildren)
    about: dict[str, Any] = {"call_id": "slow", "kind": "llm", "model": text}
    events.insert(3, CallStarted(run_id="root", **about, prompt=text))
    lines = tree([*events, started(text, "root", 1, model=text)], columns, rows)
    assert 1 <= len(lines) <= rows
    assert max(cell_len(line) for line in lines) <= columns
    assert not any("\n" in line for line in lines)


def test_every_run_is_shown_or_counted() -> None:
    for rows in range(3, 40):
        lines = tree(three_deep(12, 0), rows=rows)
        named = sum(line.startswith(("   ├─ child ", "   └─ child ")) for line in lines)
        folded = next((line for line in lines if "more child" in line), "and 0")
        assert named + int(folded.split("and ")[1].split()[0]) == 12


# -- the terminal ---------------------------------------------------------------------------------


class Resized(Screen):
    """A screen whose terminal is the tiny one."""

    def __init__(self, terminal: TinyTerminal) -> None:
        self.written = Terminal()
        super().__init__(self.written)
        self.terminal = terminal

    def size(self) -> tuple[int, int]:
        return self.terminal.columns, self.terminal.rows

    def show(self, above: list[str], lines: list[str]) -> None:
        self.draw(above, [Line(line) for line in lines])
        self.terminal.feed(self.written.getvalue())
        self.written.seek(0)
        self.written.truncate()


visible = st.characters(categories=["L", "N", "P", "S"]).filter(lambda each: cell_len(each) > 0)
printable = st.text(visible, min_size=1, max_size=60)
frames = st.tuples(st.lists(printable, max_size=2), st.lists(printable, max_size=9))


@given(st.lists(frames, min_size=1, max_size=6))
def test_only_the_last_frame_and_permanent_lines_remain_visible(
    pictures: list[tuple[list[str], list[str]]],
) -> None:
    screen = Resized(TinyTerminal(200, 10))
    kept: list[str] = []
    for above, lines in pictures:
        kept += above
        screen.show(above, lines)
        assert screen.terminal.lines() == [*kept, *lines]
        assert screen.terminal.cursor_shown
        assert screen.terminal.wraps


def test_a_row_of_uncertain_width_moves_no_other_row() -> None:
    screen = Resized(TinyTerminal(10, 10))
    for _ in range(3):
        screen.show([], ["head", "x" * 30, "foot"])
        assert screen.terminal.lines() == ["head", "x" * 10, "foot"]


def test_rows_wrapped_by_a_narrowed_terminal_are_erased() -> None:
    screen = Resized(TinyTerminal(40, 10))
    screen.show([], ["a" * 30, "b" * 5])
    narrow = TinyTerminal(20, 10)  # which is how terminals keep what they show
    narrow.feed("a" * 20 + "\n" + "a" * 10 + "\n" + "b" * 5)
    screen.terminal = narrow
    screen.show([], ["c", "d"])
    assert narrow.lines() == ["c", "d"]


def test_characters_the_terminal_cannot_encode_are_replaced() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="latin-1")
    with LiveRecorder(stream) as live:
        live.record(started("root"))
        live.record(SessionLost(run_id="root", reason=WIDE))
        live.record(ended("root"))
    stream.flush()
    assert "the session was lost: ????" in raw.getvalue().decode("latin-1")
    assert "run root ended: answer" in raw.getvalue().decode("latin-1")


@pytest.mark.parametrize("error", [BrokenPipeError(), ValueError("closed")])
def test_a_terminal_that_disappears_does_not_end_the_run(error: Exception) -> None:
    class Broken(Terminal):
        writes = 0

        def write(self, _: str) -> int:
            self.writes += 1
            raise error

    stream = Broken()
    with LiveRecorder(stream) as live:
        live.record(SessionLost(run_id="root", reason="killed"))
        live._stop.set()
    assert stream.writes == 1


def test_an_exception_restores_the_terminal() -> None:
    def fails() -> None:
        with LiveRecorder(terminal) as live:
            for event in three_deep():
                live.record(event)
            live._screen.draw([], live.lines(80, 24))
            raise RuntimeError("boom")

    terminal = Terminal()
    with pytest.raises(RuntimeError, match="boom"):
        fails()
    assert "calls open" in terminal.getvalue()
    assert shown(terminal.getvalue(), 80, 24) == []


def test_the_terminal_is_usable_after_each_write() -> None:
    """Also the last one before a kill that nothing can catch."""
    terminal = Terminal()
    screen = Screen(terminal)
    written: list[str] = []
    for event_count in (0, 3, 60):
        live = LiveRecorder(terminal)
        for event in three_deep()[:event_count]:
            live.record(event)
        screen.draw(["a line"], live.lines(80, 24))
        written.append(terminal.getvalue())
    for so_far in written:
        assert so_far.rindex("\x1b[?25h") > so_far.rindex("\x1b[?25l")
        assert so_far.rindex("\x1b[?7h") > so_far.rindex("\x1b[?7l")


def test_the_terminal_size_is_read_before_each_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter([os.terminal_size((40, 15)), os.terminal_size((0, 0))])
    monkeypatch.setattr(os, "get_terminal_size", lambda _: next(sizes))
    monkeypatch.setattr(Terminal, "fileno", lambda _: 1, raising=False)
    screen = Screen(Terminal())
    assert screen.size() == (40, 15)
    assert screen.size() == (80, 24)


def test_lines_kept_for_a_stopped_terminal_are_bounded() -> None:
    live = LiveRecorder(Terminal())
    for _ in range(20_000):
        live.record(SessionLost(run_id="root", reason="again"))
    assert len(live._printed()) == 10_000


def everything(text: str) -> Iterator[Event]:
    yield started(text, model=text)
    yield CallStarted(run_id=text, call_id=text, kind="llm", model=text, prompt=text)
    yield Diverged(run_id=text, recorded=text, now=text)
    yield SessionLost(run_id=text, reason=text)
    yield started("child" + text, text, 1, model=text)


@given(texts)
def test_no_text_can_break_the_terminal(text: str) -> None:
    terminal = Terminal()
    live = LiveRecorder(terminal, verbose=True)
    live.note(text)
    for event in everything(text):
        live.record(event)
    live._screen.draw(live._printed(), live.lines(80, 24))
    end: RunEnded = ended(text)
    live.record(end)
    live._screen.draw(live._printed(), [])
    lines = shown(terminal.getvalue(), 1_000, 24)
    assert len(lines) == 3
    assert lines[-1].startswith("run ")


def test_a_streamed_answer_is_shown_until_the_run_ends() -> None:
    live = LiveRecorder(Terminal())
    live.record(started("root"))
    for piece in ("It opens at ", "05:40.\nNot \x1b[2J", "before.", "x" * 200):
        live.record(OutputStreamed(run_id="root", text=piece))
    drawn = [line.plain for line in live.lines(60, 24)]
    assert "It opens at 05:40." in drawn
    assert any(line.startswith("Not \\x1b[2Jbefore.xxx") for line in drawn)
    assert len(drawn) <= 23
    assert all(len(line) < 60 for line in drawn)
    assert len(live.lines(60, 6)) <= 5
    live.record(ended("root"))
    assert "It opens at 05:40." not in [line.plain for line in live.lines(60, 24)]
