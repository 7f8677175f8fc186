"""The gateway over stdin and stdout, which carry the protocol and nothing else.

Descriptors 0 and 1 are replaced before anything heavy is imported: what a library prints and what
child processes write goes to stderr. They are never restored, so nothing can slip in at the end
either.
"""

import asyncio
import contextlib
import logging
import os
import signal
import threading
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from rlm._util.signals import listen

if TYPE_CHECKING:
    import anyio
    from mcp.server.lowlevel import Server

__all__ = [
    "MAX_LINE_BYTES",
    "StdinLines",
    "StdioPipe",
    "serve_stdio",
    "serve_until_signal",
    "take_stdio",
]

MAX_LINE_BYTES = 4 << 20
"""Longer messages are dropped: no request of the gateway needs more."""

ENDING_SECONDS = 5.0

_log = logging.getLogger(__name__)


class StdioPipe(Struct, frozen=True):
    """The private ends of the pipe, closed in child processes."""

    reading: int
    writing: int


def take_stdio() -> StdioPipe:
    """Keep stdin and stdout for the protocol; everything else gets an empty stdin, and stderr."""
    pipe = StdioPipe(_private(0), _private(1))
    empty = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(empty, 0)
        try:
            os.dup2(2, 1)
        except OSError:  # There is no stderr.
            os.dup2(empty, 1)
    finally:
        os.close(empty)
    return pipe


def _private(descriptor: int) -> int:
    """Return a copy, with a number above 2, that child processes do not get."""
    made, low = os.dup(descriptor), []
    while made <= 2:  # One of the standard streams is closed.
        low.append(made)
        made = os.dup(descriptor)
    for each in low:
        os.close(each)
    return made


class StdinLines:
    """The lines of a descriptor, read by a daemon thread.

    With ordinary reads, the process could not end until its client sends another line.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[str | None] = asyncio.Queue(maxsize=16)
        threading.Thread(target=self._read, name="rlm-mcp-stdin", daemon=True).start()

    def __aiter__(self) -> "StdinLines":
        return self

    async def __anext__(self) -> str:
        line = await self._lines.get()
        if line is None:
            raise StopAsyncIteration
        return line

    def _read(self) -> None:
        with os.fdopen(self._descriptor, "rb") as file:
            while line := file.readline(MAX_LINE_BYTES + 1):
                if len(line) > MAX_LINE_BYTES:
                    while line and not line.endswith(b"\n"):
                        line = file.readline(MAX_LINE_BYTES)
                    _log.warning("a message of more than %s bytes was dropped", MAX_LINE_BYTES)
                    continue
                if not self._hand_over(line.decode("utf-8", "replace")):
                    return
            self._hand_over(None)

    def _hand_over(self, line: str | None) -> bool:
        """Pass a line to the event loop; return whether it is still running."""
        putting = self._lines.put(line)
        try:
            asyncio.run_coroutine_threadsafe(putting, self._loop).result()
        except (RuntimeError, CancelledError):  # the loop has ended
            putting.close()
            return False
        return True


async def serve_stdio(server: "Server[Any]", pipe: StdioPipe) -> None:
    """Serve until the client closes its end."""
    import anyio
    from mcp.server.stdio import stdio_server

    lines = cast("anyio.AsyncFile[str]", StdinLines(pipe.reading))
    out = os.fdopen(pipe.writing, "w", encoding="utf-8", newline="\n")
    try:
        async with stdio_server(stdin=lines, stdout=anyio.wrap_file(out)) as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())
    except* BrokenPipeError:
        pass  # The client is gone, which is the normal ending.


async def serve_until_signal(server: "Server[Any]", pipe: StdioPipe) -> None:
    """Serve until the client closes its end, or until SIGTERM or SIGINT."""
    serving = asyncio.ensure_future(serve_stdio(server, pipe))
    loop = asyncio.get_running_loop()

    def end() -> None:
        serving.cancel()
        loop.call_later(ENDING_SECONDS, os._exit, 0)  # A client may have stopped reading.

    listen((signal.SIGTERM, signal.SIGINT), end)
    with contextlib.suppress(asyncio.CancelledError):
        await serving
