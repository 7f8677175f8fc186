"""What users of dspy's own interpreter report does not happen here."""

import asyncio
import contextlib
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.primitives.code_interpreter import CodeExecutionError, CodeInterpreterError
from recursivelm_dspy import SandboxInterpreter
from scripted import action, by_rule

PROGRAM = """
import dspy, shutil
from recursivelm_dspy import SandboxInterpreter
from scripted import action, scripted

assert shutil.which("deno") is None and shutil.which("node") is None
lm, asked = scripted(action("print(2 + 2)"), action("SUBMIT(2 + 2)"))
dspy.configure(lm=lm, interpreter_factory=SandboxInterpreter)
prediction = dspy.RLM("question -> answer: int")(question="What is 2 + 2?")
print(prediction.answer, [step["output"] for step in prediction.trajectory])
"""


@pytest.fixture
def interpreter() -> Iterator[SandboxInterpreter]:
    with SandboxInterpreter() as opened:
        yield opened


def _workers() -> set[int]:
    """The processes that this one has started and that still run."""
    me = os.getpid()
    found = set()
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text("utf-8", "replace")
        except OSError:
            continue
        if f"\nPPid:\t{me}\n" in text:
            found.add(int(status.parent.name))
    return found


def test_deno_is_not_needed(tmp_path: Path) -> None:
    """Issue 9643: with Deno, the handshake failed on some machines at every step."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={
            "PATH": str(tmp_path),
            "HOME": str(tmp_path),
            "PYTHONPATH": str(Path(__file__).parent),
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout == "4 ['4', \"FINAL: {'answer': 4}\"]\n", done.stderr


def test_starting_many_interpreters_starts_no_processes_for_each() -> None:
    """Issue 9917: three seconds for each start. Here one process forks all sandboxes."""
    with SandboxInterpreter() as first:
        first("1")
    before = _workers()
    for number in range(20):
        with SandboxInterpreter() as interpreter:
            assert interpreter(str(number)) == number
    assert _workers() == before, "every sandbox came from what the first one started"


def test_a_large_text_is_sent_once(interpreter: SandboxInterpreter) -> None:
    """Pyodide fails at 128 MB, and dspy.RLM passes its inputs again with every step."""
    interpreter.start()
    session = interpreter._session
    assert session is not None
    loaded: list[str] = []
    load = session.load

    async def counted(name: str, context: Any) -> None:
        loaded.append(name)
        await load(name, context)

    session.load = counted  # type: ignore[method-assign]
    text = "0123456789abcdef" * (9 << 20)
    for _ in range(3):
        assert interpreter("len(text), text[-1]", {"text": text, "n": 1}) == [len(text), "f"]
    assert loaded.count("_rlm_value_0") == 1
    assert loaded.count("_rlm_value_1") == 3, "what a cell could change in place is sent again"


def test_threads_can_share_an_interpreter(interpreter: SandboxInterpreter) -> None:
    """dspy's own refuses a second thread, or a second execution at the same time."""
    interpreter("seen = []")
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: interpreter("seen.append(n)", {"n": n}), range(40)))
    assert interpreter("sorted(seen)") == list(range(40))


def test_threads_of_a_cell_call_tools_at_the_same_time(interpreter: SandboxInterpreter) -> None:
    everyone = threading.Barrier(4, timeout=60)

    def meet(n: int) -> int:
        everyone.wait()
        return n

    interpreter.tools["meet"] = meet
    code = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as threads:
    met = sorted(threads.map(meet, range(4)))
met"""
    assert interpreter(code) == [0, 1, 2, 3]


def test_an_error_in_async_code_does_not_end_the_session(interpreter: SandboxInterpreter) -> None:
    """Issue 10165: an error in async code of a cell ended the process, with code 0."""

    def fail() -> None:
        raise OSError("no such page")

    interpreter.tools["fail"] = fail
    interpreter("import asyncio\nx = 1")
    failing = """
async def read():
    fail()
