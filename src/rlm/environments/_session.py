"""The host side of a session, shared by every environment that can offer a byte stream.

The environment brings a connected socket and a `WorkerProcess`; everything else happens here:
requests to the worker, answers to what its cells ask, the clock of a cell, and its death.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from msgspec import structs

from rlm.environments import _frames
from rlm.environments._clock import CellClock
from rlm.errors import ProtocolViolation, RLMError, SessionDied, SessionError
from rlm.protocols import ContextSource, Host
from rlm.results import CellError, CellResult
from rlm.worker import wire

__all__ = ["StreamSession", "WorkerProcess"]

_Read = TypeVar("_Read")
_READ_BYTES = 1 << 18
_LOAD_CHUNK_BYTES = 4 << 20
_MAX_PENDING_CALLS = 4_096
_START_SECONDS = 30.0
_FETCH_SECONDS = 10.0
_FAREWELL_SECONDS = 0.5
_FAILED_CALL_SECONDS = 0.01
"""What a failed call costs of a cell's time, so that a loop of nothing but those ends soon."""

_WORKER_DEFAULTS: dict[str, Any] = {
    "seed": 0,
    "tools": [],
    "kept_output_chars": 1_000_000,
    "max_submission_chars": 10_000_000,
    "cell_memory_bytes": None,
    "preload": [],
}


class WorkerProcess(Protocol):
    """What a session needs to know of the process at the other end."""

    def interrupt(self) -> None:
        """Send SIGINT, if it still runs."""

    def kill(self) -> None:
        """End it and all it started, at once."""

    async def wait(self) -> str:
        """Wait until it has ended and been reaped; say how, as in `was killed by SIGSEGV`."""

    async def clean_up(self) -> None:
        """Remove what it left behind."""


