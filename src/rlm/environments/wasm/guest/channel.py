"""The worker's channel to the host, over a shared file that is polled.

Nothing in the sandbox blocks until bytes arrive. So a wait polls: first without a pause, for quick
answers, then with pauses that grow with the time waited.
"""

import itertools
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlm.environments.wasm.guest.shared_file import SharedFile
from rlm.worker import wire

__all__ = ["Channel", "ChannelClosed", "Checkpoints", "question"]

if TYPE_CHECKING:
    from rlm.environments.wasm.guest.interrupts import PolledInterrupts

_EAGER_SECONDS = 0.001
_SHARE = 0.1
_LONGEST_PAUSE_SECONDS = 0.02

_pause = time.sleep  # The original; cells get a replacement.


class ChannelClosed(RuntimeError):
    """Raised in forked children by the usual channel; never here."""


class Channel:
    """Sends calls to the host and delivers the answers."""

    def __init__(self, interrupts: "PolledInterrupts") -> None:
        self._interrupts = interrupts
        self._file: SharedFile
        self._decoder = wire.Decoder(wire.TO_WORKER, wire.MAX_TO_WORKER_BYTES)
        self._ids = itertools.count(1)
        self._deliver_to: dict[int, Callable[[wire.Frame], None]] = {}
        self._requests: deque[wire.Frame] = deque()

    def adopt(self, connection: SharedFile) -> None:
        """Talk to the host through this shared file."""
        self._file = connection
        self._interrupts.total = connection.interrupts

    def abandon(self) -> None:
        """Do nothing: there is nothing to close."""

    def take_fd(self) -> int:
        """Raise LookupError: file descriptors can't be received."""
        raise LookupError("no file descriptor was passed along")

    def next_request(self) -> wire.Frame:
        """Wait for the next request of the host."""
        with self._interrupts:
            while not self._requests:
                self.wait()
            return self._requests.popleft()

    def send(self, type: int, id: int, parts: list[bytes]) -> None:  # noqa: A002 (the worker's)
        """Send a frame; WireError, with nothing sent, if it is too large."""
        data = wire.encode(type, id, parts, wire.MAX_TO_HOST_BYTES)
        with self._interrupts:
            self._file.send(data)

    def ask(self, parts: list[bytes]) -> wire.Frame:
        """Send a CALL and wait for its answer."""
        call_id = next(self._ids)
        inbox: deque[wire.Frame] = deque()
        with self._interrupts:
            self._deliver_to[call_id] = inbox.append
            try:
                self.send(wire.CALL, call_id, parts)
                while not inbox:
                    if self._interrupts.pending:
                        raise KeyboardInterrupt
                    self.wait()
            finally:
                del self._deliver_to[call_id]
            return inbox.popleft()

    async def ask_async(self, parts: list[bytes]) -> wire.Frame:
        """Send a CALL and await its answer; an idle event loop polls for it."""
        import asyncio

        future: asyncio.Future[wire.Frame] = asyncio.get_running_loop().create_future()

        def deliver(frame: wire.Frame) -> None:
            if not future.done():
                future.set_result(frame)

        call_id = next(self._ids)
        self._deliver_to[call_id] = deliver
        try:
            self.send(wire.CALL, call_id, parts)
            return await future
        finally:
            del self._deliver_to[call_id]

    def wait(self, deadline: float = float("inf")) -> None:
        """Wait for a frame, an interrupt, or the deadline."""
        began = time.monotonic()
        while True:
            came = self.look()
            now = time.monotonic()
            if came or now >= deadline:
                return
            waited = now - began
            if waited > _EAGER_SECONDS:
                pause = min(waited * _SHARE, _LONGEST_PAUSE_SECONDS)
                _pause(min(pause, deadline - now))

    def look(self) -> bool:
        """Deliver what has arrived; return whether there was a frame or an interrupt."""
        data = self._file.look()
        if data:
            self._decoder.feed(data)
            while (frame := self._decoder.pop()) is not None:
                self._deliver(frame)
        return self._interrupts.notice() or bool(data)

    def _deliver(self, frame: wire.Frame) -> None:
        if frame.type != wire.ANSWER and frame.type != wire.ANSWER_ERROR:
            self._requests.append(frame)
            return
        deliver = self._deliver_to.get(frame.id)
        if deliver is not None:  # Otherwise the call was interrupted or cancelled.
            deliver(frame)


def question(kind: str, arguments: bytes, texts: list[str]) -> list[bytes]:
    """Return the parts of a CALL frame; `arguments` is JSON."""
    return [wire.to_bytes(kind), arguments, *[wire.to_bytes(text) for text in texts]]


class Checkpoints:
    """Refuses checkpoints: a WebAssembly sandbox can't be copied while it runs."""

    def __init__(self, channel: "Channel", *_: Any) -> None:
        self._channel = channel

    def take(self, frame: wire.Frame) -> bool:
        """Answer that there are no checkpoints."""
        meta = {"error": "this sandbox has no checkpoints"}
        self._channel.send(wire.VALUE, frame.id, [wire.to_json(meta)])
        return False
