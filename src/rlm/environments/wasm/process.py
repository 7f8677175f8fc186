"""The host's side of the child process: how it is interrupted and ended."""

import asyncio
import contextlib
import socket
import subprocess

from rlm.environments._clock import ProcessState
from rlm.environments.wasm.starting import started
from rlm.worker.sandbox import process_state

__all__ = ["ChildProcess"]

_MOST_WORDS_BYTES = 1_000
_PATIENCE_SECONDS = 0.5
_DISCARD_SECONDS = 5.0


class ChildProcess:
    """One child, with a guest in it; implements `WorkerProcess`. `connection` leads to the guest.

    Its line of control carries a byte for each interrupt, comes back when that has arrived, and
    ends with the child, after some words about why.
    """

    def __init__(self, guest_bytes: int) -> None:
        self.guest_bytes = guest_bytes
        self.connection, stream = socket.socketpair()
        self._control, control = socket.socketpair()
        self._control.setblocking(False)
        try:
            with stream, control:
                self._process = started(guest_bytes, [stream, control])
        except BaseException:
            self.connection.close()
            self._control.close()
            raise
        self._sent = self._arrived = 0
        self._news = asyncio.Event()
        self._words = b""
        self._is_over = False
        self._ended: asyncio.Task[str] | None = None

    def interrupt(self) -> None:
        """Send an interrupt, if the child still runs."""
        with contextlib.suppress(OSError):
            self._sent += self._control.send(b"i")

    async def signals_sent(self) -> None:
        """Wait until the guest would find every interrupt that was sent."""
        while self._arrived < self._sent and not self._is_over:
            self._news.clear()
            await self._news.wait()

    async def state(self) -> ProcessState | None:
        """How the child fares, in which the guest runs."""
        if self._process.returncode is not None:
            return None
        found = await asyncio.to_thread(process_state.of_processes, [self._process.pid])
        return None if found is None else ProcessState(**found)

    def kill(self) -> None:
        """End the child, and with it the guest, which can have started nothing."""
        if self._process.returncode is None:
            self._process.kill()

    def stream_ended(self) -> None:
        """The child is about to end, or will be ended."""
        asyncio.get_running_loop().call_later(_PATIENCE_SECONDS, self.kill)

    async def wait(self) -> str:
        """Wait for the end and say how it came."""
        return await asyncio.shield(self._end())

    async def clean_up(self) -> None:
        """Nothing is left: the shared file had no name while anything was in it."""
        self._control.close()

    def discard(self) -> None:
        """End a child that nobody has used; it may have to remove its shared file first."""
        self.connection.close()
        self._control.close()
        try:
            self._process.wait(_DISCARD_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()

    def _end(self) -> "asyncio.Task[str]":
        if self._ended is None:
            self._ended = asyncio.get_running_loop().create_task(self._listen())
        return self._ended

    async def _listen(self) -> str:
        while data := await self._heard():
            if not self._words:
                echoed, newline, data = data.partition(b"\n")
                self._arrived += len(echoed)
                self._words = newline
            if self._words:
                self._words = (self._words + data)[:_MOST_WORDS_BYTES]
            self._news.set()
        self._is_over = True
        self._news.set()
        self.kill()
        status = await asyncio.to_thread(self._process.wait)
        said = self._words.decode("ascii", "replace").strip()
        return said or f"exited with status {status}"

    async def _heard(self) -> bytes:
        try:
            return await asyncio.get_running_loop().sock_recv(self._control, 4_096)
        except OSError:
            return b""
