"""Standard input and pipes are read within bounds: of memory, and of the time that is given."""

import io
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rlm.cli import _chat_input, _context, _errors, commands
from tests.cli.conftest import Run
from tests.cli.running import command, environment

MEBIBYTE = 1 << 20
NO_MODEL = ("-m", "offline/extractive", "--quiet")


class Endless(io.RawIOBase):
    """`yes`: it counts what was read, and ends the test if that is far too much."""

    def __init__(self) -> None:
        self.read_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        self.read_bytes += len(view)
        assert self.read_bytes < 64 * MEBIBYTE
        view[:] = b"y" * len(view)
        return len(view)


def test_endless_standard_input_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    endless = Endless()
    monkeypatch.setattr(_context, "MAX_READ_CHARS", 4 * MEBIBYTE)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(endless)))
    monkeypatch.setenv("RLM_STATE_DIR", str(tmp_path))
    for files in ((), ("-f", "-")):
        endless.read_bytes = 0
        assert _errors.run(commands, ["ask", "what quota", *NO_MODEL, *files]) == 1
        told = capsys.readouterr().err
        assert "standard input holds more than 4 MiB; write it to a file and pass that" in told
        assert endless.read_bytes < 8 * MEBIBYTE


def test_a_named_pipe_is_bounded_too(
    monkeypatch: pytest.MonkeyPatch, run: Run, tmp_path: Path
) -> None:
    monkeypatch.setattr(_context, "MAX_READ_CHARS", 1_000)
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["/bin/sh", "-c", "seq 10000 > pipe"], cwd=tmp_path):
        code, out, err = run("ask", "what quota", *NO_MODEL, "-f", "pipe")
    assert (code, out) == (1, "")
    assert "pipe holds more than" in err


def test_a_piped_line_of_a_chat_is_bounded(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setattr(_chat_input, "MAX_LINE_BYTES", 1_000)
    code, out, err = run("chat", *NO_MODEL, stdin=b"y" * 2_000 + b"\nnever asked\n")
    assert (code, out) == (1, "")
    assert "a line of standard input is longer than" in err


@pytest.mark.parametrize("files", [(), ("-f", "-")])
def test_the_timeout_ends_waiting_for_standard_input(files: tuple[str, ...]) -> None:
    with subprocess.Popen(
        command("ask", "what quota", *NO_MODEL, "--timeout", "0.2", *files),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment({}),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.wait(60) == 3  # while its standard input stays open
        assert process.stdout.read() == ""
        assert process.stderr.read() == (
            "Stopped early: standard input did not end within 0.2 seconds; no model was asked.\n"
        )
