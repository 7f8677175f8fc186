"""The host's answers to what cells of one session ask, each a task, in any order."""

import asyncio
import functools
from collections.abc import Sequence
from typing import Any

from rlm.environments import _frames
from rlm.environments._clock import WAITS_FOR, CellClock
from rlm.environments.inprocess.channel import Deliver
from rlm.errors import CallRefused, ProtocolViolation
from rlm.protocols import Host
from rlm.worker import wire

__all__ = ["Answers"]

_FAILED_CALL_SECONDS = 0.01
"""What a failed call costs of a cell's time, so that a loop of nothing but those ends soon."""

_Answer = tuple[dict[str, Any], Sequence[str]]


class Answers:
    """Everything here happens on the event loop. `prompts` counts the model calls of a cell."""

    def __init__(self, host: Host, loop: asyncio.AbstractEventLoop, clock: CellClock) -> None:
        self._host = host
        self._loop = loop
        self._clock = clock
        self._is_over = False
        self.pending: set[asyncio.Task[_Answer]] = set()
        self.prompts = 0

    def start(self, parts: list[bytes], deliver: Deliver) -> None:
        """Have a call answered; while it is one of a model or tool, the clock stands still."""
        if self._is_over:
            deliver(None)
            return
        try:
            call = _frames.read_call(wire.Frame(wire.CALL, 0, parts))
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
        """Who waits gets no answer, and nobody is answered any more."""
        self._is_over = True
        for task in self.pending:
            task.cancel()

    async def _ask(self, call: _frames.Call) -> _Answer:
        return await self._host.answer(call.kind, call.arguments, call.parts)

    def _deliver(self, deliver: Deliver, task: asyncio.Task[_Answer]) -> None:
        """Whatever the host raised is an answer too."""
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
