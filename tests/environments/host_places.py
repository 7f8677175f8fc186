"""The host sides that a hostile worker is let loose on: one for each way to a sandbox.

All of them are the real classes; only what is beyond the wire is played. Each session ends by
itself: the worker answers a few requests and then closes its end, whatever the host makes of it.
"""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, ClassVar, Literal
from unittest import mock

from rlm.environments import _frames
from rlm.environments._clock import ProcessState
from rlm.environments._forked import ForkedSession
from rlm.environments._relay import Relay
from rlm.environments._session import WorkerSession, greeting_of
from rlm.environments.inprocess import InProcessEnvironment
from rlm.environments.pipes import LinesPipe, Pipe
from rlm.environments.ray.actor import Carrier
from rlm.environments.remote import RemoteEnvironment
from rlm.environments.wasm import process as wasm_process
from rlm.environments.wasm.process import ChildProcess
from rlm.errors import CallRefused
from rlm.worker import multiplex, relay, wire
from tests.environments.hostile_worker import (
    HostileWorker,
    Worker,
    report_of_a_zygote,
)

__all__ = ["ANSWER_CHARS", "KEPT_CHARS", "PLACES", "MakeWorker"]

KEPT_CHARS, ANSWER_CHARS = 2_000, 20_000
OPTIONS = {"kept_output_chars": KEPT_CHARS, "max_submission_chars": ANSWER_CHARS}
MakeWorker = Callable[[Callable[[bytes], Coroutine[Any, Any, None]]], Worker]


class CountingHost:
    """Answers at once, and never with more than it was asked."""

    def __init__(self) -> None:
        self.calls = 0

    async def answer(
        self, kind: str, arguments: dict[str, Any], parts: Sequence[str]
    ) -> tuple[dict[str, Any], Sequence[str]]:
        self.calls += 1
        if self.calls % 5 == 0:
            await asyncio.sleep(0)
        if self.calls % 7 == 0:
            raise CallRefused("no", limit="calls")
        prompts = len(arguments.get("contexts", parts)) if kind in ("llm", "rlm") else 0
        return {"failed": {}}, ["r"] * prompts


async def play(end: socket.socket, make: MakeWorker) -> Worker:
    """Be the worker at a socket until one side has had enough."""
    loop = asyncio.get_running_loop()
    end.setblocking(False)

    async def write(data: bytes) -> None:
        await loop.sock_sendall(end, data)

    worker = make(write)
    with end:
        try:
            while not worker.is_over and (data := await loop.sock_recv(end, 1 << 16)):
                await worker.take(data)
        except OSError:
            pass  # The host has hung up.
    return worker


# -- a session on a socket: `local`, `wasm` -------------------------------------------------------


class PlayedProcess:
    """Implements `WorkerProcess`."""

    def __init__(self) -> None:
        self._gone = asyncio.Event()

    def interrupt(self) -> None:
        return

    def kill(self) -> None:
        self._gone.set()

    async def signals_sent(self) -> None:
        return

    async def state(self) -> ProcessState | None:
        return None

    def stream_ended(self) -> None:
        self.kill()

    async def wait(self) -> str:
        await self._gone.wait()
        return "was killed"

    async def clean_up(self) -> None:
        return


async def on_stream(make: MakeWorker) -> AsyncGenerator[Any, None]:
    ours, theirs = socket.socketpair()
    playing = asyncio.create_task(play(theirs, make))
    try:
        yield await WorkerSession.connect(
            ours,
            CountingHost(),
            PlayedProcess(),
            greeting_of(OPTIONS),
            bounds=_frames.SessionBounds.of(OPTIONS),
        )
    finally:
        await playing


async def on_wasm(make: MakeWorker) -> AsyncGenerator[Any, None]:
    """The child's line of control is played too."""
    lines: list[socket.socket] = []

    def started(_: int, mark: str, sockets: list[socket.socket]) -> Any:
        lines.extend(each.dup() for each in sockets)
        return mock.Mock(returncode=None, wait=lambda *_: -9)

    with mock.patch.object(wasm_process, "started", started):
        child = ChildProcess(1 << 20)
    stream, control = lines
    control.setblocking(False)

    async def tell() -> None:
        worker = await play(stream, make)
        words = worker.monitor_lines() if isinstance(worker, HostileWorker) else b"\nbye"
        with control:
            control.send(words[:100_000])

    playing = asyncio.create_task(tell())
    try:
        session = await WorkerSession.connect(
            child.connection,
            CountingHost(),
            child,
            greeting_of(OPTIONS),
            sends_fds=False,
            bounds=_frames.SessionBounds.of(OPTIONS),
        )
        yield session
    finally:
        await playing


