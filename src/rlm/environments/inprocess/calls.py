"""Calls from cells to a host in the same process, which answers them on its event loop."""

import asyncio
import functools
import queue
from collections.abc import Callable, Sequence
from typing import Any

from rlm.environments import _calls
from rlm.environments._clock import WAITS_FOR, CellClock
from rlm.environments.inprocess.interrupts import ThreadInterrupts
from rlm.errors import CallRefused, ProtocolViolation
from rlm.protocols import Host
from rlm.worker import wire

__all__ = ["Answers", "Deliver", "DirectChannel", "StartCall"]

# -- in the thread of a cell --

Deliver = Callable[[wire.Frame | None], None]
"""Takes the answer to a call, or None if there will be none; may be called in any thread."""

StartCall = Callable[[list[bytes], Deliver], None]
"""Passes the parts of a call to the host; may be called in any thread."""

_NO_ANSWER = "this session has ended and can no longer call models or tools"


class DirectChannel:
    """Asks the host directly, where `rlm.worker.channel` uses a stream."""

    def __init__(self, start: StartCall, interrupts: ThreadInterrupts) -> None:
        self._start = start
        self._interrupts = interrupts

    def ask(self, parts: list[bytes]) -> wire.Frame:
        """Block this thread until the answer arrives."""
        inbox: queue.SimpleQueue[wire.Frame | None] = queue.SimpleQueue()
        answers: list[wire.Frame | None] = []

        def deliver(frame: wire.Frame | None) -> None:
            answers.append(frame)
            inbox.put(frame)

        with self._interrupts:
            if self._interrupts.is_own_thread():
                self._interrupts.inbox = inbox
            self._start(parts, deliver)
            while not answers and not self._is_interrupted():
                inbox.get()
        return _require_answer(answers[0] if answers else None)

    def _is_interrupted(self) -> bool:
        return self._interrupts.pending and self._interrupts.is_own_thread()

    async def ask_async(self, parts: list[bytes]) -> wire.Frame:
        """Await the answer in the cell's own event loop."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[wire.Frame | None] = loop.create_future()

        def settle(frame: wire.Frame | None) -> None:
            if not answer.done():
                answer.set_result(frame)

        def deliver(frame: wire.Frame | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, frame)

        self._start(parts, deliver)
        return _require_answer(await answer)


def _require_answer(frame: wire.Frame | None) -> wire.Frame:
    if frame is None:
        raise RuntimeError(_NO_ANSWER)
    return frame


# -- on the event loop --

_FAILED_CALL_SECONDS = 0.01
"""How much of a cell's time a failed call costs, so that a loop of failing calls ends soon."""

_Answer = tuple[dict[str, Any], Sequence[str]]


class Answers:
    """Answers the calls of cells, on the event loop. `prompts` counts the model calls of a cell."""

    def __init__(self, host: Host, loop: asyncio.AbstractEventLoop, clock: CellClock) -> None:
        self._host = host
        self._loop = loop
        self._clock = clock
        self._is_over = False
        self.pending: set[asyncio.Task[_Answer]] = set()
        self.prompts = 0

    def start(self, parts: list[bytes], deliver: Deliver) -> None:
        """Answer a call in a task; calls to models and tools stop the clock."""
        if self._is_over:
            deliver(None)
            return
        try:
            call = _calls.read_call(wire.Frame(wire.CALL, 0, parts))
        except (CallRefused, ProtocolViolation) as error:
            deliver(_failure(error))
            return
        self.prompts += call.prompts
        task = self._loop.create_task(self._ask(call))
        self.pending.add(task)
        if call.kind in WAITS_FOR:
            self._clock.begin_wait(task)
            task.add_done_callback(self._clock.end_wait)
        task.add_done_callback(functools.partial(self._deliver, deliver))

    def end(self) -> None:
        """Cancel all calls and refuse further ones."""
        self._is_over = True
        for task in self.pending:
            task.cancel()

    async def _ask(self, call: _calls.Call) -> _Answer:
        return await self._host.answer(call.kind, call.arguments, call.parts)

    def _deliver(self, deliver: Deliver, task: asyncio.Task[_Answer]) -> None:
        """Deliver the answer, or the exception that the host raised."""
        self.pending.discard(task)
        if task.cancelled():
            deliver(None)
            return
        error = task.exception()
        if error is not None:
            frame, failed = _failure(error), True
        else:
            meta, texts = task.result()
            frame = wire.Frame(wire.ANSWER, 0, [wire.to_json(meta), *map(wire.to_bytes, texts)])
            failed = 0 < len(texts) == len(meta.get("failed", ()))
        if failed:
            self._clock.charge(_FAILED_CALL_SECONDS)
        deliver(frame)


def _failure(error: BaseException) -> wire.Frame:
    meta = {"type": type(error).__name__, "message": str(error)}
    return wire.Frame(wire.ANSWER_ERROR, 0, [wire.to_json(meta)])
