"""The host side of a session with a worker at the other end of a socket.

The environment brings a connected socket and a `WorkerProcess`. This module sends requests to the
worker, one at a time, limits the time of its cells, and notices its death; `_calls` answers what
its cells ask.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from rlm.environments import _frames
from rlm.environments._calls import OFF_LOOP_BYTES, PendingCalls
from rlm.environments._clock import CellClock, CellStopper, Interruptible, timed_out
from rlm.environments._pumped import stream_over
from rlm.environments._shared import shared_context, worth_sharing
from rlm.errors import ProtocolViolation, RLMError, SessionDied, SessionError
from rlm.protocols import BaseSession, ContextSource, Host
from rlm.results import CellResult
from rlm.worker import wire
from rlm.worker.bounds import MAX_ANSWER_CHARS, MAX_VARIABLES

__all__ = ["Lend", "WorkerProcess", "WorkerSession", "greeting_of", "note_names"]

Lend = Callable[[ContextSource], Awaitable[dict[str, Any] | None]]
"""Attach a context's file to the next request, where this process can't send it itself.

Returns the layout of the file, or None if the bytes have to be sent.
"""

_Read = TypeVar("_Read")
_GREETING_ID = 1
_LOAD_CHUNK_BYTES = 4 << 20
_MAX_FRAMES_AT_ONCE = 64
"""After this many frames, other tasks on the event loop get a turn."""
_START_SECONDS = 30.0
_FETCH_SECONDS = 10.0
_CLOSE_SECONDS = 0.5

_WORKER_DEFAULTS: dict[str, Any] = {
    "seed": 0,
    "tools": [],
    "kept_output_chars": 1_000_000,
    "max_submission_chars": MAX_ANSWER_CHARS,
    "cell_memory_bytes": None,
    "preload": [],
    "shell": "python",
    "names": "",
}


def greeting_of(options: dict[str, Any]) -> bytes:
    """Return the first frame of a session, which holds the worker's settings."""
    settings = {name: options.get(name, value) for name, value in _WORKER_DEFAULTS.items()}
    return wire.encode(wire.INIT, _GREETING_ID, [wire.to_json(settings)])


class WorkerProcess(Interruptible, Protocol):
    """What a session needs to know about the process at the other end of its socket."""

    def kill(self) -> None:
        """End the process and everything it started, without waiting."""

    async def wait(self) -> str:
        """Wait until the process has ended; return how, as in `was killed by SIGSEGV`."""

    def stream_ended(self) -> None:
        """Note that the socket was closed, and make sure that the process ends too."""

    async def clean_up(self) -> None:
        """Remove what the process left behind."""


