"""Ctrl-C, with real signals to real processes: first the best answer, then the end at once."""

import itertools
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.cli.running import command, environment
from tests.cli.scripts import never_ends
from tests.endpoint import Answer, endpoint

SECONDS = 60


def ask(url: str, *options: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command("ask", "?", "-m", "openai-compatible/m", "--max-steps", "100000", *options),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment({"LLM_BASE_URL": url}),
    )


def interrupted(answer: Answer, until: str, *options: str) -> tuple[int, str, str]:
    """The end of a run that gets SIGINT once a line of its progress says `until`."""
    with endpoint(answer) as server:
        process = ask(server.url, *options)
        assert process.stderr is not None
        told = ""
        while until not in told:
            line = process.stderr.readline()
            assert line, told
            told += line
        process.send_signal(signal.SIGINT)
        out, rest = process.communicate(timeout=SECONDS)
        return process.returncode, out, told + rest


def test_the_first_ctrl_c_ends_a_run_with_its_best_answer() -> None:
    code, out, told = interrupted(never_ends(), "step 4")
    assert code == 130
    assert out.startswith("found so far: ")
    run_id = told.partition("\nrun ")[2].split()[0]
    assert f"Cancelled: this is a best guess (run {run_id})." in told
    assert "Traceback" not in told


@pytest.mark.parametrize("as_json", [False, True])
def test_output_of_cells_is_not_printed_as_the_answer(as_json: bool) -> None:
    numbers = itertools.count(1)

    def answer(_: dict[str, object]) -> str:
        return f"```repl\nprint('raw output', {next(numbers)})\n```"

    code, out, told = interrupted(answer, "step 4", *(["--json"] if as_json else []))
    assert code == 130
    assert "raw output" not in out
    assert ('"answer": null' in out) if as_json else not out
    assert "Cancelled: no answer yet" in told


def test_the_first_ctrl_c_works_in_the_middle_of_a_cell() -> None:
    def answer(body: dict[str, object]) -> str:
        return "```repl\nimport time\nprint('sleeps')\ntime.sleep(1000)\n```"

    code, out, told = interrupted(answer, "> time.sleep", "--verbose", "--json")
    assert code == 130
    assert '"stop_reason": "cancelled"' in out
    assert "no answer yet" in told


def test_ctrl_c_before_a_run_has_begun_quits() -> None:
    with subprocess.Popen(
        command("ask", "?"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment({"RLM_STATE_DIR": "/proc/nowhere"}),  # which it reports before it reads
    ) as process:
        assert process.stderr is not None
        assert "This run is not journaled" in process.stderr.readline()
        process.send_signal(signal.SIGINT)  # it waits for its stdin, which stays open
        assert process.wait(SECONDS) == 130
        assert process.stderr.read().split() == ["Cancelled."]


def test_an_interrupt_in_code_from_a_string_has_an_exit_code_too(tmp_path: Path) -> None:
    """Dataclasses and named tuples have such code; CPython notes it as never handled."""
    program = """
import sys, click
from rlm.cli import _errors
@click.command()
def command():
    exec("raise KeyboardInterrupt")
sys.exit(_errors.run(command, []))
"""
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "-m", "program"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.split()) == (130, ["Cancelled."])


@pytest.mark.parametrize(
    ("journaled", "told"), [(False, ""), (True, "Continue with: rlm resume run-7\n")]
)
def test_a_second_ctrl_c_quits_at_once_even_if_the_run_does_not_stop(
    journaled: bool, told: str
) -> None:
    """A stand-in for an engine that does not stop, in a process of its own."""
    program = f"""
        import os, time
        from rlm.cli._progress import Watch, first_interrupt_stops

        class Deaf:
            def stop(self):
                print("asked to stop", flush=True)

        watch = Watch(journaled={journaled})
        watch.run_id = "run-7"
        with first_interrupt_stops(Deaf(), watch, lambda text: print(text, flush=True)):
            os.write(1, b"ready\\n")  # a print that SIGINT interrupts can't be followed by another
            while True:
                time.sleep(0.01)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline().startswith("Stopping")
    assert process.stdout.readline() == "asked to stop\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=SECONDS)[1] == f"\nQuit: run run-7\n{told}"
    assert process.returncode == 130
