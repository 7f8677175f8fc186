"""Relays the two sockets of a session over the only pipe to the host.

It runs in sandboxes that offer only a program's input and output. The zygote is its child, and both
end with the pipe.
"""

from __future__ import annotations

import os
import select
import socket

from . import multiplex

__all__ = ["FROM_HOST", "TO_HOST", "FilePipe", "LinePipe", "serve"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

FROM_HOST, TO_HOST = "<", ">"
"""The marks of lines, one for each direction."""

_READ_BYTES = multiplex.MAX_PIECE_BYTES
_MAX_WAITING_BYTES = 1 << 20
_OVER = select.POLLHUP | select.POLLERR | select.POLLNVAL


class FilePipe:
    """The program's own input and output, whose end means that the host is gone."""

    def __init__(self, reader: int, writer: int) -> None:
        for fd in (reader, writer):
            os.set_blocking(fd, False)
        self._reader = reader
        self._writer = writer
        self._waiting = bytearray()

    def watched(self) -> list[tuple[int, int]]:
        """Return what to poll: the input, and the output while bytes are waiting."""
        events = select.POLLOUT if self._waiting else 0
        return [(self._reader, select.POLLIN), (self._writer, events)]

    def received(self, fd: int, events: int) -> bytes | None:
        """Return the input, empty bytes if the output was ready, or None if the host is gone."""
        if fd == self._writer:
            if events & _OVER:
                return None
            self._write()
            return b""
        try:
            data = os.read(self._reader, _READ_BYTES)
        except BlockingIOError:
            return b""
        return self._decoded(data) if data else None

    def send(self, data: bytes) -> None:
        """Send bytes now or as soon as possible."""
        self._waiting += self._encoded(data)
        self._write()

    @property
    def is_full(self) -> bool:
        """Whether too many bytes are waiting to add more."""
        return len(self._waiting) > _MAX_WAITING_BYTES

    def _write(self) -> None:
        try:
            while self._waiting:
                del self._waiting[: os.write(self._writer, self._waiting[:_READ_BYTES])]
        except BlockingIOError:
            return

    def _encoded(self, data: bytes) -> bytes:
        return data

    def _decoded(self, data: bytes) -> bytes:
        return data


class LinePipe(FilePipe):
    """The program's input and output, where only text gets through."""

    def __init__(self, reader: int, writer: int) -> None:
        super().__init__(reader, writer)
        self._lines = multiplex.LineReader(FROM_HOST)

    def _encoded(self, data: bytes) -> bytes:
        pieces = range(0, len(data), _READ_BYTES)
        return b"".join(
            multiplex.to_line(data[at : at + _READ_BYTES], TO_HOST).encode("ascii") for at in pieces
        )

    def _decoded(self, data: bytes) -> bytes:
        return self._lines.feed(data)


class _Channel:
    """One end of a socketpair inside the sandbox, and what could not be written to it yet."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.waiting = bytearray()
        self.ends_soon = False
        self.is_readable = True

    def events(self, may_read: bool) -> int:
        reads = select.POLLIN if may_read and self.is_readable else 0
        return reads | (select.POLLOUT if self.waiting else 0)

    def write(self) -> int:
        """Write what fits now and return its size."""
        written = 0
        try:
            while self.waiting:
                size = self.connection.send(self.waiting[:_READ_BYTES])
                del self.waiting[:size]
                written += size
        except BlockingIOError:
            return written
        except OSError:
            written += len(self.waiting)  # Nobody is left to read it.
            self.waiting.clear()
        if self.ends_soon and not self.waiting:
            self.ends_soon = False
            try:
                self.connection.shutdown(socket.SHUT_WR)
            except OSError:
                return written  # It has already ended.
        return written


def serve(pipe: FilePipe, control: socket.socket) -> NoReturn:
    """Serve the host at the other end of the pipe, and the zygote at the other end of `control`."""
    try:
        _Relay(pipe, control).serve()
    except multiplex.MultiplexError:
        os._exit(70)
    finally:
        os._exit(0)


class _Relay:
    def __init__(self, pipe: FilePipe, control: socket.socket) -> None:
        self._pipe = pipe
        self._control = control
        self._multiplexer = multiplex.Multiplexer()
        self._channels = {multiplex.CONTROL: _Channel(control)}

    def serve(self) -> None:
        """Relay bytes until the host or the zygote is gone."""
        self._pipe.send(
            self._multiplexer.packed(multiplex.CONTROL, b"")
        )  # Tell the host that the relay is ready.
        go_on = True
        while go_on:
            poll = select.poll()
            for fd, events in self._pipe.watched():
                poll.register(fd, events)
            numbers = self._watch_channels(poll)
            for fd, events in poll.poll():
                number = numbers.get(fd)
                if number is None:
                    go_on &= self._serve_pipe(fd, events)
                else:
                    go_on &= self._serve_channel(number, events)

    def _watch_channels(self, poll: select.poll) -> dict[int, int]:
        """Register the channels with the poll; return their numbers by descriptor."""
        numbers = {}
        for number, channel in self._channels.items():
            events = channel.events(not self._pipe.is_full and self._room(number) > 0)
            if events:
                numbers[channel.connection.fileno()] = number
                poll.register(channel.connection.fileno(), events)
        return numbers

    def _serve_pipe(self, fd: int, events: int) -> bool:
        """Handle what the host sent; return False if it is gone."""
        data = self._pipe.received(fd, events)
        for piece in self._multiplexer.feed(data or b""):
            self._take(*piece)
        return data is not None

    def _room(self, number: int) -> int:
        return _READ_BYTES if number == multiplex.CONTROL else self._multiplexer.room(number)

    def _take(self, number: int, piece: bytes) -> None:
        """Handle a piece from the host."""
        if number == multiplex.OPEN:
            self._open(piece)
            return
        channel = self._channels.get(number)
        if channel is None:
            raise multiplex.MultiplexError(f"channel {number} does not exist yet")
        if piece:
            channel.waiting += piece
        else:
            channel.ends_soon = True
        self._write(number, channel)

    def _write(self, number: int, channel: _Channel) -> None:
        written = channel.write()
        if written and number != multiplex.CONTROL:
            told = self._multiplexer.took(number, written)
            if told:
                self._pipe.send(told)

    def _serve_channel(self, number: int, events: int) -> bool:
        """Relay the output of a channel; return False if the zygote has ended."""
        channel = self._channels[number]
        if events & select.POLLOUT:
            self._write(number, channel)
        room = self._room(number)
        if not events & (select.POLLIN | _OVER) or not channel.is_readable or not room:
            return True
        try:
            data = channel.connection.recv(room)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        if not data:
            if number == multiplex.CONTROL:
                return False
            channel.is_readable = False
        self._pipe.send(self._multiplexer.packed(number, data))
        return True

    def _open(self, order: bytes) -> None:
        """Ask the zygote for a session at the other ends of two new channels."""
        if len(self._channels) > 1 or len(order) != 1:
            raise multiplex.MultiplexError("each relay serves only one session")
        theirs = []
        for number in (multiplex.STREAM, multiplex.MONITOR):
            ours, other = socket.socketpair()
            self._channels[number] = _Channel(ours)
            theirs.append(other)
        socket.send_fds(self._control, [order], [each.fileno() for each in theirs])
        for other in theirs:
            other.close()
