"""What a session has to know of the worker at the other end: its settings and its process."""

from typing import Any, Protocol

from rlm.environments._clock import Interruptible
from rlm.worker import wire
from rlm.worker.bounds import MAX_ANSWER_CHARS

__all__ = ["GREETING_ID", "WorkerProcess", "greeting_of"]

GREETING_ID = 1

_WORKER_DEFAULTS: dict[str, Any] = {
    "seed": 0,
    "tools": [],
    "kept_output_chars": 1_000_000,
    "max_submission_chars": MAX_ANSWER_CHARS,
    "cell_memory_bytes": None,
    "preload": [],
    "shell": "python",
    "names": "",
}


def greeting_of(options: dict[str, Any]) -> bytes:
    """The first frame of a session: its settings."""
    settings = {name: options.get(name, value) for name, value in _WORKER_DEFAULTS.items()}
    return wire.encode(wire.INIT, GREETING_ID, [wire.to_json(settings)])


class WorkerProcess(Interruptible, Protocol):
    """What a session needs to know of the process at the other end."""

    def kill(self) -> None:
        """End it and all it started, at once."""

    async def wait(self) -> str:
        """Wait until it has ended and been reaped; say how, as in `was killed by SIGSEGV`."""

    def stream_ended(self) -> None:
        """The stream is gone; see to it that the process goes too."""

    async def clean_up(self) -> None:
        """Remove what it left behind."""
