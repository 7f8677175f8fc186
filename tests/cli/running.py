"""Runs `rlm` as a user does: a real process, with pipes or with terminals."""

import atexit
import contextlib
import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path
from typing import NamedTuple

from tests.cli.local_servers import nowhere

SECONDS = 120
TEXT = "Nothing here.\nThe access code for silver-dolphin is 4821.\nNothing there.\n"
QUESTION = "What is the access code for silver-dolphin?"
CONTROLS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xaa-\xae]")
"""Characters that control a terminal, except tabs and line ends."""

STATE = tempfile.mkdtemp(prefix="rlm-tests-state-")
"""Where runs of tests are journaled, unless a test names a folder of its own."""

atexit.register(shutil.rmtree, STATE, ignore_errors=True)


def environment(variables: dict[str, str]) -> dict[str, str]:
    keep = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    folders = {"RLM_STATE_DIR": STATE, "RLM_CONFIG_DIR": f"{STATE}/config"}
    return {**keep, **nowhere(), **folders, **variables}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "rlm", *arguments]


def rlm(
    *arguments: str, stdin: str | bytes = "", cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """With pipes, from an empty environment."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run(
        command(*arguments),
        input=given,
        capture_output=True,
        env=environment(variables),
        cwd=cwd,
        timeout=SECONDS,
        check=False,
    )
    texts = [each.decode("utf-8", "surrogateescape") for each in (done.stdout, done.stderr)]
    return subprocess.CompletedProcess(done.args, done.returncode, *texts)


class Seen(NamedTuple):
    """What came out of each terminal, byte by byte."""

    code: int
    stdout: bytes
    stderr: bytes


def in_terminals(
    *arguments: str, stdin: str | None = None, typed: str = "", **variables: str
) -> Seen:
    """With a terminal of its own for stdout and for stderr; stdin is piped, or a terminal too.

    What is `typed` waits in that terminal from the beginning.
    """
    sides = {name: _terminal() for name in ("stdout", "stderr", "stdin")}
    process = subprocess.Popen(
        command(*arguments),
        stdin=sides["stdin"][1] if stdin is None else subprocess.PIPE,
        stdout=sides["stdout"][1],
        stderr=sides["stderr"][1],
        env=environment({"TERM": "xterm-256color", "LANG": "C.UTF-8", **variables}),
    )
    for _, slave in sides.values():
        os.close(slave)
    os.write(sides["stdin"][0], typed.encode())
    if process.stdin is not None:
        assert stdin is not None
        process.stdin.write(stdin.encode())
        process.stdin.close()
    seen = _read_all({sides["stdout"][0]: "stdout", sides["stderr"][0]: "stderr"})
    os.close(sides["stdin"][0])
    return Seen(process.wait(SECONDS), **seen)


def _terminal() -> tuple[int, int]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    return master, slave


def _read_all(masters: dict[int, str]) -> dict[str, bytes]:
    """Read everything until both terminals are closed."""
    seen = dict.fromkeys(masters.values(), b"")
    waiting = dict(masters)
    while waiting:
        ready, _, _ = select.select(list(waiting), [], [], SECONDS)
        assert ready, "nothing came out of the terminals any more"
        for master in ready:
            data = b""
            with contextlib.suppress(OSError):  # Linux's error for a closed terminal
                data = os.read(master, 65_536)
            seen[waiting[master]] += data
            if not data:
                del waiting[master]
                os.close(master)
    return seen


def one_clear_line(stderr: str) -> str:
    """The only line there is, which is no traceback."""
    lines = stderr.strip().splitlines()
    assert len(lines) == 1, stderr
    assert "Traceback" not in stderr
    return lines[0]
