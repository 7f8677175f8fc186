"""Cells in this process: what works, what is declared missing, and what stays unchanged.

Nothing here runs a check that could hurt the process of the tests; a child runs the suite.
"""

import asyncio
import io
import json
import logging
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rlm.environments.inprocess import InProcessEnvironment
from rlm.errors import SessionDied
from rlm.testing.conformance import CHECKS
from tests.environments.conftest import FakeHost, Opener, Repl
from tests.environments.inprocess_child import is_harmless

GROUPS = list(dict.fromkeys(each.group for each in CHECKS))
ROWS = [f"{each.group}: {each.name}" for each in CHECKS]
PATIENCE_SECONDS = 300
Rows = dict[str, tuple[str, str]]


@pytest.fixture
async def open_repl() -> AsyncIterator[Opener]:
    environment = InProcessEnvironment()

    async def open_one(host: FakeHost | None = None, **options: Any) -> Repl:
        host = host or FakeHost()
        return Repl(await environment.open(host, options), host)

    yield open_one
    await environment.close()


def run_child(folder: Path, *groups: str) -> Rows:
    (folder / "theirs").write_text("a file of the program's", "utf-8")
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r}); "
    code += "from tests.environments.inprocess_child import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *groups],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return {row: (verdict, detail) for row, verdict, detail in json.loads(done.stdout)}


# -- the suite ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "groups",
    [
        pytest.param(GROUPS[:6], id="first half"),
        pytest.param(GROUPS[6:], id="second half", marks=pytest.mark.heavy),
    ],
)
def test_inprocess_conforms_except_for_the_features_it_declares_missing(
    groups: list[str], tmp_path: Path
) -> None:
    rows = run_child(tmp_path, *groups)
    expected = {row for row in ROWS if row.partition(": ")[0] in groups and is_harmless(row)}
    assert rows.keys() == expected
    assert {row: found for row, found in rows.items() if found[0] == "failed"} == {}
    not_offered = {row for row, found in rows.items() if found[0] == "not offered"}
    excused = {row for row in expected if any(part in row for part in InProcessEnvironment.lacks)}
    assert not_offered == excused


@pytest.mark.parametrize("part", [*InProcessEnvironment.lacks, *InProcessEnvironment.harms_host])
def test_each_excuse_of_inprocess_matches_one_row(part: str) -> None:
    assert len([row for row in ROWS if part in row]) == 1


async def test_inprocess_warns_once_that_it_is_not_a_sandbox(
    caplog: pytest.LogCaptureFixture,
) -> None:
    environment = InProcessEnvironment()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            await environment.open(FakeHost(), {})
    await environment.close()
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "environment='inprocess' is not a sandbox"
    ]
    said = await environment.describe()
    assert said["isolation"].startswith("none")
    assert len(said["missing"]) > 3


# -- the process stays unchanged ------------------------------------------------------------------


async def test_streams_and_hooks_of_the_program_are_restored(
    open_repl: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("the program's"))
    before = (sys.stdout, sys.stderr, sys.stdin, sys.breakpointhook, sys.displayhook)
    repl = await open_repl()
    for code in (
        "print(1)",
        "import sys; sys.stdout = sys.stderr = None",
        "1 / 0",
        "exit()",
        "input()",
    ):
        await repl.run(code)
        after = (sys.stdout, sys.stderr, sys.stdin, sys.breakpointhook, sys.displayhook)
        assert after == before
    assert sys.stdin.read() == "the program's"


async def test_only_output_of_the_cell_itself_is_captured(
    open_repl: Opener, capsys: pytest.CaptureFixture[str]
) -> None:
    class Chatty(FakeHost):
        async def answer(
            self, kind: str, arguments: dict[str, Any], parts: Sequence[str]
        ) -> tuple[dict[str, Any], Sequence[str]]:
            print("the host's")
            await asyncio.to_thread(print, "a tool's")
            return await super().answer(kind, arguments, parts)

    repl = await open_repl(Chatty())
    code = "import asyncio\nprint('mine')\nllm_query('a')\nawait llm_query('b')\n"
    shown = await repl.show(code + "await asyncio.to_thread(print, 'mine too')")
    assert shown == "mine\nmine too"
    assert capsys.readouterr().out == "the host's\na tool's\n" * 2


