"""Pipes to a program in a remote sandbox, from best to worst: bytes, lines of text, commands.

A provider makes a sandbox, starts a command in it, and returns a pipe; `_relay` does the rest.
"""

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol

from rlm.errors import ProtocolViolation, SessionDied, SessionError
from rlm.worker import command_pipe, multiplex, relay

__all__ = ["LinesPipe", "Pipe", "PolledPipe"]

_MAX_TEXT_CHARS = 1 << 20
"""The most that one command may print: a line of base64, and other output from the sandbox."""
_WAIT_SECONDS = 10.0
"""How long a command waits in the sandbox for bytes to fetch."""

_TRIES = 4
_PAUSE_SECONDS = 0.2


class Pipe(Protocol):
    """The input and output of a program in a sandbox."""

    async def send(self, data: bytes) -> None:
        """Send all bytes; raise SessionError if the program is gone."""

    async def receive(self) -> bytes:
        """Return at least one byte, or empty bytes when the program has ended."""

    async def close(self) -> None:
        """End the program and its sandbox; may be called twice."""

    async def ending(self) -> str:
        """Say how the program ended; the text follows `the sandbox`."""


class LinesPipe:
    """A pipe for programs whose input and output are text: every piece is a line of base64."""

    def __init__(
        self,
        write: Callable[[str], Awaitable[None]],
        texts: AsyncIterator[str],
        end: Callable[[], Awaitable[None]],
        how: Callable[[], Awaitable[str]],
    ) -> None:
        self._write = write
        self._texts = texts
        self._end = end
        self._how = how
        self._lines = multiplex.LineReader(relay.TO_HOST)

    async def send(self, data: bytes) -> None:
        """Send bytes as one line."""
        await self._write(multiplex.to_line(data, relay.FROM_HOST))

    async def receive(self) -> bytes:
        """Return the bytes of the next lines; other output is ignored."""
        async for text in self._texts:
            try:
                data = self._lines.feed(text.encode("utf-8", "replace"))
            except multiplex.MultiplexError as error:
                raise ProtocolViolation(f"the sandbox broke the protocol: {error}") from None
            if data:
                return data
        return b""

    async def close(self) -> None:
        """End the program and its sandbox."""
        await self._end()

    async def ending(self) -> str:
        """Say how the program ended."""
        return await self._how()


class PolledPipe:
    """A pipe for sandboxes that can only run commands: some send bytes, others fetch them.

    `run` returns the output of a command, or raises SessionError if it could not be run. Every
    command may be repeated (`rlm.worker.command_pipe`), so occasional failures do no harm.
    """

    def __init__(
        self,
        run: Callable[[Sequence[str]], Awaitable[str]],
        end: Callable[[], Awaitable[None]],
        how: Callable[[], Awaitable[str]],
        command: Sequence[str],
    ) -> None:
        """`command` started the worker; it names the Python to use and the socket's folder."""
        self._run = run
        self._end = end
        self._how = how
        python, place = command[0], command[-1]
        self._command = [python, "-S", "-s", "-c", command_pipe.COMMAND, f"{place}/socket"]
        self._sent = 0
        self._received = 0
        self._sending = asyncio.Lock()
        self._closed = False

    async def send(self, data: bytes) -> None:
        """Send bytes, in as many commands as necessary."""
        async with self._sending:
            for at in range(0, len(data), command_pipe.MAX_PUT_BYTES):
                piece = data[at : at + command_pipe.MAX_PUT_BYTES]
                text = base64.b64encode(piece).decode("ascii")
                confirmed = await self._repeated(["put", str(self._sent), text])
                self._sent += len(piece)
                if confirmed != b"%d" % self._sent:
                    raise SessionDied("the sandbox lost part of the data it was sent")

    async def receive(self) -> bytes:
        """Fetch bytes; the command waits in the sandbox until there are some."""
        while not self._closed:
            words = ["get", str(self._received), str(int(1000 * _WAIT_SECONDS))]
            try:
                data = await self._repeated(words)
            except SessionError:
                if self._closed:
                    break
                raise
            if len(data) > command_pipe.MAX_GET_BYTES:
                raise ProtocolViolation(f"the sandbox sent {len(data):,} bytes at once")
            self._received += len(data)
            if data:
                return data
        return b""

    async def close(self) -> None:
        """End the program and its sandbox."""
        self._closed = True
        await self._end()

    async def ending(self) -> str:
        """Say how the program ended."""
        return await self._how()

    async def _repeated(self, words: list[str]) -> bytes:
        """Run a command and return what it fetched; try again if it failed."""
        for left in reversed(range(_TRIES)):
            try:
                return _fetched(await self._run([*self._command, *words]))
            except SessionError:
                if not left or self._closed:
                    raise
            await asyncio.sleep(_PAUSE_SECONDS)
        raise AssertionError("the last try returns or raises")


def _fetched(printed: str) -> bytes:
    """Return the bytes in the last marked line that a command printed."""
    if len(printed) > _MAX_TEXT_CHARS:
        raise ProtocolViolation("a command printed too much output")
    lines = f"\n{printed}".replace("\r", "\n")
    _, mark, rest = lines.rpartition(f"\n{relay.TO_HOST}")
    if not mark:
        raise SessionDied(
            f"a command in the sandbox failed: {printed.strip()[-300:] or 'silently'}"
        )
    try:
        return base64.b64decode(rest.partition("\n")[0], validate=True)
    except (binascii.Error, ValueError):
        raise SessionDied("a command in the sandbox printed something unreadable") from None
