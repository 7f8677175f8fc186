"""A run described in lines: the text of each event, and text that cells send ahead."""

from pathlib import Path

import pytest

from rlm import events
from rlm.events import CellEnded, CellStarted, RunStarted
from rlm.server.answering import _rest
from rlm.server.progress import MAX_PROGRESS_LINES, Outbox, ProgressRecorder
from rlm.testing.scripted import ScriptedClient
from rlm.wiring.registry import make_environment
from tests.server.serving import WITH_REPL, server


def _started(depth: int) -> RunStarted:
    return RunStarted(
        run_id="r",
        depth=depth,
        query="what\x1b[31m is\nit?",
        model="m",
        sub_model="m",
        strategy="rlm",
        environment="local",
        context_kind="text",
        context_bytes=1,
        context_sha256="0",
        context_description="a str of 1 character",
    )


def test_lines_are_short_and_harmless() -> None:
    said: list[str] = []
    narrator = ProgressRecorder(said.append)
    narrator.record(_started(0))
    narrator.record(_started(1))
    narrator.record(CellStarted(run_id="r", step=2, cell=1, code="# why\n\nx = llm_query('a')\n"))
    narrator.record(CellEnded(run_id="r", step=2, cell=1, seconds=1.0, calls=3))
    narrator.record(
        CellEnded(
            run_id="r",
            step=3,
            cell=1,
            seconds=1.0,
            calls=0,
            error_type="NameError",
            error_message="no x",
        )
    )
    narrator.record(CellEnded(run_id="r", step=4, cell=1, seconds=1.0, calls=0))
    assert said == [
        "Run r: the context is a str of 1 character",
        "  Child run: what\\x1b[31m is it?",
        "Step 2: running x = llm_query('a')",
        "Step 2: 3 calls",
        "Step 3: NameError: no x",
    ]


async def test_unread_progress_is_bounded_and_answers_are_not() -> None:
    outbox = Outbox()
    for number in range(10 * MAX_PROGRESS_LINES):
        outbox.progress(f"line {number}")
        outbox.content("x")
    portion = await outbox.take(1.0)
    assert portion is not None
    assert len(portion.progress.splitlines()) == MAX_PROGRESS_LINES
    assert portion.progress.endswith(f"line {10 * MAX_PROGRESS_LINES - 1}\n")
    assert len(portion.content) == 10 * MAX_PROGRESS_LINES
    assert await outbox.take(0.01) is None


@pytest.mark.parametrize(
    ("told", "answer", "rest"),
    [
        ("", "all", "all"),
        ("al", "all", "l"),
        ("all", "all", ""),
        ("one two", "two", ""),
        ("one ", "two", "two"),
        ("one", "", ""),
    ],
)
def test_streamed_text_and_the_remainder_make_up_the_answer(
    told: str, answer: str, rest: str
) -> None:
    assert _rest(told, answer) == rest


@pytest.mark.skipif(
    not hasattr(events, "OutputStreamed"), reason="no environment streams text in this version"
)
async def test_text_streamed_by_a_cell_precedes_the_answer(tmp_path: Path) -> None:
    code = "```repl\nstream_output('one ')\nstream_output('two ')\nFINAL('one two three')\n```"
    environments = {"local": make_environment("local", {}), "agent": make_environment("agent", {})}
    async with server(tmp_path, ScriptedClient([code]), environments=environments) as client:
        chunks = await client.chunks(
            {
                "model": WITH_REPL,
                "messages": [{"role": "user", "content": "count"}],
                "rlm": {"context": "x", "environment": "agent"},
            }
        )
    pieces = [c["choices"][0]["delta"].get("content") for c in chunks if c.get("choices")]
    assert "".join(filter(None, pieces)) == "one two three"
    assert len(list(filter(None, pieces))) > 1
