"""The victim: a process of the checker's own user that has secrets and notices signals."""

import contextlib
import json
import os
import secrets
import subprocess
import sys
from typing import Any

__all__ = ["PREFIX", "Victim", "new_secret"]

PREFIX = "rlm-check-"
"""The prefix of all secrets of the checker: attacks may search for it."""

_PROGRAM = """
import ctypes, json, os, signal, sys, tempfile
in_memory, in_a_file = sys.stdin.readline().split()
buffer = ctypes.create_string_buffer(in_memory.encode())
file = tempfile.TemporaryFile(buffering=0)
file.write(in_a_file.encode())
def tell(number, frame):
    os.write(1, b'%d\\n' % number)
for number in (signal.SIGUSR1, signal.SIGURG):
    signal.signal(number, tell)
facts = {"address": ctypes.addressof(buffer), "length": len(in_memory), "fd": file.fileno()}
print(json.dumps(facts), flush=True)
while sys.stdin.readline():
    pass
"""


def new_secret(kind: str) -> str:
    """Return an unguessable text; an attack that shows it must have read it."""
    return f"{PREFIX}{kind}-{secrets.token_hex(16)}"


class Victim:
    """A process with secrets in its environment, command line, memory and an unnamed file."""

    def __init__(self) -> None:
        kinds = ("argument", "file", "memory", "variable")
        hidden = {kind: new_secret(f"victim-{kind}") for kind in kinds}
        self.secrets = {f"victim's {kind}": secret for kind, secret in hidden.items()}
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and program
            [sys.executable, "-S", "-s", "-c", _PROGRAM, hidden["argument"]],
            env={"RLM_CHECK_VICTIM_KEY": hidden["variable"]},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            self.facts = self._introduce(hidden["memory"], hidden["file"])
        except BaseException:
            self.end()
            raise

    def _introduce(self, *words: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{' '.join(words)}\n".encode())
        self._process.stdin.flush()
        facts: dict[str, Any] = json.loads(self._process.stdout.readline())
        os.set_blocking(self._process.stdout.fileno(), False)
        return {**facts, "pid": self._process.pid}

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def signals(self) -> list[int]:
        """Return the signals it received since the last call."""
        assert self._process.stdout is not None
        data = b""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._process.stdout.fileno(), 65_536)
        return [int(line) for line in data.split()]

    def end(self) -> None:
        """End the process and close its pipes."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
