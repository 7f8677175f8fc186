"""Makes a pipe to a sandbox look like the two sockets that a session on this machine has.

What comes through the pipe is not trusted: sizes are limited (`rlm.worker.multiplex`), and the
readers of the two sockets check the content, as they do for sessions on this machine.
"""

import asyncio
import contextlib
import json
import socket
from typing import Any

from rlm.environments._forkserver import MAX_REPORT_BYTES, Pair, report_in, settings_frame
from rlm.environments.pipes import Pipe
from rlm.errors import ProtocolViolation, RLMError, SessionDied
from rlm.worker import multiplex
from rlm.worker.sandbox import orders

__all__ = ["Channel", "Relay"]

_MAX_WORDS_CHARS = 500


class Channel:
    """The far end of one of a session's sockets, and the pieces to write to it."""

    def __init__(self, far_end: socket.socket) -> None:
        far_end.setblocking(False)
        self.socket = far_end
        self.incoming: asyncio.Queue[bytes] = asyncio.Queue()
        self.has_room = asyncio.Event()


class Relay:
    """Relays between the pipe and the sockets of a session: `set_up`, then `open`, then `close`."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._multiplexer = multiplex.Multiplexer()
        self._loop = asyncio.get_running_loop()
        self._sending = asyncio.Lock()
        self._channels: dict[int, Channel] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._control: asyncio.Queue[bytes | None] = asyncio.Queue()  # None: the sandbox has ended.
        self._reading = self._loop.create_task(self._read())
        self._reading.add_done_callback(self._note_failure)
        self._ended: str | None = None

    async def set_up(self, archive: bytes, settings: str) -> dict[str, Any]:
        """Send the worker and its settings; return the zygote's report."""
        await self._send_raw(archive)
        await self._hear()  # The worker is up; from now on it reads multiplexed pieces.
        await self._send(multiplex.CONTROL, settings_frame(settings))
        heard = b""
        while (report := report_in(heard)) is None:
            heard += await self._hear()
            if len(heard) > MAX_REPORT_BYTES:
                raise ProtocolViolation("the sandbox's report does not end")
        return report

    async def open(self) -> Pair:
        """Ask for the session; return the host's two sockets for it."""
        ends = self.connect()
        await self._send(multiplex.OPEN, orders.NOW)  # By now there are sockets for the replies.
        return ends

    def connect(self) -> Pair:
        """Return the host's two sockets for a session that already exists."""
        ends = []
        for number in (multiplex.STREAM, multiplex.MONITOR):
            ours, far_end = socket.socketpair()
            self._channels[number] = channel = Channel(far_end)
            self._tasks += [
                self._loop.create_task(self._carry_in(number, channel)),
                self._loop.create_task(self._carry_out(number, channel)),
            ]
            ends.append(ours)
        if self._ended is not None:  # It ended before there were sockets to report it.
            self._tell_ending(self._ended)
        return ends[0], ends[1]

    async def close(self) -> None:
        """End the sandbox and the tasks that wait for it."""
        tasks = [self._reading, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for channel in self._channels.values():
            channel.socket.close()
        await self._pipe.close()

    # From the sandbox.

    async def _read(self) -> None:
        try:
            while data := await self._pipe.receive():
                for number, piece in self._multiplexer.feed(data):
                    self._take(number, piece)
                for number, channel in self._channels.items():
                    if self._multiplexer.room(number):
                        channel.has_room.set()
            ending = await self._pipe.ending()
        except multiplex.MultiplexError as error:
            ending = f"broke the protocol: {error}"
        except (RLMError, OSError) as error:
            ending = f"can't be reached: {error}"
        self._note_ending(ending)

    def _note_failure(self, reading: "asyncio.Task[None]") -> None:
        """End the session if reading failed with an exception that only this pipe raises."""
        if not reading.cancelled() and (error := reading.exception()) is not None:
            self._note_ending(f"can't be reached: {type(error).__name__}: {error}")

    def _note_ending(self, how: str) -> None:
        self._ended = how[:_MAX_WORDS_CHARS]
        self._control.put_nowait(None)
        self._tell_ending(self._ended)

    def _take(self, number: int, piece: bytes) -> None:
        if number == multiplex.CONTROL:
            if self._control.qsize() > MAX_REPORT_BYTES // multiplex.MAX_PIECE_BYTES:
                raise multiplex.MultiplexError("its report does not end")
            self._control.put_nowait(piece)
        elif number in self._channels:
            self._channels[number].incoming.put_nowait(piece)
        else:
            problem = f"a piece came on channel {number} before there was a session"
            raise multiplex.MultiplexError(problem)

    def _tell_ending(self, how: str) -> None:
        """Report the end on the monitor, then close both channels."""
        for number, channel in self._channels.items():
            if number == multiplex.MONITOR:
                fact = {"lost": f"was lost: the sandbox {how}"}
                channel.incoming.put_nowait(b"\n" + json.dumps(fact).encode("ascii") + b"\n")
            channel.incoming.put_nowait(b"")

    async def _hear(self) -> bytes:
        """Wait for a message from the zygote, or for the empty one that its relay sends first."""
        piece = await self._control.get()
        if piece is None:
            raise SessionDied(f"the sandbox {self._ended}")
        return piece

    async def _carry_in(self, number: int, channel: Channel) -> None:
        """Write incoming pieces to the session's socket; an empty one ends it."""
        with contextlib.suppress(OSError):  # The session has closed its end.
            while piece := await channel.incoming.get():
                await self._loop.sock_sendall(channel.socket, piece)
                if acknowledgement := self._multiplexer.took(number, len(piece)):
                    await self._send_raw(acknowledgement)
            channel.socket.shutdown(socket.SHUT_WR)

    # To the sandbox.

    async def _carry_out(self, number: int, channel: Channel) -> None:
        """Send what the session writes, when there is room, and finally its end."""
        while True:
            while not (room := self._multiplexer.room(number)):
                channel.has_room.clear()
                await channel.has_room.wait()
            try:
                data = await self._loop.sock_recv(channel.socket, room)
            except OSError:
                data = b""
            await self._send(number, data)
            if not data:
                return

    async def _send(self, number: int, data: bytes) -> None:
        await self._send_raw(self._multiplexer.packed(number, data))

    async def _send_raw(self, data: bytes) -> None:
        """Send bytes, one message at a time; a failure is reported by the reading side."""
        async with self._sending:
            with contextlib.suppress(RLMError, OSError):
                await self._pipe.send(data)
