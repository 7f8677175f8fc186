"""The actor, which runs on a node and hosts sessions, each a fresh fork in the sandbox of `local`.

It knows nothing of models, budgets or journals; it relays bytes and holds the files of contexts.
`pool.py` calls it.
"""

import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any

from msgspec import Struct

from rlm._util.distribution import own_version
from rlm.environments._forkserver import Pair
from rlm.environments._relay import Channel
from rlm.environments._shared import MemoryFile
from rlm.environments.local import LocalEnvironment
from rlm.environments.ray.cluster import sdk
from rlm.errors import SessionDied
from rlm.worker import multiplex

__all__ = ["Carrier", "NodeFiles", "Place", "SessionHost"]


# -- one session --

_MAX_GIVEN_BYTES = multiplex.MAX_PIECE_BYTES
"""Small enough for Ray to send it with the reply, not through the object store."""

_AGAIN_SECONDS = 0.002


class Carrier:
    """Relays the bytes of one session between the driver and its two sockets."""

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
        """Pass on bytes from the driver."""
        for number, piece in self._multiplexer.feed(data):
            if number in self._channels:
                self._channels[number].incoming.put_nowait(piece)
        for number, channel in self._channels.items():
            if self._multiplexer.room(number):
                channel.has_room.set()

    def lend(self, fd: int) -> None:
        """Send a descriptor with the next bytes of the stream."""
        self._lent.append(fd)

    async def give(self) -> bytes:
        """Wait for bytes from the session and return them; empty once it has ended."""
        while not self._outgoing and self._speaking:
            self._news.clear()
            await self._news.wait()
        data = bytes(self._outgoing[:_MAX_GIVEN_BYTES])
        del self._outgoing[: len(data)]
        return data

    async def close(self) -> None:
        """End the session: its zygote kills it when the monitor socket is closed."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for channel in self._channels.values():
            channel.socket.close()
        self._speaking.clear()
        self._outgoing.clear()
        self._news.set()

    async def _carry_in(self, number: int, channel: Channel) -> None:
        """Write incoming pieces to the session's socket; an empty one ends it."""
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
        """Buffer what the session writes, when there is room, and finally its end."""
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


# -- the files of contexts --

_COPIED_BYTES = 4 << 20


class Place(Struct, frozen=True):
    """Where another process on the same node finds a file, and how to recognise it."""

    process: int
    fd: int
    device: int
    inode: int
    size_bytes: int


class NodeFiles:
    """The files of contexts that this actor holds, by name."""

    def __init__(self) -> None:
        self._fds: dict[str, int] = {}

    def find(self, name: str, place: Place | None) -> int | None:
        """Return the file if this actor, or another one at `place`, holds it."""
        if name not in self._fds and place is not None:
            fd = _open(place)
            if fd is not None:
                self._fds[name] = fd
        return self._fds.get(name)

    async def write(self, name: str, pieces: Iterable[Awaitable[Any]]) -> Place:
        """Write the file from buffers of the object store."""
        file = MemoryFile()
        try:
            for piece in pieces:
                buffer = await piece
                await asyncio.to_thread(_append, file, buffer)
                del buffer
            file.seal()
        except BaseException:
            file.close()
            raise
        self.forget([name])
        self._fds[name] = file.fd
        known = os.fstat(file.fd)
        return Place(os.getpid(), file.fd, known.st_dev, known.st_ino, known.st_size)

    def forget(self, names: Iterable[str]) -> None:
        """Close files that are no longer needed."""
        for name in names:
            if (fd := self._fds.pop(name, None)) is not None:
                os.close(fd)


def _append(file: MemoryFile, buffer: Any) -> None:
    view = memoryview(buffer).cast("B")
    for at in range(0, len(view), _COPIED_BYTES):
        file.append(view[at : at + _COPIED_BYTES])


def _open(place: Place) -> int | None:
    """Open another process's file, and check that it is the right one: pids are reused."""
    with contextlib.suppress(OSError):
        fd = os.open(f"/proc/{place.process}/fd/{place.fd}", os.O_RDONLY | os.O_CLOEXEC)
        known = os.fstat(fd)
        if (known.st_dev, known.st_ino, known.st_size) == (
            place.device,
            place.inode,
            place.size_bytes,
        ):
            return fd
        os.close(fd)
    return None


# -- the actor --


class SessionHost:
    """The actor. The driver numbers its sessions; usually there is one at a time."""

    def __init__(self, settings: dict[str, Any]) -> None:
        """`settings` are options of `LocalEnvironment`, for this node."""
        self._settings = settings
        self._environment: LocalEnvironment | None = None
        self._carriers: dict[int, Carrier] = {}
        self._files = NodeFiles()

    async def prepare(self) -> dict[str, Any]:
        """Start the zygote; return facts about this actor and the layers on its node."""
        if self._environment is None:
            self._environment = LocalEnvironment(**self._settings)
        return {
            "version": own_version(),
            "node": sdk().get_runtime_context().get_node_id(),
            "process": os.getpid(),
            "report": await self._environment.describe(),
        }

    async def open(self, number: int, greeting: bytes, stale: Sequence[str]) -> None:
        """Fork a session; contexts in `stale` are no longer needed."""
        self._files.forget(stale)
        assert self._environment is not None, "call prepare first"
        ends: Pair = await self._environment.open_ends(greeting)
        self._carriers[number] = Carrier(ends)

    async def send(self, number: int, data: bytes) -> None:
        """Send bytes to a session; they are dropped if it has ended."""
        if (carrier := self._carriers.get(number)) is not None:
            carrier.take(data)

    async def receive(self, number: int) -> bytes:
        """Wait for bytes from a session and return them; empty once it has ended."""
        carrier = self._carriers.get(number)
        return await carrier.give() if carrier is not None else b""

    async def keep(self, name: str, pieces: Sequence[Any]) -> Place | None:
        """Write a context's file from the object store; None if it is no longer there."""
        try:
            return await self._files.write(name, pieces)
        except sdk().exceptions.RayError:
            return None

    async def lend(self, number: int, name: str, place: Place | None) -> bool:
        """Send a session a context's file with its next bytes; False if there is none."""
        if (carrier := self._carriers.get(number)) is None:
            raise SessionDied("the session has ended")
        if (fd := self._files.find(name, place)) is None:
            return False
        carrier.lend(fd)
        return True

    async def forget(self, stale: Sequence[str]) -> None:
        """Close the files of contexts that are no longer needed."""
        self._files.forget(stale)

    async def close(self, number: int) -> None:
        """End a session and everything in it."""
        if (carrier := self._carriers.pop(number, None)) is not None:
            await carrier.close()
