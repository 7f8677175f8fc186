"""The streams of a program in a cloud sandbox, built on what the provider's SDK offers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from rlm.errors import SessionDied

__all__ = [
    "BytesPipe",
    "FirstTries",
    "Inbox",
    "Outbox",
    "ended_with",
    "outcome_of",
    "until_failure",
]

_Piece = TypeVar("_Piece")
_MAX_WRITE_BYTES = 1 << 20
_MAX_HELD_PIECES = 64
_FIRST_TRIES = 100
_GRACE_SECONDS = 1.0
_PAUSE_SECONDS = 0.1


def ended_with(status: object) -> str:
    """Say how a worker ended; the text follows the name of its sandbox."""
    hint = "; does that Python exist there?" if status in {126, 127} else ""
    return f"exists, but its worker ended with status {status}{hint}"


async def outcome_of(doing: Awaitable[object]) -> Exception | None:
    """Await an operation of an SDK and return the exception it raised, or None."""
    try:
        await doing
    except Exception as error:  # noqa: BLE001 - returned to the caller
        return error
    return None


class Outbox:
    """Sends bytes in batches: what arrives during one request goes into the next.

    `failed` holds the error once sending has failed; nothing is sent after that.
    """

    def __init__(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        self._write = write
        self._waiting = bytearray()
        self._has_room = asyncio.Event()
        self._has_some = asyncio.Event()
        self.failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self._sending = asyncio.get_running_loop().create_task(self._send_all())

    async def send(self, data: bytes) -> None:
        """Queue bytes to send; wait while too many are queued."""
        self._waiting += data
        self._has_some.set()
        while len(self._waiting) > _MAX_WRITE_BYTES and not self.failed.done():
            self._has_room.clear()
            await self._has_room.wait()
        if self.failed.done():
            raise SessionDied(f"the sandbox no longer accepts input: {self.failed.result()}")

    async def send_text(self, text: str) -> None:
        """Queue a line of ASCII text."""
        await self.send(text.encode("ascii"))

    async def close(self) -> None:
        """Send nothing more."""
        self._sending.cancel()
        await asyncio.wait([self._sending])

    async def _send_all(self) -> None:
        error = await outcome_of(self._send_on_and_on())
        if error is not None:
            self.failed.set_result(error)
        self._has_room.set()

    async def _send_on_and_on(self) -> None:
        while True:
            await self._has_some.wait()
            piece = bytes(self._waiting[:_MAX_WRITE_BYTES])
            await self._write(piece)
            del self._waiting[: len(piece)]
            self._has_room.set()
            if not self._waiting:
                self._has_some.clear()


class Inbox:
    """The output of a program as an async iterator, for SDKs that pass output to a callback.

    `outcome` is the exception with which the SDK ended, if any.
    """

    def __init__(self) -> None:
        self.outcome: Exception | None = None
        self._texts: asyncio.Queue[str | None] = asyncio.Queue(_MAX_HELD_PIECES)
        self._watching: asyncio.Task[None] | None = None

    async def take(self, text: str) -> None:
        """Take a piece of output; block the SDK while too much is unread."""
        if text:
            await self._texts.put(text)

    def until(self, ended: Awaitable[object]) -> None:
        """End the output when this awaitable ends."""
        self._watching = asyncio.get_running_loop().create_task(self._watch(ended))

    async def _watch(self, ended: Awaitable[object]) -> None:
        self.outcome = await outcome_of(ended)
        await self._texts.put(None)

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        text = await self._texts.get()
        if text is None:
            self._texts.put_nowait(None)
            raise StopAsyncIteration
        return text

    async def close(self) -> None:
        """Stop waiting for output."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])


async def until_failure(
    output: AsyncIterator[_Piece], failed: asyncio.Future[Exception]
) -> AsyncIterator[_Piece]:
    """Yield output until sending fails: a program that gets no input would wait forever.

    If the output itself ends soon after the failure, prefer that: it explains more.
    """
    while True:
        coming = asyncio.get_running_loop().create_task(_next_of(output))
        try:
            both: list[asyncio.Future[Any]] = [coming, failed]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                await asyncio.wait([coming], timeout=_GRACE_SECONDS)
            if not coming.done():
                raise failed.result()
        finally:
            coming.cancel()
        piece = coming.result()
        if piece is None:
            return
        yield piece


async def _next_of(output: AsyncIterator[_Piece]) -> _Piece | None:
    return await anext(output, None)


class BytesPipe:
    """A pipe for SDKs that carry bytes; `LinesPipe` is for those that carry text."""

    def __init__(
        self,
        write: Callable[[bytes], Awaitable[None]],
        pieces: AsyncIterator[bytes],
        end: Callable[[], Awaitable[None]],
        how: Callable[[], Awaitable[str]],
    ) -> None:
        self._write = write
        self._pieces = pieces
        self._end = end
        self._how = how

    async def send(self, data: bytes) -> None:
        """Send bytes."""
        await self._write(data)

    async def receive(self) -> bytes:
        """Return the next piece, or empty bytes when the program has ended."""
        return await anext(self._pieces, b"")

    async def close(self) -> None:
        """End the program and its sandbox."""
        await self._end()

    async def ending(self) -> str:
        """Say how the program ended."""
        return await self._how()


class FirstTries:
    """Repeats writes to a program that does not accept input yet.

    `too_early` is part of the error message in that case. Nothing is repeated after a success.
    """

    def __init__(self, write: Callable[[bytes], Awaitable[None]], too_early: str) -> None:
        self._write = write
        self._too_early = too_early
        self._left = _FIRST_TRIES

    async def send(self, data: bytes) -> None:
        """Send bytes; try again if they are the first and came too early."""
        while (error := await outcome_of(self._write(data))) is not None:
            self._left -= 1
            if self._left <= 0 or self._too_early not in str(error):
                raise error
            await asyncio.sleep(_PAUSE_SECONDS)
        self._left = 0
