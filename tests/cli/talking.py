"""`rlm chat` (or another command) in a terminal, used as by a person."""

import codecs
import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.running import SECONDS, command, environment

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\x1b[=>]|\r")
CUT = re.compile(r"\x1b(?:\[[0-9;?]*|\][^\x07]*)?\Z")
PROMPT = re.compile(r"rlm> $")


class Terminal:
    """One terminal for everything. `until` waits for what is to be seen after what was seen."""

    def __init__(
        self, *arguments: str, cwd: Path, words: tuple[str, ...] = ("chat",), **variables: str
    ) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
        self.process = subprocess.Popen(
            command(*words, *arguments),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env=environment({"TERM": "xterm-256color", "LANG": "C.UTF-8", **variables}),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self.raw = b""
        self._read_to = 0

    def until(self, sight: str | re.Pattern[str]) -> str:
        """Return new output, as soon as it contains this text."""
        pattern = re.compile(re.escape(sight)) if isinstance(sight, str) else sight
        while True:
            new = self._shown()[self._read_to :]
            if found := pattern.search(new):
                self._read_to += found.end()
                return new[: found.end()]
            assert self._more(), f"{pattern.pattern!r} never came; there was: {new!r}"

    def say(self, text: str) -> str:
        """Type a line and wait for the prompt after it; what was shown between."""
        self.type(text + "\r")
        return self.until(PROMPT)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def interrupt(self) -> None:
        self.type("\x03")

    def interrupt_the_prompt(self) -> str:
        """Press Ctrl-C until it is noticed: not at the moment when Python begins to read."""
        while True:
            self.interrupt()
            ready, _, _ = select.select([self.master], [], [], 0.5)
            if ready:
                return self.until(PROMPT)

    def end(self) -> tuple[int, str]:
        """Wait until it has gone; its exit code, and its last words."""
        while self._more():
            pass
        return self.process.wait(SECONDS), self._shown()[self._read_to :]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self.master)

    def _shown(self) -> str:
        """Decode complete characters; the rest is kept for the next call."""
        text = codecs.getincrementaldecoder("utf-8")("replace").decode(self.raw)
        return CUT.sub("", ESCAPES.sub("", text))

    def _more(self) -> bool:
        ready, _, _ = select.select([self.master], [], [], SECONDS)
        data = b""
        with contextlib.suppress(OSError):  # Linux's error for a closed terminal
            data = os.read(self.master, 65_536) if ready else b""
        self.raw += data
        return bool(data)


@contextmanager
def talking(*arguments: str, cwd: Path, **variables: str) -> Generator[Terminal, None, None]:
    """A chat at its first prompt."""
    terminal = Terminal(*arguments, cwd=cwd, words=("chat",), **variables)
    try:
        terminal.until(PROMPT)
        yield terminal
    finally:
        terminal.close()
