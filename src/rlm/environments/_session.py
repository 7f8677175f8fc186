"""The host side of a session, shared by every environment that can offer a byte stream.

The environment brings a connected socket and a `WorkerProcess`; everything else happens here:
requests to the worker, answers to what its cells ask, the clock of a cell, and its death.
"""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from rlm.environments import _frames
from rlm.environments._clock import WAITS_FOR, CellClock, CellStopper, timed_out
from rlm.environments._shared import shared_context, worth_sharing
from rlm.environments._stream import Stream
from rlm.environments._worker import GREETING_ID, WorkerProcess, greeting_of
from rlm.errors import CallRefused, ProtocolViolation, RLMError, SessionDied, SessionError
from rlm.protocols import ContextSource, Host
from rlm.results import CellResult
from rlm.worker import wire
from rlm.worker.bounds import MAX_VARIABLES

__all__ = ["Lend", "StreamSession", "WorkerProcess", "greeting_of", "note_names"]

Lend = Callable[[ContextSource], Awaitable[dict[str, Any] | None]]
"""Has a context's file go along with the next request, where this process can't send it itself.

Returns its layout, or None if the bytes have to be sent.
"""

_Read = TypeVar("_Read")
_LOAD_CHUNK_BYTES = 4 << 20
_MAX_PENDING_CALLS = 4_096
_MAX_PENDING_BYTES = 64 << 20
_MAX_HELD_BYTES = 16 << 20
_MAX_FRAMES_AT_ONCE = 64
"""Then others on the event loop have their turn."""
_OFF_LOOP_BYTES = 256 << 10
"""Longer frames are decoded in a thread."""
_START_SECONDS = 30.0
_FETCH_SECONDS = 10.0
_FAREWELL_SECONDS = 0.5
_FAILED_CALL_SECONDS = 0.01
"""What a failed call costs of a cell's time, so that a loop of nothing but those ends soon."""

_NOTHING_TO_TELL: tuple[dict[str, Any], ...] = ({}, {"failed": {}})


