"""SIGTERM and SIGHUP end commands as Ctrl-C does: cleanly, and with an exit code of their own."""

import json
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlm.cli._errors import run as run_command
from rlm.cli._indexing import _interrupts
from rlm.cli._stopping import terminable
from tests.cli.running import command, environment
from tests.processes import is_running

SECONDS = 60
PROGRAM = """
    import os, pathlib, sys, time
    if pathlib.Path(sys.argv[1]).exists():
        sys.exit("asked again")
    pathlib.Path(sys.argv[1] + "~").write_text(str(os.getpid()))
    os.rename(sys.argv[1] + "~", sys.argv[1])
    time.sleep(1000)
"""


class Asking:
    """A command that waits for a program as its model."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.variables = {"RLM_STATE_DIR": str(folder / "state"), "TMPDIR": str(folder / "tmp")}
        self.told = self.out = ""
        self._pid = folder / "pid"
        (folder / "tmp").mkdir()
        (folder / "notes.txt").write_text("Nothing here.")
        (folder / "rows.jsonl").write_text(json.dumps({"query": "?"}))
        (folder / "model.py").write_text(textwrap.dedent(PROGRAM))
        self.model = ("-m", f"command/{sys.executable} {folder}/model.py {self._pid}")

    def stopped(self, number: int, *arguments: str, stdin: str = "") -> int:
        """The exit code after the signal, which arrives while the program is running."""
        # As a shell starts what is in the background of a script: Ctrl-C is not for that.
        process = subprocess.Popen(
            ["/bin/sh", "-c", 'trap "" INT; exec "$@"', "-", *command(*arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=environment(self.variables),
        )
        assert process.stdin is not None
        process.stdin.write(stdin)
        process.stdin.close()
        process.stdin = None
        while not self._pid.exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.send_signal(number)
        self.out, self.told = process.communicate(timeout=SECONDS)
        return process.returncode

    def leaves_nothing(self) -> bool:
        assert not is_running(int(self._pid.read_text()))
        self._pid.unlink()
        return not list((self.folder / "tmp").glob("rlm-command-*"))


@pytest.fixture(autouse=True)
def _hangups_count() -> Iterator[None]:
    """Let SIGHUP end the commands, also where the tests themselves run under `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def asking(tmp_path: Path) -> Asking:
    return Asking(tmp_path)


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.heavy)]
)
def test_ask_resume_and_fork(asking: Asking, number: int) -> None:
    code = asking.stopped(number, "ask", "?", *asking.model, "-f", "notes.txt")
    assert code == 128 + number
    assert "Cancelled: no answer yet" in asking.told
    assert "Continue with: rlm resume " in asking.told
    assert asking.leaves_nothing()
    for going_on in (("resume", "last"), ("fork", "last", "--step", "1")):
        assert asking.stopped(number, *going_on) == 128 + number, asking.told
        assert "Continue with: rlm resume " in asking.told
        assert asking.leaves_nothing()


def test_chat(asking: Asking) -> None:
    given = ("chat", *asking.model, "notes.txt")
    assert asking.stopped(signal.SIGTERM, *given, stdin="Who?\nWhen?\n") == 143
    assert asking.told.count("Cancelled: no answer yet") == 1  # the second question is not asked
    assert asking.leaves_nothing()


def test_batch(asking: Asking) -> None:
    assert asking.stopped(signal.SIGTERM, "batch", "rows.jsonl", *asking.model) == 143
    assert "Cancelled; 0 of 1 row answered. Run the same command again to continue." in asking.told
    assert asking.leaves_nothing()


def test_bench(asking: Asking) -> None:
    given = ("bench", "run", "s-niah/single", "--size", "2k", "--n", "1", "--out", "out")
    assert asking.stopped(signal.SIGHUP, *given, *asking.model) == 129
    assert "run the same command again to continue" in asking.told
    assert asking.leaves_nothing()


def test_index_finishes_what_it_writes() -> None:
    with terminable(), _interrupts() as is_wanted:
        assert is_wanted()
        signal.raise_signal(signal.SIGTERM)
        assert not is_wanted()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_exit_code_of_a_command_names_its_signal(number: int) -> None:
    import click

    @click.group()
    def commands() -> None: ...

    @commands.command()
    def waits() -> None:
        signal.raise_signal(number)

    before = signal.getsignal(number)
    assert run_command(commands, ["waits"]) == 128 + number
    assert signal.getsignal(number) is before


def test_what_is_ignored_stays_ignored(tmp_path: Path) -> None:
    """As nohup does it."""
    program = (
        "import os, signal, sys, rlm.cli._errors as it, click\n"
        "@click.group()\n"
        "def commands(): ...\n"
        "@commands.command()\n"
        "def hears():\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "sys.exit(it.run(commands, ['hears']))\n"
    )
    done = subprocess.run(
        ["/bin/sh", "-c", 'trap "" HUP; exec "$@"', "-", sys.executable, "-c", program],
        check=False,
    )
    assert done.returncode == 0


def test_the_second_kills_the_program_too(asking: Asking) -> None:
    """A stand-in for an engine that does not stop, with a program that runs."""
    program = """
        import os, signal, sys, threading, time
        from rlm.cli._progress import Watch, first_interrupt_stops
        from rlm.clients._program import run_program, _running

        threading.Thread(
            target=run_program,
            args=(["sleep", "1000"], b"", "."),
            kwargs={"most_bytes": 1, "is_wanted": lambda: True},
            daemon=True,
        ).start()
        while not _running:
            time.sleep(0.01)

        class Deaf:
            def stop(self): ...

        watch = Watch()
        watch.run_id = "run-7"
        print(next(iter(_running)).pid, flush=True)
        with first_interrupt_stops(Deaf(), watch, None):
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 143, done.stderr
    while is_running(int(done.stdout)):  # Killed, it has yet to go.
        time.sleep(0.01)
