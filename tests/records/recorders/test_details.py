"""What `verbose` shows of a run, with and without colours."""

import io
import re

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rlm.events import (
    CellEnded,
    CellOutput,
    CellStarted,
    DataRead,
    Event,
    ModelReplied,
    RunEnded,
)
from rlm.records.recorders._details import Details
from rlm.records.recorders.console import CONTROL
from tests.cli.test_progress import ended

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
OBEYED = re.compile(r"\x1b(?!\[[0-9;]*m)")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def coloured(monkeypatch: pytest.MonkeyPatch) -> Details:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Details(Terminal())


def replied(text: str, purpose: str = "step") -> ModelReplied:
    return ModelReplied(run_id="root", step=2, purpose=purpose, model="a/b", text=text)


def failed(traceback: str | None, message: str = "no") -> CellEnded:
    return CellEnded(
        run_id="root",
        step=2,
        cell=1,
        seconds=1,
        calls=0,
        error_type="ValueError",
        error_message=message,
        traceback=traceback,
    )


def data(method: str, **facts: object) -> DataRead:
    return msgspec.convert(
        {
            "type": "data_read",
            "run_id": "root",
            "step": 2,
            "cell": 1,
            "method": method,
            "source": "corpus",
            "source_id": "c",
            "seconds": 0.5,
            **facts,
        },
        DataRead,
    )


def test_data_reads_take_one_line_per_method() -> None:
    plain = Details(io.StringIO())
    asked = [{"text": "select 1"}, {"text": "\x1b[2J\nstep 3 \u202e" + "x" * 5_000_000}]
    assert plain.of(data("sql", count=1_200, returned=1, requests=asked[:1])) == [
        "ctx.sql: 1,200 requests, 1 row, 0.50 s: select 1"
    ]
    (line,) = plain.of(data("sql", count=2, returned=0, requests=asked))
    assert line.startswith("ctx.sql: 2 requests, 0 rows, 0.50 s: select 1 | \\x1b[2J step 3")
    assert len(line) <= 300
    documents = [{"id": 1, "name": "a", "read": 2, "ranges": [[0, 10], [20, 25]]}]
    parts = {"count": 2, "returned": 2, "documents": documents, "source_bytes": 1_000}
    assert plain.of(data("read", from_journal=2, **parts)) == [
        "ctx.read: 2 requests, 2 parts of 1 document, 15 of 1,000 bytes, 2 from the journal, 0.50 s"
    ]
    assert plain.of(data("grep", count=3, failed=1, error="not a\npattern")) == [
        "ctx.grep: 3 requests, 1 failed, 0 matching lines, 0.50 s; failed: not a pattern"
    ]


def test_prose_of_a_reply_is_shown_without_its_code() -> None:
    plain = Details(io.StringIO())
    assert plain.of(replied("I look.\n```repl\nprint(1)\n```\nThen I see.")) == [
        "the model says in step 2, run root:",
        ": I look.",
        ": ",
        ": Then I see.",
    ]
    assert plain.of(replied("```repl\nprint(1)\n```")) == []
    assert plain.of(replied("I sum up.", "compaction")) == []
    long = plain.of(replied("\n".join(f"line {n}" for n in range(100))))
    assert (len(long), long[-1]) == (32, ": … (70 more lines)")


def test_the_last_line_of_a_traceback_is_always_shown() -> None:
    plain = Details(io.StringIO())
    long = "Traceback\n" + "\n".join(f"  frame {n}" for n in range(500)) + "\nValueError: no"
    shown = plain.of(failed(long))
    assert len(shown) == 1 + 12
    assert shown[0] == "cell 1 of step 2, run root, failed:"
    assert shown[-1] == "! ValueError: no"
    assert plain.of(failed("cut off somewhere"))[-1] == "! ValueError: no"
    assert plain.of(failed(None))[1:] == ["! ValueError: no"]
    assert plain.of(CellEnded(run_id="root", cell=1, seconds=1, calls=0)) == []


def test_code_and_failures_are_coloured(coloured: Details) -> None:
    head, code = coloured.of(CellStarted(run_id="root", step=2, cell=1, code="x = 1"))
    assert head == "\x1b[2mcell 1 of step 2, run root, runs:\x1b[0m"
    assert code.startswith("\x1b[2m> \x1b[0m")
    assert "\x1b[94m1\x1b[0m" in code
    assert coloured.of(failed(None))[-1] == "\x1b[1;91m! ValueError: no\x1b[0m"


def test_colours_can_be_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as changed:
            changed.setenv("TERM", "xterm-256color")
            changed.setenv(name, value)
            assert "\x1b" not in "".join(Details(Terminal()).of(failed(None)))


@given(st.text(max_size=200))
@example("\t0")
@example("if x:\n\ty = 1\ta\n")
def test_colouring_changes_nothing_else(text: str) -> None:
    plain = Details(io.StringIO())
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("TERM", "xterm-256color")
        coloured = Details(Terminal())
    events: list[Event] = [
        replied(text),
        CellStarted(run_id=text, step=1, cell=1, code=text),
        CellOutput(run_id=text, step=1, cell=1, stream="stdout", text=text, written_chars=1),
        failed(text, text),
        ended("root"),
    ]
    for event in events:
        lines, painted = plain.of(event), coloured.of(event)
        assert [COLOURS.sub("", line).rstrip() for line in painted] == [
            line.rstrip() for line in lines
        ]
        assert not any(OBEYED.search(line) for line in painted)
        assert not any(CONTROL.search(line) for line in lines)
        assert not any(isinstance(event, RunEnded) for _ in lines)