async def test_two_sessions_keep_their_output_and_source_lines_apart(open_repl: Opener) -> None:
    one, two = await open_repl(), await open_repl()
    await asyncio.gather(one.run("def f(): raise ValueError"), two.run("def f(): return 2"))
    codes = (f"for i in range(300): print({n}, llm_query(str(i)))" for n in (1, 2))
    shown = await asyncio.gather(*(repl.show(c) for repl, c in zip((one, two), codes, strict=True)))
    for n, text in enumerate(shown, 1):
        assert text.split("\n") == [f"{n} re:{i}" for i in range(300)]
    result = await one.run("f()")
    assert result.error is not None
    assert "def f(): raise ValueError" in result.error.traceback


async def test_values_are_the_programs_own_objects(open_repl: Opener) -> None:
    module = ModuleType("rlm_test_values")
    vars(module)["seen"] = []
    sys.modules[module.__name__] = module
    try:
        repl = await open_repl()
        await repl.load({"a": [1]})
        await repl.run("import rlm_test_values; rlm_test_values.seen.append(context)")
        assert vars(module)["seen"] == [{"a": [1]}]
    finally:
        del sys.modules[module.__name__]


async def test_a_cell_stuck_in_c_is_abandoned_and_the_error_says_so(open_repl: Opener) -> None:
    gate = threading.Event()
    module = ModuleType("rlm_test_gate")
    vars(module)["gate"] = gate
    sys.modules[module.__name__] = module
    before = sys.stdout
    try:
        repl = await open_repl()
        with pytest.raises(SessionDied, match="can't be killed"):
            await repl.run("import rlm_test_gate; rlm_test_gate.gate.wait()", timeout_seconds=0.1)
        assert sys.stdout is before
        with pytest.raises(SessionDied):
            await repl.run("1")
        other = await open_repl()
        assert await other.show("1 + 1") == "2"
    finally:
        gate.set()
        del sys.modules[module.__name__]


async def test_closing_leaves_no_thread(open_repl: Opener) -> None:
    repl = await open_repl()
    await repl.run("await llm_query('a')")
    await repl.session.close()
    assert not [each.name for each in threading.enumerate() if each.name.startswith("rlm-cells")]


# -- breakpoints ----------------------------------------------------------------------------------

DEBUGGED = """
import asyncio
from rlm.environments.inprocess import InProcessEnvironment
from tests.environments.conftest import FakeHost

async def tick():
    while True:
        await asyncio.sleep(0.2)
        print("tick", flush=True)

async def main():
    environment = InProcessEnvironment()
    session = await environment.open(FakeHost(), {})
    ticking = asyncio.create_task(tick())
    code = "x = 41\\nprint('captured')\\nbreakpoint()\\nx += 1\\nx"
    result = await session.execute(code, timeout_seconds=0.1)
    ticking.cancel()
    print("result", repr(result.stdout), result.error, flush=True)
    await environment.close()

asyncio.run(main())
"""


def test_a_breakpoint_opens_the_debugger_while_the_event_loop_runs() -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", DEBUGGED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    with program:
        assert program.stdin is not None
        assert program.stdout is not None
        lines: list[str] = []
        while sum("tick" in line for line in lines) < 3:  # Long past the cell's time limit.
            lines.append(program.stdout.readline())
        assert any("<cell 1 of session 1>" in line for line in lines)
        program.stdin.write("p x + 1000\nc\n")
        program.stdin.close()
        rest = program.stdout.read()
    assert "1041" in rest
    assert "result 'captured\\n42\\n' None" in rest
    assert "captured\n" not in "".join(lines)


AFTER_AN_INTERRUPT = """
import asyncio, sys, threading
from rlm.environments.inprocess.interrupts import ThreadInterrupts

interrupts = ThreadInterrupts()
interrupts.adopt_thread()
for _ in range(3):
    interrupts.begin_cell()
    try:
        other = threading.Thread(target=interrupts.interrupt)
        other.start()
        other.join()
    except KeyboardInterrupt:
        print("interrupted")
    interrupts.end_cell()

async def wait():
    for _ in range(10):
        await asyncio.sleep(0)

sys.setprofile(lambda *event: None)
asyncio.run(wait())
print("went on")
"""


def test_the_debugger_continues_after_an_interrupt() -> None:
    """Python 3.11 waits forever in the next profiled `await` if an exception is left pending."""
    run = subprocess.run(
        [sys.executable, "-c", AFTER_AN_INTERRUPT],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )

    assert run.stderr == ""
    assert run.stdout.split("\n")[-2] == "went on"