# -- with a monitor: `local`, `docker` by its socket ---------------------------------------------


def ends_played_by(make: MakeWorker) -> tuple[tuple[socket.socket, socket.socket], Any]:
    """The host's ends of a session, and the task that plays the others."""
    stream, workers_end = socket.socketpair()
    monitor, zygotes_end = socket.socketpair()
    zygotes_end.setblocking(False)

    async def both() -> None:
        with zygotes_end:
            worker = await play(workers_end, make)
            try:
                if isinstance(worker, HostileWorker):
                    zygotes_end.send(worker.monitor_lines())
            except OSError:
                return

    return (stream, monitor), asyncio.create_task(both())


async def on_monitor(make: MakeWorker) -> AsyncGenerator[Any, None]:
    ends, playing = ends_played_by(make)
    try:
        yield await ForkedSession(
            ends,
            CountingHost(),
            OPTIONS,
            report={**report_of_a_zygote(), "forks": True},
        ).start(greeting_of(OPTIONS))
    finally:
        await playing


# -- through a pipe: `docker` by its streams, the clouds, `ray` -----------------------------------


class Sandbox:
    """What is at the other end of a pipe: a relay, a zygote and a worker, all in one."""

    def __init__(self, make: MakeWorker, skip_bytes: int) -> None:
        self.outgoing: asyncio.Queue[bytes] = asyncio.Queue()
        self._multiplexer = multiplex.Multiplexer()
        self._worker = make(self._write)
        self._skip_bytes = skip_bytes
        self._room = asyncio.Event()
        self._stream: asyncio.Queue[bytes] = asyncio.Queue()
        self._playing = asyncio.create_task(self._play())
        if skip_bytes == 0:
            self.say(multiplex.CONTROL, b"")

    def say(self, channel: int, data: bytes) -> None:
        self.outgoing.put_nowait(self._multiplexer.packed(channel, data))

    def hear(self, data: bytes) -> None:
        """What the host sent; first of all the archive of the real worker, which is not needed."""
        skipped = min(len(data), self._skip_bytes)
        self._skip_bytes -= skipped
        if skipped and not self._skip_bytes:
            self.say(multiplex.CONTROL, b"")
        for channel, piece in self._multiplexer.feed(data[skipped:]):
            if channel == multiplex.CONTROL:
                self._report()
            elif channel == multiplex.STREAM:
                self._stream.put_nowait(piece)
                if told := self._multiplexer.took(channel, len(piece)):
                    self.outgoing.put_nowait(told)
            elif channel == multiplex.MONITOR and not piece and not self._is_deaf():
                self.outgoing.put_nowait(b"")
        self._room.set()

    def _is_deaf(self) -> bool:
        """Return whether it does not end when it should."""
        worker = self._worker
        return isinstance(worker, HostileWorker) and worker.random.random() < 0.1

    async def close(self) -> None:
        self._playing.cancel()
        self.outgoing.put_nowait(b"")
        await asyncio.gather(self._playing, return_exceptions=True)

    def _report(self) -> None:
        worker = self._worker
        if isinstance(worker, HostileWorker):
            data = worker.report()
        else:
            text = json.dumps(report_of_a_zygote()).encode()
            data = struct.pack("<I", len(text)) + text
        for at in range(0, len(data), multiplex.MAX_PIECE_BYTES):
            self.say(multiplex.CONTROL, data[at : at + multiplex.MAX_PIECE_BYTES])
        if worker.is_over:
            self.outgoing.put_nowait(b"")

    async def _play(self) -> None:
        worker = self._worker
        while not worker.is_over and (data := await self._stream.get()):
            await worker.take(data)
        if isinstance(worker, HostileWorker):
            self.say(multiplex.MONITOR, worker.monitor_lines()[: multiplex.MAX_PIECE_BYTES])
            for piece in worker.mux_pieces():
                self.outgoing.put_nowait(piece)
        self.say(multiplex.STREAM, b"")
        self.outgoing.put_nowait(b"")

    async def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            while not (room := self._multiplexer.room(multiplex.STREAM)):
                self._room.clear()
                await self._room.wait()
            self.say(multiplex.STREAM, bytes(rest[:room]))
            rest = rest[room:]