class StreamSession:
    """A live interpreter at the end of a socket; implements `rlm.protocols.Session`."""

    def __init__(
        self,
        connection: socket.socket,
        host: Host,
        process: WorkerProcess,
        *,
        sends_fds: bool = True,
        lend: Lend | None = None,
        bounds: _frames.SessionBounds | None = None,
    ) -> None:
        self._sends_fds = sends_fds
        self._lend = lend
        self._bounds = bounds or _frames.SessionBounds()
        self._stream = Stream(connection, self._on_data, process.stream_ended)
        self._host = host
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._decoder = wire.Decoder(wire.TO_HOST, wire.MAX_TO_HOST_BYTES)
        self._decoder.limits = self._bounds.after(wire.INIT)
        self._one_request = asyncio.Lock()
        self._last_id = 0
        self._expected = 0
        self._reply: asyncio.Future[wire.Frame] | None = None
        self._calls: dict[int, asyncio.Task[None] | None] = {}  # None for one that is beginning
        self._prompts = 0
        self._held_bytes = self._pending_bytes = self._received_bytes = 0
        self._is_behind = False  # Frames have arrived that others' turns come before.
        self._stopper = CellStopper(process, lambda: self._received_bytes, self._on_stuck_cell)
        self._clock = CellClock(self._loop, self._stopper.time_is_up)
        self._variables: dict[str, None] = {}
        self._ended: RLMError | None = None
        self._obituary: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def connect(
        cls,
        connection: socket.socket,
        host: Host,
        process: WorkerProcess,
        greeting: bytes | None,
        *,
        sends_fds: bool = True,
        lend: Lend | None = None,
        bounds: _frames.SessionBounds | None = None,
    ) -> "StreamSession":
        """Shake hands with a new worker; it is killed if that fails.

        `greeting` is that of `greeting_of`, or None if the worker has been sent it already.
        `sends_fds` is False if the socket leads to one that can't carry descriptors; `lend` may
        see to it that somebody near the worker sends them. `bounds` are those of its frames.
        """
        session = cls(connection, host, process, sends_fds=sends_fds, lend=lend, bounds=bounds)
        too_late = SessionDied(f"the worker did not start within {_START_SECONDS:g} s")
        timer = session._loop.call_later(_START_SECONDS, session._end, too_late)
        try:
            await session._shake_hands(greeting)
        except BaseException:  # Who does not end now ends with what is around it.
            await asyncio.wait([asyncio.ensure_future(session.close())], timeout=_FAREWELL_SECONDS)
            raise
        finally:
            timer.cancel()
        return session

    @classmethod
    async def resume(
        cls,
        connection: socket.socket,
        host: Host,
        process: WorkerProcess,
        variables: Sequence[str],
        bounds: _frames.SessionBounds | None = None,
        *,
        cpu_seconds: float,
    ) -> "StreamSession":
        """Go on with a checkpoint, which waits at the other end with these variables.

        `cpu_seconds` is the processor time that its session has used so far.
        """
        session = cls(connection, host, process, bounds=bounds)
        session._variables.update(dict.fromkeys(variables))
        spent = wire.to_json({"cpu_seconds": cpu_seconds})
        await session._request(wire.RESUME, [spent], wire.VALUE)
        return session

    # What the engine calls.

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the user's variables, as far as known."""
        return tuple(self._variables)

    @property
    def is_busy(self) -> bool:
        """Whether a request is going on, or none can be made any more."""
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
        """Hand over the file that all sessions map; written once, in another thread."""
        shared = await asyncio.to_thread(shared_context, context)
        parts = [wire.to_bytes(name), wire.to_json(shared.layout)]
        async with self._one_request:
            with shared.reopened() as fd:
                return await self._exchange(wire.LOAD_SHARED, parts, wire.VALUE, [fd])

    async def _load_lent(self, name: str, context: ContextSource) -> wire.Frame | None:
        """Have somebody near the worker hand over a file; None if nobody can."""
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
            except BaseException:  # the worker holds half a context now
                self._end(SessionDied(f"{name} could not be read to its end"))
                raise
            parts = [wire.to_bytes(name), wire.to_bytes(context.kind)]
            return await self._exchange(wire.LOAD_END, parts, wire.VALUE)

    async def set_tools(self, tools: list[dict[str, str]]) -> None:
        """From now on there are these tools ({"name", "description"}), and no others."""
        async with self._one_request:
            self._check_alive()
            self._stream.write(wire.encode(wire.LOAD, 0, [wire.to_json(tools)]))
            parts = [wire.to_bytes("tools"), wire.to_bytes("tools")]
            await self._exchange(wire.LOAD_END, parts, wire.VALUE)

    async def execute(self, code: str, *, timeout_seconds: float) -> CellResult:
        """Run a cell; waiting for models and tools does not count towards `timeout_seconds`."""
        async with self._one_request:
            await self._process.settle()  # What was meant for another cell must not stop this one.
            self._prompts = 0
            self._stopper.time_was_up = False
            started = self._loop.time()
            self._clock.start(timeout_seconds)
            try:
                frame = await self._exchange(wire.EXEC, [wire.to_bytes(code)], wire.DONE)
            finally:
                self._clock.stop()
            seconds = self._loop.time() - started
            read = partial(_frames.read_done, calls=self._prompts, seconds=seconds)
            done = await self._checked(frame, partial(read, within=self._bounds))
        self._note_variables(done)
        if done.result.interrupted and self._stopper.time_was_up:
            return timed_out(done.result, self._clock.ran_out_seconds)
        return done.result

    async def fetch(self, name: str) -> str | None:
        """The text of a variable; None if there is none or it has no text."""
        frame = await self._ask(wire.FETCH, [wire.to_bytes(name)])
        return (await self._checked(frame, partial(_frames.read_value, within=self._bounds)))[0]

    async def list_files(self, folder: str) -> list[tuple[str, int]]:
        """What the worker says is in a folder of its own: names and sizes."""
        frame = await self._ask(wire.LIST_FILES, [wire.to_bytes(folder)])
        return await self._checked(frame, _frames.read_files)

    async def read_file(self, folder: str, name: str, offset: int) -> bytes:
        """A piece of such a file; empty at its end."""
        parts = [wire.to_bytes(folder), wire.to_bytes(name), wire.to_json(offset)]
        return await self._checked(await self._ask(wire.READ_FILE, parts), _frames.read_piece)

    async def checkpoint(self, fd: int) -> bool:
        """Have the worker fork a copy that listens at `fd`; False if it can't be done now."""
        frame = await self._ask(wire.CHECKPOINT, [], [fd])
        return (await self._checked(frame, _frames.read_value))[1] is None

    async def interrupt(self) -> None:
        """Stop the running cell; its variables stay."""
        if self._reply is not None:
            self._stopper.interrupt()

    async def close(self) -> None:
        """End the worker and everything it started, within a second; may be called twice."""
        if self._closing is None:
            self._end(SessionDied("the session was closed"))
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        tasks = [task for task in self._calls.values() if task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=_FAREWELL_SECONDS)
        await self._process.wait()
        if self._obituary is not None:
            await asyncio.wait([self._obituary], timeout=_FAREWELL_SECONDS)
        await self._process.clean_up()

    # Requests: one at a time, each answered by exactly one frame.

    async def _shake_hands(self, greeting: bytes | None) -> None:
        async with self._one_request:
            await self._answer_to(GREETING_ID, greeting, wire.READY)

    async def _request(self, kind: int, parts: list[bytes], expected: int) -> wire.Frame:
        async with self._one_request:
            return await self._exchange(kind, parts, expected)

    async def _ask(self, kind: int, parts: list[bytes], fds: Sequence[int] = ()) -> wire.Frame:
        """A request that may run user code, or meet a worker that is stuck: it has a time limit."""
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
        """Send a request, unless it has been sent, and wait for the frame that answers it."""
        self._last_id = request_id
        self._expected = expected
        self._reply = self._loop.create_future()
        try:
            if data is not None:
                self._stream.write(data, fds)
            if self._obituary is None:  # This is the first request: the worker is at it by now.
                self._obituary = self._loop.create_task(self._await_death())
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
        """Read an answer, in a thread if it is long; what is none ends the session."""
        try:
            if frame.size_bytes <= _OFF_LOOP_BYTES:
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
        self._take_frames()

    def _take_frames(self) -> None:
        """Take what has arrived, or a part of it if it is a flood of frames."""
        try:
            for _ in range(_MAX_FRAMES_AT_ONCE):
                if self._ended is not None or (frame := self._decoder.pop()) is None:
                    if self._is_behind:
                        self._is_behind = False
                        self._pace()
                    return
                self._take(frame)
            self._is_behind = True
            self._pace()
            self._loop.call_soon(self._take_frames)
        except wire.WireError as error:
            self._end(ProtocolViolation(f"the worker sent a malformed frame: {error}"))
        except ProtocolViolation as error:
            self._end(error)

    def _pace(self) -> None:
        """Read on, unless more waits here than may: to be taken, answered, or read over there."""
        waiting = self._held_bytes > _MAX_HELD_BYTES or self._pending_bytes > _MAX_PENDING_BYTES
        self._stream.read(not waiting and not self._is_behind)

    def _take(self, frame: wire.Frame) -> None:
        if frame.type == wire.CALL:
            self._start_call(frame)
        elif self._reply is None or self._reply.done():
            raise ProtocolViolation(f"the worker sent a frame of type {frame.type} unasked")
        elif frame.type != self._expected or frame.id != self._last_id:
            raise ProtocolViolation(f"the worker sent a frame of type {frame.type} out of turn")
        else:
            self._reply.set_result(frame)

    # Calls from cells: each is a task, so that they are answered concurrently and in any order.

    def _start_call(self, frame: wire.Frame) -> None:
        call = _read_call(frame) if frame.size_bytes <= _OFF_LOOP_BYTES else None
        if frame.id in self._calls:
            raise ProtocolViolation("the worker used the same call id twice")
        if len(self._calls) >= _MAX_PENDING_CALLS:
            raise ProtocolViolation(f"more than {_MAX_PENDING_CALLS:,} calls at the same time")
        if isinstance(call, _frames.Call):
            self._begin(frame.id, call)
        self._calls[frame.id] = None
        self._pending_bytes += frame.size_bytes
        if self._pending_bytes > _MAX_PENDING_BYTES:
            self._pace()
        task = _begun(self._loop, self._answer(frame, call))
        if frame.id in self._calls:  # Else it is answered, or its answer only waits to be read.
            self._calls[frame.id] = task
            if self._ended is not None:
                task.cancel()

    def _begin(self, call_id: int, call: _frames.Call) -> None:
        """Count what a call asks; the cell's clock stands still for some kinds."""
        self._prompts += call.prompts
        if call.kind in WAITS_FOR:
            self._clock.begin_wait(call_id)

    async def _answer(self, frame: wire.Frame, call: _frames.Call | CallRefused | None) -> None:
        try:
            if call is None:
                call = await asyncio.to_thread(_read_call, frame)
                if isinstance(call, _frames.Call):
                    self._begin(frame.id, call)
            frame.parts.clear()
            data, failed = await self._answer_frame(frame.id, call)
            if failed:
                self._clock.charge(_FAILED_CALL_SECONDS)
        except ProtocolViolation as error:
            self._end(error)
            return
        finally:
            del self._calls[frame.id]
            was_full = self._pending_bytes > _MAX_PENDING_BYTES
            self._pending_bytes -= frame.size_bytes
            self._clock.end_wait(frame.id)
            if was_full:
                self._pace()
        if self._stream.is_full:
            await self._until_read(len(data))
        self._stream.write(data)

    async def _until_read(self, size: int) -> None:
        """Hold an answer back while the worker does not read; with many of them, nor do we."""
        self._held_bytes += size
        self._pace()
        await self._stream.until_room()
        self._held_bytes -= size
        self._pace()

    async def _answer_frame(
        self, call_id: int, call: _frames.Call | CallRefused
    ) -> tuple[bytes, bool]:
        """The answer to send, and whether all of it failed."""
        try:
            if isinstance(call, CallRefused):
                raise call
            meta, texts = await self._host.answer(call.kind, call.arguments, call.parts)
            # Nothing to tell, as after most model calls, is an empty part.
            told = b"" if meta in _NOTHING_TO_TELL else wire.to_json(meta)
            parts = [told, *[wire.to_bytes(text) for text in texts]]
            failed = 0 < len(texts) == len(meta.get("failed", ()))
            return wire.encode(wire.ANSWER, call_id, parts), failed
        except Exception as error:  # noqa: BLE001 - the border to the host: its errors are answers
            meta = {"type": type(error).__name__, "message": str(error)}
            return wire.encode(wire.ANSWER_ERROR, call_id, [wire.to_json(meta)]), True

    # The end.

    def _on_stuck_cell(self, how: str) -> None:
        self._end(SessionDied(f"the cell {how}, so it was killed"))

    async def _await_death(self) -> None:
        how = await self._process.wait()
        self._end(SessionDied(f"the worker {how}"))

    def _end(self, error: RLMError) -> None:
        """Kill the worker and fail whatever waits; the first reason is the one that counts."""
        if self._ended is not None:
            return
        self._ended = error
        self._process.kill()
        self._clock.close()
        self._stopper.stop()
        self._stream.close()
        for task in self._calls.values():
            if task is not None:
                task.cancel()
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(type(error)(str(error)))


def _begun(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]
) -> "asyncio.Task[None]":
    """A task that has begun where Python allows it: most answers are then done at once."""
    if sys.version_info >= (3, 12):
        return asyncio.Task(work, loop=loop, eager_start=True)
    return loop.create_task(work)


def _read_call(frame: wire.Frame) -> _frames.Call | CallRefused:
    """What is asked, or why it is not let through, which the cell can be told."""
    try:
        return _frames.read_call(frame)
    except CallRefused as error:
        return error


def note_names(known: dict[str, None], names: Iterable[str]) -> None:
    """Add names of variables, as many as are remembered of one session."""
    for name in names:
        if len(known) < MAX_VARIABLES:
            known[name] = None
