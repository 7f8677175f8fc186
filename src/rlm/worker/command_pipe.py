"""A pipe for sandboxes that can only run commands: each command sends or fetches some bytes.

The relay listens on a socket in the sandbox. A command connects, sends `put OFFSET` with bytes, or
`get OFFSET MILLISECONDS`, and prints the answer. Offsets count from the start of each direction, so
a command that was lost, or whose answer was lost, can be repeated.
"""

from __future__ import annotations

import select
import socket
import time

__all__ = ["COMMAND", "MAX_GET_BYTES", "MAX_PUT_BYTES", "CommandPipe"]

MAX_PUT_BYTES = 64 << 10
"""In base64 this must fit into one word of a command line, at most 128 KiB on Linux."""
MAX_GET_BYTES = 192 << 10
_MAX_WAITING_BYTES = 1 << 20
_MAX_REQUEST_BYTES = MAX_PUT_BYTES + 100
_IDLE_SECONDS = 180.0
"""A host that has been silent for this long is gone."""

COMMAND = """
import base64, socket, sys
place, *words = sys.argv[1:]
line = socket.socket(socket.AF_UNIX)
line.connect(place)
data = base64.b64decode(words.pop()) if words[0] == "put" else b""
line.sendall(" ".join(words).encode() + b"\\n" + data)
line.shutdown(socket.SHUT_WR)
print(">" + base64.b64encode(b"".join(iter(lambda: line.recv(65536), b""))).decode())
"""
"""What a command runs: `python3 -c COMMAND SOCKET get OFFSET MILLISECONDS`."""


class CommandPipe:
    """Implements `relay.Pipe` at a listening socket."""

    def __init__(self, listener: socket.socket, taken: int = 0) -> None:
        """`taken` is the number of bytes received before this pipe was created."""
        listener.setblocking(False)
        self._listener = listener
        self._requests: dict[int, tuple[socket.socket, bytearray]] = {}
        self._taken = taken
        self._sent = 0  # The bytes that the host has confirmed; the waiting ones follow.
        self._waiting = bytearray()
        self._asking: tuple[socket.socket, int, float] | None = None
        self._last_heard = time.monotonic()

    def watched(self) -> list[tuple[int, int]]:
        """Return the listener and the connections whose requests are incomplete."""
        return [(fd, select.POLLIN) for fd in (self._listener.fileno(), *self._requests)]

    @property
    def milliseconds_left(self) -> int:
        """Return how long to wait for other events before `tick`."""
        now = time.monotonic()
        until = self._last_heard + _IDLE_SECONDS if self._asking is None else self._asking[2]
        return max(0, int(1000 * (until - now)) + 1)

    def tick(self) -> bool:
        """Answer a `get` that has waited long enough; return False if the host is gone."""
        now = time.monotonic()
        if self._asking is not None and now >= self._asking[2]:
            self._answer_asker()
        return self._asking is not None or now < self._last_heard + _IDLE_SECONDS

    def received(self, fd: int, events: int) -> bytes:
        """Return the bytes of a `put`, once its request is complete."""
        if fd == self._listener.fileno():
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            self._requests[connection.fileno()] = connection, bytearray()
            return b""
        connection, said = self._requests[fd]
        try:
            data = connection.recv(_MAX_REQUEST_BYTES)
        except BlockingIOError:
            return b""
        except OSError:
            data = b""
        said += data
        if data and len(said) <= _MAX_REQUEST_BYTES:
            return b""
        del self._requests[fd]
        self._last_heard = time.monotonic()
        return self._handle(connection, bytes(said))

    def _handle(self, connection: socket.socket, said: bytes) -> bytes:
        """Handle a request; close the connection if it is invalid."""
        line, _, data = said.partition(b"\n")
        words = line.split()
        if len(words) == 2 and words[0] == b"put" and words[1].isdigit():
            new = data[max(0, self._taken - int(words[1])) :]
            self._taken += len(new)
            with connection:
                _send(connection, b"%d" % self._taken)
            return new
        if len(words) == 3 and words[0] == b"get" and words[1].isdigit() and words[2].isdigit():
            self._answer_asker()  # An earlier `get` was lost.
            del self._waiting[: max(0, int(words[1]) - self._sent)]
            self._sent = max(self._sent, int(words[1]))
            self._asking = connection, self._sent, time.monotonic() + int(words[2]) / 1000
            if self._waiting:
                self._answer_asker()
            return b""
        connection.close()
        return b""

    def send(self, data: bytes) -> None:
        """Send bytes to the `get` that waits, or keep them for the next one."""
        self._waiting += data
        self._answer_asker()

    @property
    def is_full(self) -> bool:
        """Whether too many bytes are waiting to add more."""
        return len(self._waiting) > _MAX_WAITING_BYTES

    def _answer_asker(self) -> None:
        if self._asking is not None:
            connection, _, _ = self._asking
            self._asking = None
            with connection:
                _send(connection, bytes(self._waiting[:MAX_GET_BYTES]))


def _send(connection: socket.socket, data: bytes) -> None:
    """Send bytes to a command, which reads at once; ignore a command that is gone."""
    connection.settimeout(5.0)
    try:
        connection.sendall(data)
    except OSError:
        return