class WorkerSession(BaseSession):
    """A live interpreter at the other end of a socket; implements `rlm.protocols.Session`."""

    def __init__(
        self,
        connection: socket.socket,
        host: Host,
        worker: WorkerProcess,
        *,
        sends_fds: bool = True,
        lend: Lend | None = None,
        bounds: _frames.SessionBounds | None = None,
    ) -> None:
        self._host = host
        self._worker = worker
        self._sends_fds = sends_fds
        self._lend = lend
        self._bounds = bounds or _frames.SessionBounds()
        self._loop = asyncio.get_running_loop()
        self._one_request = asyncio.Lock()
        self._variables: dict[str, None] = {}
        self._closing: asyncio.Task[None] | None = None
        self._on_closed: Callable[[Any], None] = lambda _: None
        self._attach(connection)

    def _attach(self, connection: socket.socket) -> None:
        """Talk to the worker at the other end of a new connection; nothing is pending there."""
        self._stream = stream_over(connection, self._on_data, self._worker.stream_ended)
        self._decoder = wire.Decoder(wire.TO_HOST, wire.MAX_TO_HOST_BYTES)
        self._decoder.limits = self._bounds.after(wire.INIT)
        self._last_id = self._expected = self._received_bytes = 0
        self._reply: asyncio.Future[wire.Frame] | None = None
        self._is_behind = False  # True: frames have arrived that must wait for other tasks.
        self._stopper = CellStopper(self._worker, lambda: self._received_bytes, self._on_stuck_cell)
        self._clock = CellClock(self._loop, self._stopper.time_is_up)
        self._calls = PendingCalls(self._host, self._stream, self._clock, self._pace, self._end)
        self._ended: RLMError | None = None
        self._watching: asyncio.Task[None] | None = None

    @classmethod
    async def connect(
        cls,
        connection: socket.socket,
        host: Host,
        worker: WorkerProcess,
        greeting: bytes | None,
        *,
        sends_fds: bool = True,
        lend: Lend | None = None,
        bounds: _frames.SessionBounds | None = None,
    ) -> "WorkerSession":
        """Shake hands with a new worker; it is killed if that fails.

        `greeting` comes from `greeting_of`; None if the worker already has it.
        `sends_fds` is False if the socket can't carry file descriptors to the worker; `lend` may
        have another process send them. `bounds` limits the frames of the session.
        """
        session = cls(connection, host, worker, sends_fds=sends_fds, lend=lend, bounds=bounds)
        await session._shake_hands(greeting)
        return session

    # What the engine calls.

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the user's variables, as far as they are known."""
        return tuple(self._variables)

    @property
    def is_busy(self) -> bool:
        """Whether a request is in progress, or the session has ended."""
        return self._ended is not None or self._one_request.locked()

    async def load(self, name: str, context: ContextSource) -> None:
        """Bind a stored context to a name in the REPL."""
        if self._sends_fds and self._stream.can_send_fds and worth_sharing(context):
            frame = await self._load_shared(name, context)
        else:
            frame = await self._load_lent(name, context) or await self._load_bytes(name, context)
        _, error = await self._checked(frame, _frames.read_value)
        if error is not None:
            raise SessionError(f"{name} could not be loaded: {error}")

    async def _load_shared(self, name: str, context: ContextSource) -> wire.Frame:
        """Send the file that all sessions map; a thread writes it once."""
        shared = await asyncio.to_thread(shared_context, context)
        parts = [wire.to_bytes(name), wire.to_json(shared.layout)]
        async with self._one_request:
            with shared.reopened() as fd:
                return await self._exchange(wire.LOAD_SHARED, parts, wire.VALUE, [fd])

    async def _load_lent(self, name: str, context: ContextSource) -> wire.Frame | None:
        """Have a process near the worker send the file; None if there is none."""
        if self._lend is None or not worth_sharing(context):
            return None
        async with self._one_request:
            self._check_alive()
            layout = await self._lend(context)
            if layout is None:
                return None
            parts = [wire.to_bytes(name), wire.to_json(layout)]
            return await self._exchange(wire.LOAD_SHARED, parts, wire.VALUE)

    async def _load_bytes(self, name: str, context: ContextSource) -> wire.Frame:
        async with self._one_request:
            self._check_alive()
            try:
                for chunk in context.chunks(_LOAD_CHUNK_BYTES):
                    await self._stream.until_room()
                    self._check_alive()
                    self._stream.write(wire.encode(wire.LOAD, 0, [chunk]))
            except BaseException:  # The worker now holds half a context.
                self._end(SessionDied(f"{name} could not be read to the end"))
                raise
            parts = [wire.to_bytes(name), wire.to_bytes(context.kind)]
            return await self._exchange(wire.LOAD_END, parts, wire.VALUE)

    async def set_tools(self, tools: list[dict[str, str]]) -> None:
        """Replace the tools of the session; each has a "name" and a "description"."""
        async with self._one_request:
            self._check_alive()
            self._stream.write(wire.encode(wire.LOAD, 0, [wire.to_json(tools)]))
            parts = [wire.to_bytes("tools"), wire.to_bytes("tools")]
            await self._exchange(wire.LOAD_END, parts, wire.VALUE)

    async def execute(self, code: str, *, timeout_seconds: float) -> CellResult:
        """Run a cell; waiting for models and tools does not count towards `timeout_seconds`."""
        async with self._one_request:
            await self._worker.signals_sent()  # A signal for another cell must not stop this one.
            self._calls.prompts = 0
            self._stopper.time_was_up = False
            started = self._loop.time()
            self._clock.start(timeout_seconds)
            try:
                frame = await self._exchange(wire.EXEC, [wire.to_bytes(code)], wire.DONE)
            finally:
                self._clock.stop()
            seconds = self._loop.time() - started
            read = partial(_frames.read_done, calls=self._calls.prompts, seconds=seconds)
            done = await self._checked(frame, partial(read, within=self._bounds))
        self._note_variables(done)
        if done.result.interrupted and self._stopper.time_was_up:
            return timed_out(done.result, self._clock.ran_out_seconds)
        return done.result

    async def fetch(self, name: str) -> str | None:
        """Return the text of a variable, or None if there is none or it has no text."""
        frame = await self._ask(wire.FETCH, [wire.to_bytes(name)])
        return (await self._checked(frame, partial(_frames.read_value, within=self._bounds)))[0]

    async def list_files(self, folder: str) -> list[tuple[str, int]]:
        """Return the names and sizes of the files in a folder, as the worker reports them."""
        frame = await self._ask(wire.LIST_FILES, [wire.to_bytes(folder)])
        return await self._checked(frame, _frames.read_files)

    async def read_file(self, folder: str, name: str, offset: int) -> bytes:
        """Return a piece of such a file; empty at its end."""
        parts = [wire.to_bytes(folder), wire.to_bytes(name), wire.to_json(offset)]
        return await self._checked(await self._ask(wire.READ_FILE, parts), _frames.read_piece)

    async def checkpoint(self, fd: int) -> bool:
        """Have the worker fork a copy that listens at `fd`; return False if it can't do so now."""
        frame = await self._ask(wire.CHECKPOINT, [], [fd])
        return (await self._checked(frame, _frames.read_value))[1] is None

    async def interrupt(self) -> None:
        """Stop the running cell; its variables stay."""
        if self._reply is not None:
            self._stopper.interrupt()

    def when_closed(self, call: Callable[[Any], None]) -> None:
        """Call this with the session once it is closed."""
        self._on_closed = call

    async def close(self) -> None:
        """End the worker and everything it started, within a second; may be called twice."""
        if self._closing is None:
            self._closing = self._begin_closing()
            self._closing.add_done_callback(lambda _: self._on_closed(self))
        await asyncio.shield(self._closing)

    def _begin_closing(self) -> "asyncio.Task[None]":
        self._end(SessionDied("the session was closed"))
        return self._loop.create_task(self._end_worker())

    async def _end_worker(self) -> None:
        """End the worker, if it is still running, and wait until nothing is left of it."""
        self._end(SessionDied("the session was closed"))
        await self._calls.wait(_CLOSE_SECONDS)
        await self._worker.wait()
        if self._watching is not None:
            await asyncio.wait([self._watching], timeout=_CLOSE_SECONDS)
            self._watching.cancel()
        await self._worker.clean_up()

    # Requests: one at a time, each answered by exactly one frame.

    async def _shake_hands(self, greeting: bytes | None) -> None:
        too_late = SessionDied(f"the worker did not start within {_START_SECONDS:g} s")
        timer = self._loop.call_later(_START_SECONDS, self._end, too_late)
        try:
            async with self._one_request:
                await self._answer_to(_GREETING_ID, greeting, wire.READY)
        except BaseException:  # A worker that does not end now ends with the sandbox around it.
            await asyncio.wait([asyncio.ensure_future(self._end_worker())], timeout=_CLOSE_SECONDS)
            raise
        finally:
            timer.cancel()

    async def _request(self, kind: int, parts: list[bytes], expected: int) -> wire.Frame:
        async with self._one_request:
            return await self._exchange(kind, parts, expected)

    async def _ask(self, kind: int, parts: list[bytes], fds: Sequence[int] = ()) -> wire.Frame:
        """Make a request with a time limit: it may run user code, or the worker may be stuck."""
        async with self._one_request:
            self._clock.start(_FETCH_SECONDS, waits_count=True)
            try:
                return await self._exchange(kind, parts, wire.VALUE, fds)
            finally:
                self._clock.stop()

    async def _exchange(
        self, kind: int, parts: list[bytes], expected: int, fds: Sequence[int] = ()
    ) -> wire.Frame:
        self._check_alive()
        self._decoder.limits = self._bounds.after(kind)
        request_id = self._last_id + 1
        return await self._answer_to(
            request_id, wire.encode(kind, request_id, parts), expected, fds
        )

    async def _answer_to(
        self, request_id: int, data: bytes | None, expected: int, fds: Sequence[int] = ()
    ) -> wire.Frame:
        """Send a request, unless it has been sent, and wait for its answer."""
        self._last_id = request_id
        self._expected = expected
        self._reply = self._loop.create_future()
        try:
            if data is not None:
                self._stream.write(data, fds)
            if self._watching is None:  # This is the first request, and the worker has it now.
                self._watching = self._loop.create_task(self._watch_worker())
                self._stream.read(True)
                self._stream.look()
            return await self._reply
        except asyncio.CancelledError:
            self._end(SessionDied("the session was killed because its request was cancelled"))
            raise
        finally:
            self._reply = None
            self._stopper.stop()

    def _check_alive(self) -> None:
        if self._ended is not None:
            raise type(self._ended)(str(self._ended))

    async def _checked(self, frame: wire.Frame, read: Callable[[wire.Frame], _Read]) -> _Read:
        """Read an answer, in a thread if it is long; an invalid answer ends the session."""
        try:
            if frame.size_bytes <= OFF_LOOP_BYTES:
                return read(frame)
            return await asyncio.to_thread(read, frame)
        except ProtocolViolation as error:
            self._end(error)
            raise

    def _note_variables(self, done: _frames.Done) -> None:
        if done.result.new_variables:
            note_names(self._variables, done.result.new_variables)
        for name in done.deleted_variables:
            self._variables.pop(name, None)

    # Frames from the worker.

    def _on_data(self, data: bytes) -> None:
        self._received_bytes += len(data)
        self._decoder.feed(data)
        self._receive_frames()

    def _receive_frames(self) -> None:
        """Handle the frames that have arrived; if there are very many, only some at a time."""
        try:
            for _ in range(_MAX_FRAMES_AT_ONCE):
                if self._ended is not None or (frame := self._decoder.pop()) is None:
                    if self._is_behind:
                        self._is_behind = False
                        self._pace()
                    return
                self._receive(frame)
            self._is_behind = True
            self._pace()
            self._loop.call_soon(self._receive_frames)
        except wire.WireError as error:
            self._end(ProtocolViolation(f"the worker sent a malformed frame: {error}"))
        except ProtocolViolation as error:
            self._end(error)

    def _pace(self) -> None:
        """Pause or resume reading, depending on how much waits to be handled."""
        self._stream.read(not self._calls.is_full and not self._is_behind)

    def _receive(self, frame: wire.Frame) -> None:
        if frame.type == wire.CALL:
            self._calls.start(frame)
        elif self._reply is None or self._reply.done():
            raise ProtocolViolation(f"the worker sent an unexpected frame of type {frame.type}")
        elif frame.type != self._expected or frame.id != self._last_id:
            raise ProtocolViolation(f"the worker sent a frame of type {frame.type} out of turn")
        else:
            self._reply.set_result(frame)

    # The end.

    def _on_stuck_cell(self, how: str) -> None:
        self._end(SessionDied(f"the cell {how}, so it was killed"))

    async def _watch_worker(self) -> None:
        how = await self._worker.wait()
        self._end(SessionDied(f"the worker {how}"))

    def _end(self, error: RLMError) -> None:
        """Kill the worker and fail everything that waits for it; only the first error counts."""
        if self._ended is not None:
            return
        self._ended = error
        self._worker.kill()
        self._clock.close()
        self._stopper.stop()
        self._stream.close()
        self._calls.cancel()
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(type(error)(str(error)))


def note_names(known: dict[str, None], names: Iterable[str]) -> None:
    """Add names of variables, up to the limit for a session."""
    for name in names:
        if len(known) < MAX_VARIABLES:
            known[name] = None
