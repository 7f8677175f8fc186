"""Pipes to a program in a remote sandbox, over bytes or over lines of text.

A provider makes a sandbox, starts a command in it, and returns a pipe; `_relay` does the rest.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from rlm.errors import ProtocolViolation
from rlm.worker import multiplex, relay

__all__ = ["LinesPipe", "Pipe"]


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
