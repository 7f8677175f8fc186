"""The ends of a pipe, for the protocol and for nothing else in the process.

Descriptors 0 and 1 are given away before anything heavy is imported: what a library prints, what a
child process writes, what goes to descriptor 1 directly all ends up on stderr. They are never given
back, so that nothing can slip in at the end either.
"""

import asyncio
import fcntl
import logging
import os
import threading
from concurrent.futures import CancelledError

from msgspec import Struct

__all__ = ["MOST_LINE_BYTES", "Lines", "Wire", "take_wire"]

MOST_LINE_BYTES = 4 << 20
"""A longer message is dropped: no request of the gateway needs as much."""

_log = logging.getLogger(__name__)


class Wire(Struct, frozen=True):
    """The private ends of the pipe, closed for child processes."""

    reading: int
    writing: int


def take_wire() -> Wire:
    """Keep stdin and stdout for the protocol; others get an empty one, and stderr."""
    wire = Wire(_private(0), _private(1))
    empty = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(empty, 0)
        try:
            os.dup2(2, 1)
        except OSError:  # started without a stderr
            os.dup2(empty, 1)
    finally:
        os.close(empty)
    return wire


def _private(descriptor: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)


class Lines:
    """The lines of a descriptor, read by a thread that nobody waits for when all is over.

    The usual way blocks a process that was told to end until its client sends another line.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[str | None] = asyncio.Queue(maxsize=16)
        threading.Thread(target=self._read, name="rlm-mcp-stdin", daemon=True).start()

    def __aiter__(self) -> "Lines":
        return self

    async def __anext__(self) -> str:
        line = await self._lines.get()
        if line is None:
            raise StopAsyncIteration
        return line

    def _read(self) -> None:
        with os.fdopen(self._descriptor, "rb") as file:
            while line := file.readline(MOST_LINE_BYTES + 1):
                if len(line) > MOST_LINE_BYTES:
                    while line and not line.endswith(b"\n"):
                        line = file.readline(MOST_LINE_BYTES)
                    _log.warning("a message of more than %s bytes was dropped", MOST_LINE_BYTES)
                    continue
                if not self._hand_over(line.decode("utf-8", "replace")):
                    return
            self._hand_over(None)

    def _hand_over(self, line: str | None) -> bool:
        """Whether anybody is there to take it."""
        putting = self._lines.put(line)
        try:
            asyncio.run_coroutine_threadsafe(putting, self._loop).result()
        except (RuntimeError, CancelledError):  # the loop has ended
            putting.close()
            return False
        return True
