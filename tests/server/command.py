"""`rlm serve` as a real process, with a fake model server behind it."""

import os
import re
import signal
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from rlm.testing.fake_server import FakeServer
from tests.cli.running import command, environment

MODEL = "rlm/openai/gpt-x"
SECONDS = 60
_LISTENING = re.compile(r"Listening at (http://\S+)/v1 ")


class Served:
    """A server process. `base` is where it listens, `lines` what it said on stderr."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self.base = ""
        self._up = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip())
            if found := _LISTENING.match(line):
                self.base = found[1]
                self._up.set()
        self._up.set()

    def wait_until_up(self) -> None:
        assert self._up.wait(SECONDS)
        assert self.base, self.lines

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and wait for the end; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(SECONDS)
        self._reader.join(SECONDS)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code


def variables_of(folder: Path, model: FakeServer | None) -> dict[str, str]:
    known = {} if model is None else model.variables
    state = {"RLM_STATE_DIR": str(folder / "state")}
    return environment({**known, **state, "PYTHONPATH": os.environ.get("PYTHONPATH", "")})


@contextmanager
def served(
    folder: Path, model: FakeServer, *arguments: str, **more: str
) -> Generator[Served, None, None]:
    """A server that is up; it is killed if the test leaves it running."""
    line = command("serve", "--port", "0", "-m", "openai/gpt-x", "--price", "1,1", *arguments)
    process = subprocess.Popen(
        line,
        env={**variables_of(folder, model), **more},
        cwd=folder,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    one = Served(process)
    try:
        one.wait_until_up()
        yield one
    finally:
        one.end(signal.SIGKILL)
