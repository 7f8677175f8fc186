"""What the cells of a worker ask the host, each call a task, answered in any order."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from rlm.environments import _frames
from rlm.environments._clock import WAITS_FOR, CellClock
from rlm.environments._stream import Stream
from rlm.errors import CallRefused, ProtocolViolation
from rlm.protocols import Host
from rlm.worker import wire

__all__ = ["FAILED_CALL_SECONDS", "OFF_LOOP_BYTES", "PendingCalls"]

OFF_LOOP_BYTES = 256 << 10
"""Longer frames are decoded in a thread."""
FAILED_CALL_SECONDS = 0.01
"""How much of a cell's time a failed call costs, so that a loop of failing calls ends soon."""
_MAX_PENDING_CALLS = 4_096
_MAX_PENDING_BYTES = 64 << 20
_MAX_HELD_BYTES = 16 << 20

_EMPTY_META: tuple[dict[str, Any], ...] = ({}, {"failed": {}})


class PendingCalls:
    """The calls of one worker that have not been answered yet.

    `pace` is called when `is_full` may have changed, `fail` when the worker breaks the protocol.
    `prompts` counts the model calls of a cell.
    """

    def __init__(
        self,
        host: Host,
        stream: Stream,
        clock: CellClock,
        pace: Callable[[], None],
        fail: Callable[[ProtocolViolation], None],
    ) -> None:
        self._host = host
        self._stream = stream
        self._clock = clock
        self._pace = pace
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[int, asyncio.Task[None] | None] = {}  # None for a call that is beginning
        self._is_cancelled = False
        self._held_bytes = self._pending_bytes = 0
        self.prompts = 0

    @property
    def is_full(self) -> bool:
        """Whether too many bytes wait, either to be answered or to be read by the worker."""
        return self._held_bytes > _MAX_HELD_BYTES or self._pending_bytes > _MAX_PENDING_BYTES

    def start(self, frame: wire.Frame) -> None:
        """Answer a call in a task of its own."""
        call = _read_call(frame) if frame.size_bytes <= OFF_LOOP_BYTES else None
        if frame.id in self._tasks:
            raise ProtocolViolation("the worker used the same call id twice")
        if len(self._tasks) >= _MAX_PENDING_CALLS:
            raise ProtocolViolation(f"more than {_MAX_PENDING_CALLS:,} calls at the same time")
        if isinstance(call, _frames.Call):
            self._begin(frame.id, call)
        self._tasks[frame.id] = None
        self._pending_bytes += frame.size_bytes
        if self._pending_bytes > _MAX_PENDING_BYTES:
            self._pace()
        task = _begun(self._loop, self._answer(frame, call))
        if frame.id in self._tasks:  # Otherwise it is answered, or the answer waits to be read.
            self._tasks[frame.id] = task
            if self._is_cancelled:
                task.cancel()

    def cancel(self) -> None:
        """Answer nothing any more."""
        self._is_cancelled = True
        for task in self._tasks.values():
            if task is not None:
                task.cancel()

    async def wait(self, timeout_seconds: float) -> None:
        """Wait until every call has ended, or the time is up."""
        tasks = [task for task in self._tasks.values() if task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_seconds)

    def _begin(self, call_id: int, call: _frames.Call) -> None:
        """Count the prompts of a call; the cell's clock stands still for some kinds."""
        self.prompts += call.prompts
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
                self._clock.charge(FAILED_CALL_SECONDS)
        except ProtocolViolation as error:
            if not self._is_cancelled:
                self._fail(error)
            return
        finally:
            del self._tasks[frame.id]
            was_full = self._pending_bytes > _MAX_PENDING_BYTES
            self._pending_bytes -= frame.size_bytes
            self._clock.end_wait(frame.id)
            if was_full:
                self._pace()
        if self._stream.is_full:
            await self._until_read(len(data))
        self._stream.write(data)

    async def _until_read(self, size: int) -> None:
        """Hold an answer back while the worker does not read."""
        self._held_bytes += size
        self._pace()
        await self._stream.until_room()
        self._held_bytes -= size
        self._pace()

    async def _answer_frame(
        self, call_id: int, call: _frames.Call | CallRefused
    ) -> tuple[bytes, bool]:
        """Return the answer to send, and whether all of it failed."""
        try:
            if isinstance(call, CallRefused):
                raise call
            meta, texts = await self._host.answer(call.kind, call.arguments, call.parts)
            # After most model calls there is no metadata: that is an empty part.
            first = b"" if meta in _EMPTY_META else wire.to_json(meta)
            parts = [first, *[wire.to_bytes(text) for text in texts]]
            failed = 0 < len(texts) == len(meta.get("failed", ()))
            return wire.encode(wire.ANSWER, call_id, parts), failed
        except Exception as error:  # noqa: BLE001 - the boundary to the host: its errors are answers
            meta = {"type": type(error).__name__, "message": str(error)}
            return wire.encode(wire.ANSWER_ERROR, call_id, [wire.to_json(meta)]), True


def _begun(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]
) -> "asyncio.Task[None]":
    """Return a task that has begun, where Python allows it: most answers are then done at once."""
    if sys.version_info >= (3, 12):
        return asyncio.Task(work, loop=loop, eager_start=True)
    return loop.create_task(work)


def _read_call(frame: wire.Frame) -> _frames.Call | CallRefused:
    """Return the call, or why it is refused, which the cell will see."""
    try:
        return _frames.read_call(frame)
    except CallRefused as error:
        return error
