"""On a node: carries one session's stream and monitor to and from whoever calls the actor.

The other side is `rlm.environments._relay`. Both use `rlm.worker.multiplex`, whose windows bound
what waits here, however slow the other side is.
"""

import asyncio
import contextlib
import socket
from collections import deque

from rlm.environments._forkserver import Pair
from rlm.environments._relay import Channel
from rlm.worker import multiplex

__all__ = ["Carrier"]

_MOST_GIVEN_BYTES = multiplex.MAX_PIECE_BYTES
"""Little enough for Ray to send it along with the reply instead of by its object store."""

_AGAIN_SECONDS = 0.002


class Carrier:
    """One session. `take` what was sent to it, `give` what it says, `close` in the end."""

    def __init__(self, ends: Pair) -> None:
        self._multiplexer = multiplex.Multiplexer()
        self._loop = asyncio.get_running_loop()
        numbers = (multiplex.STREAM, multiplex.MONITOR)
        self._channels = {number: Channel(end) for number, end in zip(numbers, ends, strict=True)}
        self._outgoing = bytearray()
        self._news = asyncio.Event()
        self._speaking = set(self._channels)
        self._lent: deque[int] = deque()
        self._tasks = [
            self._loop.create_task(carry(number, channel))
            for number, channel in self._channels.items()
            for carry in (self._carry_in, self._carry_out)
        ]

    def take(self, data: bytes) -> None:
        """Pass on what came from the driver."""
        for number, piece in self._multiplexer.feed(data):
            if number in self._channels:
                self._channels[number].incoming.put_nowait(piece)
        for number, channel in self._channels.items():
            if self._multiplexer.room(number):
                channel.has_room.set()

    def lend(self, fd: int) -> None:
        """Have a descriptor go along with the next bytes of the stream."""
        self._lent.append(fd)

    async def give(self) -> bytes:
        """What the session has to say, as soon as it says something; nothing once it is over."""
        while not self._outgoing and self._speaking:
            self._news.clear()
            await self._news.wait()
        data = bytes(self._outgoing[:_MOST_GIVEN_BYTES])
        del self._outgoing[: len(data)]
        return data

    async def close(self) -> None:
        """End the session: its zygote kills it when the monitor is gone."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for channel in self._channels.values():
            channel.socket.close()
        self._speaking.clear()
        self._outgoing.clear()
        self._news.set()

    async def _carry_in(self, number: int, channel: Channel) -> None:
        """Write what came; its end ends the session's socket."""
        with contextlib.suppress(OSError):  # The session has closed its end.
            while piece := await channel.incoming.get():
                await self._write(number, channel, piece)
                self._say(self._multiplexer.took(number, len(piece)))
            channel.socket.shutdown(socket.SHUT_WR)

    async def _write(self, number: int, channel: Channel, piece: bytes) -> None:
        while number == multiplex.STREAM and self._lent:
            try:
                sent = socket.send_fds(channel.socket, [piece], [self._lent[0]])
            except BlockingIOError:
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            self._lent.popleft()
            piece = piece[sent:]
            if not piece:
                return
        await self._loop.sock_sendall(channel.socket, piece)

    async def _carry_out(self, number: int, channel: Channel) -> None:
        """Keep what the session wrote, as there is room for it; its end too."""
        data = b"more"
        while data:
            while not (room := self._multiplexer.room(number)):
                channel.has_room.clear()
                await channel.has_room.wait()
            try:
                data = await self._loop.sock_recv(channel.socket, room)
            except OSError:
                data = b""
            if not data:
                self._speaking.discard(number)
            self._say(self._multiplexer.packed(number, data))

    def _say(self, data: bytes) -> None:
        self._outgoing += data
        if data:
            self._news.set()
