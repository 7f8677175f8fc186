"""Read and write lines over pipes without blocking the event loop."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from io import RawIOBase
from queue import SimpleQueue

__all__ = ["LineReader", "LineWriter", "TooLong"]

READ_BYTES = 1024 * 1024
MAX_WAITING_LINES = 16


class TooLong:
    """Replaces a line that was too long and was discarded."""


class LineReader:
    """Reads the lines of a stream in a thread: `async for line in reader`.

    The stream must be raw: Python cannot exit while a thread waits in a buffered one.
    """

    def __init__(self, stream: RawIOBase, max_bytes: int) -> None:
        self._stream = stream
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes | TooLong]:
        loop = asyncio.get_running_loop()
        arrived: asyncio.Queue[bytes | TooLong | None] = asyncio.Queue()
        room = threading.Semaphore(MAX_WAITING_LINES)

        def put(line: bytes | TooLong | None) -> None:
            room.acquire()
            if not loop.is_closed():
                loop.call_soon_threadsafe(arrived.put_nowait, line)

        def read() -> None:
            for line in self._lines():
                put(line)
            put(None)

        threading.Thread(target=read, name="elizaos-plugin-rlm-lines", daemon=True).start()
        while (line := await arrived.get()) is not None:
            room.release()
            yield line

    def _lines(self) -> Iterator[bytes | TooLong]:
        """Yield lines without their ends, and the rest after the last end."""
        held: list[bytes] = []
        size = 0
        while data := self._read():
            *ended, rest = data.split(b"\n")
            for part in ended:
                yield TooLong() if size + len(part) > self._max_bytes else b"".join([*held, part])
                held, size = [], 0
            size += len(rest)
            if size > self._max_bytes:
                held.clear()
            else:
                held.append(rest)
        if size:
            yield TooLong() if size > self._max_bytes else b"".join(held)

    def _read(self) -> bytes:
        try:
            return self._stream.read(READ_BYTES) or b""
        except (OSError, ValueError):  # closed
            return b""


class LineWriter:
    """Writes lines, in order, from its own thread."""

    def __init__(self, stream: RawIOBase) -> None:
        self._stream = stream
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._write_all, daemon=True)
        self._thread.start()
        self.is_broken = False

    def write(self, line: bytes) -> None:
        self._lines.put(line + b"\n")

    def close(self) -> None:
        """Wait until everything is written or the reader is gone."""
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
