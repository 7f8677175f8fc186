"""The host's end of a connection on event loops that can't watch sockets: those of Windows."""

import asyncio
import contextlib
import socket
from collections.abc import Callable

from rlm.environments._frames import Stream

__all__ = ["PumpedStream", "stream_over"]

_READ_BYTES = 1 << 16


def stream_over(
    connection: socket.socket, on_data: Callable[[bytes], None], on_end: Callable[[], None]
) -> Stream:
    """Return a stream over a connected socket, of the kind that the running event loop allows."""
    watches = type(asyncio.get_running_loop()).add_reader
    kind = PumpedStream if watches is asyncio.AbstractEventLoop.add_reader else Stream
    return kind(connection, on_data, on_end)


class PumpedStream(Stream):
    """A stream that receives and sends in its own tasks.

    What arrives while reading is off is delivered when it is on again.
    """

    _receiving: "asyncio.Task[None] | None" = None
    _sending: "asyncio.Task[None] | None" = None
    _arrived: bytes | None = None

    def look(self) -> None:
        """Do nothing: a task is already receiving."""

    def close(self) -> None:
        """Close the socket; `on_end` is not called."""
        if not self._is_open:
            return
        self._is_open = self._is_reading = False
        self._forget_unsent()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        busy = [each for each in (self._receiving, self._sending) if each is not None]
        for each in busy:
            each.cancel()
            each.add_done_callback(lambda _: self._socket.close())  # No task uses it by then.
        if not busy:
            self._socket.close()

    def _watch_input(self, on: bool) -> None:
        if on and self._arrived is not None:
            self._loop.call_soon(self._deliver)
        elif on and self._receiving is None:
            self._receiving = self._loop.create_task(self._receive())

    def _watch_output(self, on: bool) -> None:
        if on and self._sending is None:
            self._sending = self._loop.create_task(self._send_rest())

    async def _receive(self) -> None:
        """Receive until the end; at most one piece waits to be delivered."""
        while self._is_open and self._arrived is None:
            try:
                self._arrived = await self._loop.sock_recv(self._socket, _READ_BYTES)
            except OSError:
                self._arrived = b""
            self._deliver()
        self._receiving = None

    def _deliver(self) -> None:
        if self._arrived is None or not self._is_reading:
            return
        data, self._arrived = self._arrived, None
        if data:
            self._on_data(data)
            if self._is_reading:
                self._watch_input(True)
        else:
            self._receiving = None
            self.close()
            self._on_end()

    async def _send_rest(self) -> None:
        """Send what did not fit at once, in order, followed by what is written in the meantime."""
        while self._unsent:
            data, _ = self._unsent[0]
            with contextlib.suppress(OSError):  # The peer is gone; what it sent can still be read.
                await self._loop.sock_sendall(self._socket, data)
            if self._unsent:
                self._unsent.popleft()
                self._unsent_bytes -= len(data)
        self._sending = None
        self._forget_unsent()
