"""The worker's end of the stream: questions from any thread or event loop, all in flight at once.

There is no reader thread (a process with one can't be forked safely). Whoever waits reads: one
waiting thread leads, that is, polls the socket and hands the others their answers. The main
thread always leads while it waits, because only it can be woken by SIGINT.
"""

from __future__ import annotations

import itertools
import os
import queue
import select
import socket
import threading

from . import wire

__all__ = ["Channel", "ChannelClosed", "question"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from typing import Any

    from .interrupts import Interrupts

_READ_BYTES = 1 << 18


class ChannelClosed(RuntimeError):
    """A forked child has no host to talk to."""


class _ThreadSlot:
    """Where a blocked thread finds its answer; None in the inbox means `try to lead`."""

    def __init__(self) -> None:
        self.inbox: queue.SimpleQueue[wire.Frame | None] = queue.SimpleQueue()
        self.thread = threading.get_ident()

    def deliver(self, frame: wire.Frame) -> None:
        self.inbox.put(frame)


class _LoopSlot:
    """Where a coroutine finds its answer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[wire.Frame] = loop.create_future()
        self.loop = loop
        self._thread = threading.get_ident()

    def deliver(self, frame: wire.Frame) -> None:
        if threading.get_ident() == self._thread:
            self._settle(frame)
            return
        try:
            self.loop.call_soon_threadsafe(self._settle, frame)
        except RuntimeError:
            return  # The loop was closed; nobody waits any more.

    def _settle(self, frame: wire.Frame) -> None:
        if not self.future.done():
            self.future.set_result(frame)


class Channel:
    """Sends questions to the host and finds each answer's owner."""

    def __init__(self, connection: socket.socket, interrupts: Interrupts) -> None:
        self._socket = connection
        self._interrupts = interrupts
        self._decoder = wire.Decoder(wire.TO_WORKER, wire.MAX_TO_WORKER_BYTES)
        self._buffer = bytearray(_READ_BYTES)
        self._ids = itertools.count(1)
        self._slots: dict[int, _ThreadSlot | _LoopSlot] = {}
        self._waiting_in: dict[asyncio.AbstractEventLoop, int] = {}
        self._requests: queue.SimpleQueue[wire.Frame | None] = queue.SimpleQueue()
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        self._leading = threading.Lock()
        self._main_wants_to_lead = False
        self._main_thread = threading.get_ident()
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self._poll.register(interrupts.wake_fd, select.POLLIN)
        self._open = True
        os.register_at_fork(after_in_child=self._abandon)

    def next_request(self) -> wire.Frame:
        """Wait, on the main thread, for what the host wants next."""
        with self._interrupts:
            while True:
                frame = self._wait_on_main(self._requests)
                if frame is not None:
                    return frame

    def send(self, type: int, id: int, parts: list[bytes]) -> None:
        """Send one frame whole; WireError, with nothing sent, if it is too large."""
        if not self._open:
            raise ChannelClosed("only the REPL's own process can call models and tools")
        data = wire.encode(type, id, parts, wire.MAX_TO_HOST_BYTES)
        with self._interrupts, self._writing:
            self._socket.sendall(data)

    def ask(self, parts: list[bytes]) -> wire.Frame:
        """Send a CALL and block this thread until its answer is there."""
        slot = _ThreadSlot()
        call_id = next(self._ids)
        with self._interrupts:
            self._slots[call_id] = slot
            try:
                self.send(wire.CALL, call_id, parts)
                if slot.thread == self._main_thread:
                    frame = self._wait_on_main(slot.inbox)
                    if frame is None:
                        raise KeyboardInterrupt
                    return frame
                return self._wait_on_thread(slot)
            finally:
                del self._slots[call_id]
                self._promote_follower()

    async def ask_async(self, parts: list[bytes]) -> wire.Frame:
        """Send a CALL and await its answer; the running loop does the reading."""
        import asyncio

        loop = asyncio.get_running_loop()
        slot = _LoopSlot(loop)
        call_id = next(self._ids)
        with self._interrupts:
            self._slots[call_id] = slot
            self._listen_in(loop, +1)
        try:
            self.send(wire.CALL, call_id, parts)
            return await slot.future
        finally:
            with self._interrupts:
                del self._slots[call_id]
                self._listen_in(loop, -1)

    def _listen_in(self, loop: asyncio.AbstractEventLoop, change: int) -> None:
        """Count the coroutines waiting in a loop; it reads as long as there is one."""
        count = self._waiting_in.pop(loop, 0) + change
        if count:
            self._waiting_in[loop] = count
        if count == change == 1:
            loop.add_reader(self._socket.fileno(), self._on_readable)
        elif count == 0:
            loop.remove_reader(self._socket.fileno())

    def _wait_on_main(self, inbox: queue.SimpleQueue[wire.Frame | None]) -> wire.Frame | None:
        """Lead until the inbox has a frame; None if a SIGINT came first."""
        self._main_wants_to_lead = True
        if not self._leading.acquire(blocking=False):
            self._interrupts.wake()
            self._leading.acquire()
        self._main_wants_to_lead = False
        try:
            while inbox.empty():
                if self._interrupts.pending:
                    return None
                self._read_when_ready()
            return inbox.get()
        finally:
            self._leading.release()
            self._promote_follower()

    def _wait_on_thread(self, slot: _ThreadSlot) -> wire.Frame:
        """Lead if nobody does, otherwise sleep until answered or promoted."""
        while True:
            if self._leading.acquire(blocking=False):
                try:
                    while slot.inbox.empty() and not self._main_wants_to_lead:
                        self._read_when_ready()
                finally:
                    self._leading.release()
            frame = slot.inbox.get()
            if frame is not None:
                return frame

    def _promote_follower(self) -> None:
        """Wake one sleeping thread to lead, unless somebody leads or the main thread will."""
        if self._leading.locked() or self._main_wants_to_lead:
            return
        for slot in list(self._slots.values()):
            if isinstance(slot, _ThreadSlot) and slot.thread != self._main_thread:
                slot.inbox.put(None)
                return

    def _read_when_ready(self) -> None:
        for fd, _ in self._poll.poll():
            if fd == self._interrupts.wake_fd:
                self._interrupts.drain()
            else:
                with self._reading:
                    self._read_available()

    def _on_readable(self) -> None:
        with self._interrupts:
            if self._reading.acquire(blocking=False):
                try:
                    self._read_available()
                finally:
                    self._reading.release()
                if self._leading.locked():
                    self._interrupts.wake()  # The leader may poll for what was just delivered.

    def _read_available(self) -> None:
        """Read once without blocking (another reader may have been faster) and deliver."""
        try:
            size = self._socket.recv_into(self._buffer, 0, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except ConnectionError:
            size = 0
        if not size:
            os._exit(0)  # The host is gone.
        self._decoder.feed(memoryview(self._buffer)[:size])
        try:
            frame = self._decoder.pop()
            while frame is not None:
                self._deliver(frame)
                frame = self._decoder.pop()
        except wire.WireError:
            os._exit(70)  # Out of step with the host: nothing that follows could be trusted.

    def _deliver(self, frame: wire.Frame) -> None:
        if frame.type not in (wire.ANSWER, wire.ANSWER_ERROR):
            self._requests.put(frame)
            return
        slot = self._slots.get(frame.id)
        if slot is not None:  # Else its asker was interrupted or cancelled.
            slot.deliver(frame)

    def _abandon(self) -> None:
        self._open = False
        self._socket.close()


def question(kind: str, arguments: dict[str, Any], texts: list[str]) -> list[bytes]:
    """The parts of a CALL frame."""
    return [wire.to_bytes(kind), wire.to_json(arguments), *map(wire.to_bytes, texts)]
