"""Lines over pipes: read to any length, written whole, without ever blocking the event loop."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from io import RawIOBase
from queue import SimpleQueue

__all__ = ["LineReader", "LineWriter", "TooLong"]

READ_BYTES = 1024 * 1024
MOST_WAITING_LINES = 16


class TooLong:
    """Stands in place of a line that was longer than anybody may send; it was thrown away."""


class LineReader:
    """`async for line in reader`: the lines of a stream, read in a thread that waits for us.

    The stream must be a raw one: Python can't end while a thread waits in one with a buffer.
    """

    def __init__(self, stream: RawIOBase, most_bytes: int) -> None:
        self._stream = stream
        self._most_bytes = most_bytes

    async def __aiter__(self) -> AsyncIterator[bytes | TooLong]:
        loop = asyncio.get_running_loop()
        arrived: asyncio.Queue[bytes | TooLong | None] = asyncio.Queue()
        room = threading.Semaphore(MOST_WAITING_LINES)

        def tell(line: bytes | TooLong | None) -> None:
            room.acquire()
            if not loop.is_closed():
                loop.call_soon_threadsafe(arrived.put_nowait, line)

        def read() -> None:
            for line in self._lines():
                tell(line)
            tell(None)

        threading.Thread(target=read, name="elizaos-plugin-rlm-lines", daemon=True).start()
        while (line := await arrived.get()) is not None:
            room.release()
            yield line

    def _lines(self) -> Iterator[bytes | TooLong]:
        """Lines without their ends; what comes after the last end is a line as well."""
        held: list[bytes] = []
        size = 0
        while data := self._read():
            *ended, rest = data.split(b"\n")
            for part in ended:
                yield TooLong() if size + len(part) > self._most_bytes else b"".join([*held, part])
                held, size = [], 0
            size += len(rest)
            if size > self._most_bytes:
                held.clear()
            else:
                held.append(rest)
        if size:
            yield TooLong() if size > self._most_bytes else b"".join(held)

    def _read(self) -> bytes:
        try:
            return self._stream.read(READ_BYTES) or b""
        except (OSError, ValueError):  # closed, or gone
            return b""


class LineWriter:
    """Writes lines in the order in which they are handed in, from a thread of its own."""

    def __init__(self, stream: RawIOBase) -> None:
        self._stream = stream
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._write_all, daemon=True)
        self._thread.start()
        self.is_broken = False

    def write(self, line: bytes) -> None:
        self._lines.put(line + b"\n")

    def close(self) -> None:
        """Wait until everything is written, or nobody reads any more."""
        self._lines.put(None)
        self._thread.join()

    def _write_all(self) -> None:
        while (line := self._lines.get()) is not None:
            if self.is_broken:
                continue
            try:
                rest = memoryview(line)
                while rest:
                    rest = rest[self._stream.write(rest) or 0 :]
            except (OSError, ValueError):
                self.is_broken = True