tasks = [asyncio.ensure_future(read()) for _ in range(3)]
await asyncio.sleep(0)
raise RuntimeError("and the cell fails too")"""
    with pytest.raises(CodeExecutionError, match="RuntimeError: and the cell fails too"):
        interpreter(failing)
    with pytest.raises(CodeExecutionError, match="OSError: no such page"):
        interpreter("await read()")
    assert interpreter("x + 1") == 2
    assert interpreter("await asyncio.sleep(0)\nx") == 1


def test_an_endless_cell_is_stopped_and_keeps_its_variables() -> None:
    with SandboxInterpreter(execution_timeout=0.5) as interpreter:
        interpreter("kept = 'yes'")
        with pytest.raises(CodeExecutionError, match=r"TimeoutError: cell stopped after 0\.5 s"):
            interpreter("n = 0\nwhile True:\n    n += 1")
        assert interpreter("kept, n > 0") == ["yes", True]


def test_time_spent_in_tools_does_not_count_as_execution_time() -> None:
    waited = threading.Event()
    with SandboxInterpreter({"wait": lambda: waited.wait(1.5)}, execution_timeout=0.7) as one:
        assert one("wait()") is False


def test_a_tool_may_use_another_interpreter_but_not_its_own(
    interpreter: SandboxInterpreter,
) -> None:
    def inner(depth: int) -> int:
        if depth == 0:
            return 1
        with SandboxInterpreter({"inner": inner}) as another:
            value: int = another(f"inner({depth - 1}) + 1")
            return value

    interpreter.tools |= {"inner": inner, "again": lambda: interpreter("1")}
    assert interpreter("inner(3)") == 4
    with pytest.raises(CodeExecutionError, match="CodeInterpreterError: a tool can't use"):
        interpreter("again()")
    with ThreadPoolExecutor(1) as threads:
        interpreter.tools["again"] = lambda: threads.submit(lambda: 7).result()
        assert interpreter("again()") == 7


async def test_async_programs_run_many_modules_at_once() -> None:
    lm, asked = by_rule(lambda _: action("SUBMIT(len(text))"))
    module = dspy.RLM("text -> size: int", interpreter_factory=SandboxInterpreter)
    with dspy.context(lm=lm):
        done = await asyncio.gather(*(module.acall(text="x" * n) for n in range(1, 9)))
    assert [each.size for each in done] == list(range(1, 9))
    assert len(asked) == 8


def test_evaluate_runs_modules_in_threads() -> None:
    """Issue 9082: one thread closed the interpreter that another one used."""
    lm, asked = by_rule(lambda _: action("SUBMIT(len(text))"))
    module = dspy.RLM("text -> size: int", interpreter_factory=SandboxInterpreter)
    examples = [dspy.Example(text="x" * n, size=n).with_inputs("text") for n in range(1, 17)]
    evaluate = dspy.Evaluate(
        devset=examples,
        metric=lambda wanted, got, trace=None: wanted.size == got.size,
        num_threads=4,
        display_progress=False,
    )
    with dspy.context(lm=lm):
        assert evaluate(module).score == 100.0
    assert len(asked) == 16


def test_a_garbage_collected_interpreter_is_closed() -> None:
    interpreter = SandboxInterpreter()
    interpreter("1")
    finalizer = interpreter._finalizer
    del interpreter
    gc.collect()
    assert not finalizer.alive


def test_hostile_code_reaches_no_files_network_or_keys(
    interpreter: SandboxInterpreter, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("swordfish")
    monkeypatch.setenv("OPENAI_API_KEY", "swordfish")
    for code in (
        f"open({str(secret)!r}).read()",
        "import socket\nsocket.create_connection(('127.0.0.1', 80), timeout=1)",
        "import subprocess\nsubprocess.run(['true'])",
    ):
        with pytest.raises(CodeExecutionError):
            interpreter(code)
    assert interpreter("import os\n'OPENAI_API_KEY' in os.environ") is False


def test_code_can_forge_only_its_own_answer(interpreter: SandboxInterpreter) -> None:
    interpreter.tools["one"] = lambda: 1
    for code in (
        "import __main__\n__main__._rlm_cells.run = None",
        "import __main__\n__main__.FINAL('[1, 2]')",
        "import __main__\n__main__._rlm_cells._report = print",
    ):
        with contextlib.suppress(CodeExecutionError, CodeInterpreterError):
            interpreter(code)
    with pytest.raises(CodeExecutionError):
        interpreter("one()")
