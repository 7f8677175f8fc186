"""A connected socket on the event loop: bytes come in, bytes and file descriptors go out.

asyncio's transports can't send file descriptors, and take longer to set up than a worker takes to
answer. So this uses `add_reader` and `add_writer` of the event loop.
"""

import array
import asyncio
import socket
from collections import deque
from collections.abc import Callable, Sequence

__all__ = ["Stream"]

_READ_BYTES = 1 << 16
_MAX_UNSENT_BYTES = 1 << 16


class Stream:
    """Calls `on_data` with what arrives, and `on_end` once when the other side closes it."""

    def __init__(
        self,
        connection: socket.socket,
        on_data: Callable[[bytes], None],
        on_end: Callable[[], None],
    ) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._fd = connection.fileno()  # asyncio formats other arguments, which is slow.
        self._on_data = on_data
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._unsent: deque[tuple[memoryview, Sequence[int]]] = deque()
        self._unsent_bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_open = True
        self._is_reading = False

    @property
    def can_send_fds(self) -> bool:
        """Whether file descriptors can be sent."""
        return self._socket.family == getattr(socket, "AF_UNIX", None)

    @property
    def is_full(self) -> bool:
        """Whether many bytes wait to be sent."""
        return not self._has_room.is_set()

    async def until_room(self) -> None:
        """Wait until everything was sent, or the stream is closed."""
        await self._has_room.wait()

    def read(self, on: bool) -> None:
        """Start or stop reading."""
        if on == self._is_reading or not self._is_open:
            return
        self._is_reading = on
        if on:
            self._loop.add_reader(self._fd, self._read_once)
        else:
            self._loop.remove_reader(self._fd)

    def look(self) -> None:
        """Read now what has arrived already, without waiting for the event loop."""
        if self._is_reading:
            self._read_once()

    def write(self, data: bytes, fds: Sequence[int] = ()) -> None:
        """Send bytes now or as soon as possible; descriptors go with the first byte.

        Descriptors must stay open until then. Bytes for a closed stream are dropped.
        """
        if not self._is_open:
            return
        left = memoryview(data)
        if not self._unsent:
            sent = self._send(left, fds)
            if sent == len(data):
                return
            left, fds = left[sent:], () if sent else fds
            self._loop.add_writer(self._fd, self._send_more)
        self._unsent.append((left, fds))
        self._unsent_bytes += len(left)
        if self._unsent_bytes > _MAX_UNSENT_BYTES:
            self._has_room.clear()

    def close(self) -> None:
        """Close the socket; `on_end` is not called."""
        if not self._is_open:
            return
        self.read(False)
        self._is_open = False
        if self._unsent:
            self._all_sent()
        self._socket.close()

    def _read_once(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._on_data(data)
        else:
            self.close()
            self._on_end()

    def _send(self, data: memoryview, fds: Sequence[int]) -> int:
        """Send what fits now and return its size; everything counts as sent if the peer is gone."""
        try:
            if fds:
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
                return self._socket.sendmsg([data], [rights])
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except ConnectionError:
            return len(data)  # Data that arrived before can still be read.

    def _send_more(self) -> None:
        while self._unsent:
            data, fds = self._unsent[0]
            try:
                sent = self._send(data, fds)
            except OSError:  # Descriptors could not be sent: the frame is lost.
                self.close()
                self._on_end()
                return
            self._unsent_bytes -= sent
            if sent < len(data):
                self._unsent[0] = (data[sent:], () if sent else fds)
                return
            self._unsent.popleft()
        self._all_sent()

    def _all_sent(self) -> None:
        """Stop sending: nothing is left, or nothing can be sent."""
        self._loop.remove_writer(self._fd)
        self._unsent.clear()
        self._unsent_bytes = 0
        self._has_room.set()