class StreamSession(asyncio.BufferedProtocol):
    """A live interpreter at the end of a socket; implements `rlm.protocols.Session`."""

    def __init__(self, host: Host, process: WorkerProcess) -> None:
        self._host = host
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray(_READ_BYTES)
        self._decoder = wire.Decoder(wire.TO_HOST, wire.MAX_TO_HOST_BYTES)
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._one_request = asyncio.Lock()
        self._last_id = 0
        self._expected = 0
        self._reply: asyncio.Future[wire.Frame] | None = None
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._prompts = 0
        self._clock = CellClock(self._loop, process.interrupt, self._on_stuck_cell)
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
        options: dict[str, Any],
    ) -> "StreamSession":
        """Shake hands with a worker that was just started; it is killed if that fails."""
        session = cls(host, process)
        settings = {name: options.get(name, value) for name, value in _WORKER_DEFAULTS.items()}
        try:
            await session._loop.create_connection(lambda: session, sock=connection)
            session._obituary = session._loop.create_task(session._await_death())
            async with asyncio.timeout(_START_SECONDS):
                await session._request(wire.INIT, [wire.to_json(settings)], wire.READY)
        except TimeoutError:
            await session.close()
            raise SessionDied(f"the worker did not start within {_START_SECONDS:g} s") from None
        except BaseException:
            connection.close()
            await session.close()
            raise
        return session

    # What the engine calls.

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the user's variables, as far as known."""
        return tuple(self._variables)

    async def load(self, name: str, context: ContextSource) -> None:
        """Bind a stored context to a name in the REPL."""
        async with self._one_request:
            self._check_alive()
            try:
                for chunk in context.chunks(_LOAD_CHUNK_BYTES):
                    await self._may_write.wait()
                    self._write(wire.encode(wire.LOAD, 0, [chunk]))
            except BaseException:  # the worker holds half a context now
                self._end(SessionDied(f"{name} could not be read to its end"))
                raise
            parts = [wire.to_bytes(name), wire.to_bytes(context.kind)]
            frame = await self._exchange(wire.LOAD_END, parts, wire.VALUE)
        _, error = self._checked(_frames.read_value, frame)
        if error is not None:
            raise SessionError(f"{name} could not be loaded: {error}")

    async def execute(self, code: str, *, timeout_seconds: float) -> CellResult:
        """Run a cell; the time its calls take does not count towards `timeout_seconds`."""
        async with self._one_request:
            self._prompts = 0
            started = self._loop.time()
            with self._clock.running(timeout_seconds, paused=bool(self._calls)):
                frame = await self._exchange(wire.EXEC, [wire.to_bytes(code)], wire.DONE)
            done = self._checked(_frames.read_done, frame)
            seconds = self._loop.time() - started
        self._note_variables(done)
        result = structs.replace(done.result, calls=self._prompts, seconds=seconds)
        if result.interrupted and self._clock.interrupts_sent:
            return _timed_out(result, timeout_seconds)
        return result

    async def fetch(self, name: str) -> str | None:
        """The text of a variable; None if there is none or it has no text."""
        async with self._one_request:
            with self._clock.running(_FETCH_SECONDS, paused=False):
                frame = await self._exchange(wire.FETCH, [wire.to_bytes(name)], wire.VALUE)
        return self._checked(_frames.read_value, frame)[0]

    async def interrupt(self) -> None:
        """Stop the running cell; its variables stay."""
        self._process.interrupt()

    async def close(self) -> None:
        """End the worker and everything it started, within a second; may be called twice."""
        if self._closing is None:
            self._end(SessionDied("the session was closed"))
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        tasks = list(self._calls.values())
        if tasks:
            await asyncio.wait(tasks, timeout=_FAREWELL_SECONDS)
        await self._process.wait()
        if self._obituary is not None:
            await asyncio.wait([self._obituary], timeout=_FAREWELL_SECONDS)
        await self._process.clean_up()

    # Requests: one at a time, each answered by exactly one frame.

    async def _request(self, kind: int, parts: list[bytes], expected: int) -> wire.Frame:
        async with self._one_request:
            return await self._exchange(kind, parts, expected)

    async def _exchange(self, kind: int, parts: list[bytes], expected: int) -> wire.Frame:
        self._check_alive()
        self._last_id += 1
        data = wire.encode(kind, self._last_id, parts)
        self._expected = expected
        self._reply = self._loop.create_future()
        self._write(data)
        try:
            return await self._reply
        except asyncio.CancelledError:
            self._end(SessionDied("the session was killed because its request was cancelled"))
            raise
        finally:
            self._reply = None

    def _write(self, data: bytes) -> None:
        self._check_alive()
        assert self._transport is not None
        self._transport.write(data)

    def _check_alive(self) -> None:
        if self._ended is not None:
            raise type(self._ended)(str(self._ended))

    def _checked(self, read: Callable[[wire.Frame], _Read], frame: wire.Frame) -> _Read:
        try:
            return read(frame)
        except ProtocolViolation as error:
            self._end(error)
            raise

    def _note_variables(self, done: _frames.Done) -> None:
        self._variables.update(dict.fromkeys(done.result.new_variables))
        for name in done.deleted_variables:
            self._variables.pop(name, None)

    # Frames from the worker.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        """Called by asyncio."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Called by asyncio: take in what arrived."""
        try:
            self._decoder.feed(memoryview(self._buffer)[:nbytes])
            while self._ended is None and (frame := self._decoder.pop()) is not None:
                self._take(frame)
        except wire.WireError as error:
            self._end(ProtocolViolation(f"the worker sent a malformed frame: {error}"))
        except ProtocolViolation as error:
            self._end(error)

    def eof_received(self) -> None:
        """Called by asyncio: the worker closed its end, which only a dying one does."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio; a worker that does not end by itself now is ended."""
        self._may_write.set()
        self._loop.call_later(_FAREWELL_SECONDS, self._process.kill)

    def pause_writing(self) -> None:
        """Called by asyncio: the worker reads slower than we write."""
        self._may_write.clear()

    def resume_writing(self) -> None:
        """Called by asyncio."""
        self._may_write.set()

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
        call = _frames.read_call(frame)
        if frame.id in self._calls:
            raise ProtocolViolation("the worker used the same call id twice")
        if len(self._calls) >= _MAX_PENDING_CALLS:
            raise ProtocolViolation(f"more than {_MAX_PENDING_CALLS:,} calls at the same time")
        self._prompts += call.prompts
        self._clock.pause()
        self._calls[frame.id] = self._loop.create_task(self._answer(frame.id, call))

    async def _answer(self, call_id: int, call: _frames.Call) -> None:
        try:
            data, failed = await self._answer_frame(call_id, call)
            if failed:
                self._clock.charge(_FAILED_CALL_SECONDS)
        finally:
            del self._calls[call_id]
            if not self._calls:
                self._clock.resume()
        if self._ended is None:
            self._write(data)

    async def _answer_frame(self, call_id: int, call: _frames.Call) -> tuple[bytes, bool]:
        """The answer to send, and whether all of it failed."""
        try:
            meta, texts = await self._host.answer(call.kind, call.arguments, call.parts)
            parts = [wire.to_json(meta), *map(wire.to_bytes, texts)]
            failed = 0 < len(texts) == len(meta.get("failed", ()))
            return wire.encode(wire.ANSWER, call_id, parts), failed
        except Exception as error:  # noqa: BLE001 - the border to the host: its errors are answers
            meta = {"type": type(error).__name__, "message": str(error)}
            return wire.encode(wire.ANSWER_ERROR, call_id, [wire.to_json(meta)]), True

    # The end.

    def _on_stuck_cell(self, interrupts: int) -> None:
        self._end(SessionDied(f"the cell ignored {interrupts} interrupts, so it was killed"))

    async def _await_death(self) -> None:
        how = await self._process.wait()
        self._end(SessionDied(f"the worker {how}"))

    def _end(self, error: RLMError) -> None:
        """Kill the worker and fail whatever waits; the first reason is the one that counts."""
        if self._ended is not None:
            return
        self._ended = error
        self._process.kill()
        self._clock.stop()
        self._may_write.set()
        if self._transport is not None:
            self._transport.abort()
        for task in self._calls.values():
            task.cancel()
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(type(error)(str(error)))


def _timed_out(result: CellResult, timeout_seconds: float) -> CellResult:
    message = f"cell stopped after {timeout_seconds:g} s"
    where = result.error.traceback if result.error is not None else ""
    return structs.replace(result, error=CellError("TimeoutError", message, where))
