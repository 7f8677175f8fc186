"""The worker's end of the stream: concurrent calls from any thread or event loop.

There is no reader thread, because a process with threads can't be forked safely. Instead, one of
the waiting threads leads: it polls the socket and delivers the others' answers to them. The main
thread always leads while it waits, because only it can be woken by SIGINT.
"""

from __future__ import annotations

import _thread
import array
import itertools
import mmap
import os
import queue
import select
import socket
import threading
from collections import deque

from . import wire

__all__ = ["Channel", "ChannelClosed", "question"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from .interrupts import Interrupts

_READ_BYTES = 1 << 18
_MAX_FDS = 8
# Hosts import this too, and Windows has no such function.
_FD_BYTES = getattr(socket, "CMSG_SPACE", int)(_MAX_FDS * array.array("i").itemsize)
# Plain numbers: combining members of an enum for each read takes longer than the read.
_READ_AND_WAIT = int(getattr(socket, "MSG_CMSG_CLOEXEC", 0))
_READ_AT_ONCE = int(socket.MSG_DONTWAIT) | _READ_AND_WAIT
_PRIVATE_MEMORY = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_FDS_WERE_CUT = int(socket.MSG_CTRUNC)


class ChannelClosed(RuntimeError):
    """A forked child has no host to talk to."""


class _LoopSlot:
    """Where a coroutine waits for its answer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[wire.Frame] = loop.create_future()
        self._loop = loop
        self._thread = threading.get_ident()

    def deliver(self, frame: wire.Frame) -> None:
        if threading.get_ident() == self._thread:
            self._settle(frame)
            return
        try:
            self._loop.call_soon_threadsafe(self._settle, frame)
        except RuntimeError:
            return  # The loop was closed, so nothing is waiting.

    def _settle(self, frame: wire.Frame) -> None:
        if not self.future.done():
            self.future.set_result(frame)


class Channel:
    """Sends calls to the host and delivers the answers."""

    def __init__(self, interrupts: Interrupts) -> None:
        """Create a channel before a fork; it is closed until `adopt`."""
        self._socket: socket.socket
        self._poll: select.poll
        self._main_poll: select.poll
        self._decoder = wire.Decoder(wire.TO_WORKER, wire.MAX_TO_WORKER_BYTES)
        self._interrupts = interrupts
        # A bytearray would be filled with zeros, at the cost of a page fault every 4 KiB.
        self._buffer = memoryview(mmap.mmap(-1, _READ_BYTES, flags=_PRIVATE_MEMORY))
        self._buffers = (self._buffer,)
        self._fds: deque[int] = deque()
        self._ids = itertools.count(1)
        self._deliver_to: dict[int, Callable[[wire.Frame], None]] = {}
        self._followers: dict[int, queue.SimpleQueue[wire.Frame | None]] = {}
        self._waiting_in: dict[asyncio.AbstractEventLoop, int] = {}
        self._requests: deque[wire.Frame] = deque()
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        self._leading = threading.Lock()
        self._main_wants_to_lead = False
        self._main_thread = threading.get_ident()
        self.status_at_end = 0
        self._open = False
        os.register_at_fork(after_in_child=self.abandon)

    def next_request(self) -> wire.Frame:
        """Wait, in the main thread, for the host's next request."""
        requests = self._requests
        with self._interrupts:
            while not requests:
                if not _thread._count():  # No other thread can read or ask, so this may block.
                    self._read_available(_READ_AND_WAIT)
                elif (frame := self._wait_on_main(requests)) is not None:
                    return frame
            return requests.popleft()

    def take_fd(self) -> int:
        """Return the oldest file descriptor that was received with a frame and not taken yet."""
        if not self._fds:
            raise LookupError("no file descriptor was passed along")
        return self._fds.popleft()

    def send(self, type: int, id: int, parts: list[bytes]) -> None:
        """Send a frame; raise WireError, and send nothing, if it is too large."""
        if not self._open:
            raise ChannelClosed("only the REPL's own process can call models and tools")
        data = wire.encode(type, id, parts, wire.MAX_TO_HOST_BYTES)
        with self._interrupts, self._writing:
            self._socket.sendall(data)

    def ask(self, parts: list[bytes]) -> wire.Frame:
        """Send a CALL and block this thread until the answer arrives."""
        if threading.get_ident() != self._main_thread:
            return self._ask_on_thread(parts)
        call_id = next(self._ids)
        inbox: deque[wire.Frame] = deque()
        with self._interrupts:
            self._deliver_to[call_id] = inbox.append
            try:
                self.send(wire.CALL, call_id, parts)
                frame = self._wait_on_main(inbox)
            finally:
                del self._deliver_to[call_id]
            if frame is None:
                raise KeyboardInterrupt
            return frame

    async def ask_async(self, parts: list[bytes]) -> wire.Frame:
        """Send a CALL and await its answer; the running loop does the reading."""
        import asyncio

        loop = asyncio.get_running_loop()
        slot = _LoopSlot(loop)
        call_id = next(self._ids)
        with self._interrupts:
            self._deliver_to[call_id] = slot.deliver
            self._listen_in(loop, +1)
        try:
            self.send(wire.CALL, call_id, parts)
            return await slot.future
        finally:
            with self._interrupts:
                del self._deliver_to[call_id]
                self._listen_in(loop, -1)

    def _listen_in(self, loop: asyncio.AbstractEventLoop, change: int) -> None:
        """Count the coroutines that wait in a loop; it reads while there are any."""
        count = self._waiting_in.pop(loop, 0) + change
        if count:
            self._waiting_in[loop] = count
        if count == change == 1:
            loop.add_reader(self._socket.fileno(), self._on_readable)
        elif count == 0:
            loop.remove_reader(self._socket.fileno())

    def _wait_on_main(self, inbox: deque[wire.Frame]) -> wire.Frame | None:
        """Lead until the inbox has a frame; return None if SIGINT came first."""
        self._main_wants_to_lead = True
        if not self._leading.acquire(blocking=False):
            self._interrupts.wake()
            self._leading.acquire()
        self._main_wants_to_lead = False
        try:
            while not inbox:
                if self._interrupts.pending:
                    return None
                self._read_when_ready(self._main_poll)
            return inbox.popleft()
        finally:
            self._leading.release()
            self._promote_follower()

    def _ask_on_thread(self, parts: list[bytes]) -> wire.Frame:
        call_id = next(self._ids)
        inbox: queue.SimpleQueue[wire.Frame | None] = queue.SimpleQueue()
        self._deliver_to[call_id] = inbox.put
        self._followers[call_id] = inbox
        try:
            self.send(wire.CALL, call_id, parts)
            return self._wait_on_thread(inbox)
        finally:
            del self._followers[call_id], self._deliver_to[call_id]
            self._promote_follower()

    def _wait_on_thread(self, inbox: queue.SimpleQueue[wire.Frame | None]) -> wire.Frame:
        """Lead if no thread does; otherwise sleep until an answer or None, a request to lead."""
        while True:
            if self._leading.acquire(blocking=False):
                try:
                    while inbox.empty() and not self._main_wants_to_lead:
                        self._read_when_ready(self._poll)
                finally:
                    self._leading.release()
            frame = inbox.get()
            if frame is not None:
                return frame

    def _promote_follower(self) -> None:
        """Wake a sleeping thread to lead, unless another leads or the main thread will."""
        if not self._followers or self._leading.locked() or self._main_wants_to_lead:
            return
        for inbox in list(self._followers.values()):
            inbox.put(None)
            return

    def _read_when_ready(self, poll: select.poll) -> None:
        for fd, _ in poll.poll():
            if fd == self._interrupts.wake_fd:
                self._interrupts.drain_wakes()
            elif fd == self._interrupts.signal_fd:
                self._interrupts.drain_signals()
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
                    self._interrupts.wake()  # The leader may poll for what has just arrived.

    def _read_available(self, how: int = _READ_AT_ONCE) -> None:
        """Read once, without blocking (another reader may have been faster), and deliver."""
        try:
            size, ancillary, flags, _ = self._socket.recvmsg_into(self._buffers, _FD_BYTES, how)
        except BlockingIOError:
            return
        except ConnectionError:
            os._exit(self.status_at_end)  # The host is gone.
        if not size:
            os._exit(self.status_at_end)
        if ancillary:
            self._keep_fds(ancillary, flags)
        self._decoder.feed(self._buffer[:size])
        try:
            frame = self._decoder.pop()
            while frame is not None:
                self._deliver(frame)
                frame = self._decoder.pop()
        except wire.WireError:
            os._exit(70)  # Out of step with the host: nothing after this can be trusted.

    def _keep_fds(self, ancillary: list[tuple[int, int, bytes]], flags: int) -> None:
        """Keep received descriptors for `take_fd`, in order."""
        if flags & _FDS_WERE_CUT:
            os._exit(70)
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds = array.array("i")
                fds.frombytes(data)
                self._fds.extend(fds)

    def _deliver(self, frame: wire.Frame) -> None:
        if frame.type != wire.ANSWER and frame.type != wire.ANSWER_ERROR:
            self._requests.append(frame)
            return
        deliver = self._deliver_to.get(frame.id)
        if deliver is not None:  # Otherwise the call was interrupted or cancelled.
            deliver(frame)

    def adopt(self, connection: socket.socket) -> None:
        """Talk to the host over this stream from here on; `interrupts` must have its pipe."""
        if self._open:
            self._socket.close()
        self._socket = connection
        self._decoder = wire.Decoder(wire.TO_WORKER, wire.MAX_TO_WORKER_BYTES)
        self._deliver_to.clear()
        self._waiting_in.clear()
        self._poll, self._main_poll = select.poll(), select.poll()
        for poll in (self._poll, self._main_poll):
            poll.register(connection, select.POLLIN)
            poll.register(self._interrupts.wake_fd, select.POLLIN)
        self._main_poll.register(self._interrupts.signal_fd, select.POLLIN)
        self._open = True

    def abandon(self) -> None:
        """Close the channel, for a process that the host does not know."""
        if self._open:
            self._open = False
            self._socket.close()


def question(kind: str, arguments: bytes, texts: list[str]) -> list[bytes]:
    """Return the parts of a CALL frame; `arguments` is JSON."""
    return [wire.to_bytes(kind), arguments, *[wire.to_bytes(text) for text in texts]]