class BytesTo:
    """Implements `Pipe`."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    async def send(self, data: bytes) -> None:
        self._sandbox.hear(data)

    async def receive(self) -> bytes:
        return await self._sandbox.outgoing.get()

    async def close(self) -> None:
        await self._sandbox.close()

    async def ending(self) -> str:
        return "ended"


class RemoteBytes(RemoteEnvironment):
    """A provider whose sandboxes are played."""

    name = "remote"
    is_paid = False
    carries: ClassVar[Literal["bytes", "lines"]] = "bytes"

    def __init__(self, make: MakeWorker) -> None:
        super().__init__()
        self._make = make

    async def start(self, command: Sequence[str]) -> Pipe:
        return BytesTo(Sandbox(self._make, len(self._archive())))


class RemoteLines(RemoteBytes):
    carries: ClassVar[Literal["bytes", "lines"]] = "lines"

    async def start(self, command: Sequence[str]) -> Pipe:
        sandbox = Sandbox(self._make, len(self._archive()))
        arrived = multiplex.LineReader(relay.FROM_HOST)
        arrived_first = True

        async def write(text: str) -> None:
            nonlocal arrived_first
            if arrived_first:
                arrived_first = False
                sandbox.hear(self._archive())
            else:
                sandbox.hear(arrived.feed(text.encode()))

        async def texts() -> AsyncIterator[str]:
            yield "a banner\n<not for you\n>\n"
            while data := await sandbox.outgoing.get():
                for at in range(0, len(data), 60_000):
                    yield multiplex.to_line(data[at : at + 60_000], relay.TO_HOST)
                if len(data) % 13 == 0:
                    yield ">" + "x" * len(data) + "\n"  # A line that is not base64.

        return LinesPipe(write, texts(), sandbox.close, _ended)


async def _ended() -> str:
    return "ended"


def remote(kind: type[RemoteBytes]) -> Callable[[MakeWorker], AsyncGenerator[Any, None]]:
    async def on_pipe(make: MakeWorker) -> AsyncGenerator[Any, None]:
        environment = kind(make)
        try:
            yield await environment.open(CountingHost(), OPTIONS)
        finally:
            await environment.close()

    return on_pipe


class Carried:
    """A carrier on a node of Ray, as a pipe; implements `Pipe`."""

    def __init__(self, carrier: Carrier) -> None:
        self.carrier = carrier

    async def send(self, data: bytes) -> None:
        self.carrier.take(data)

    async def receive(self) -> bytes:
        return await self.carrier.give()

    async def close(self) -> None:
        await self.carrier.close()

    async def ending(self) -> str:
        return "has ended"


async def on_carrier(make: MakeWorker) -> AsyncGenerator[Any, None]:
    ends, playing = ends_played_by(make)
    relay = Relay(Carried(Carrier(ends)))
    try:
        yield await ForkedSession(
            relay.connect(),
            CountingHost(),
            OPTIONS,
            report=report_of_a_zygote(),
            sends_fds=False,
            close_sandbox=relay.close,
        ).start(greeting_of(OPTIONS))
    finally:
        await relay.close()
        await playing


# -- in this very process -------------------------------------------------------------------------


async def on_inprocess(make: MakeWorker) -> AsyncGenerator[Any, None]:
    """Cells have no wire here; their calls are checked by the same code, and so are their ends."""
    environment = InProcessEnvironment()
    session = await environment.open(CountingHost(), {**OPTIONS, "tools": []})
    calls: list[bytes] = []

    async def write(data: bytes) -> None:
        calls.append(data)

    worker = make(write)
    for request in range(4):
        await worker.take(wire.encode(wire.EXEC, request, [b"x"]))
    decoder = wire.Decoder(wire.TO_HOST, wire.MAX_TO_HOST_BYTES)
    decoder.feed(b"".join(calls))
    try:
        for _ in range(300):
            if (frame := decoder.pop()) is None:
                break
            if frame.type == wire.CALL:
                answered = asyncio.get_running_loop().create_future()
                session._start_call(frame.parts, answered.set_result)
                await answered
    except wire.WireError:
        pass  # No task would continue reading.
    try:
        yield session
    finally:
        await environment.close()


PLACES: dict[str, Callable[[MakeWorker], AsyncGenerator[Any, None]]] = {
    "stream": on_stream,
    "wasm": on_wasm,
    "monitor": on_monitor,
    "bytes": remote(RemoteBytes),
    "lines": remote(RemoteLines),
    "ray": on_carrier,
    "inprocess": on_inprocess,
}
