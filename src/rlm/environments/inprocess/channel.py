"""How cells ask a host that is in the same process: on its event loop, without a stream."""

import asyncio
import queue
from collections.abc import Callable

from rlm.environments.inprocess.interrupts import ThreadInterrupts
from rlm.worker import wire

__all__ = ["Deliver", "DirectChannel", "StartCall"]

Deliver = Callable[[wire.Frame | None], None]
"""Takes the answer to a call, on any thread; None if there will be none."""

StartCall = Callable[[list[bytes], Deliver], None]
"""Hands the parts of a call to the host; may be called on any thread."""

_NO_ANSWER = "this session has ended; it can call models and tools no more"


class DirectChannel:
    """Asks the host directly; what `rlm.worker.channel` does over a stream."""

    def __init__(self, start: StartCall, interrupts: ThreadInterrupts) -> None:
        self._start = start
        self._interrupts = interrupts

    def ask(self, parts: list[bytes]) -> wire.Frame:
        """Block this thread until the answer is there."""
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
        return _given(answers[0] if answers else None)

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
        return _given(await answer)


def _given(frame: wire.Frame | None) -> wire.Frame:
    if frame is None:
        raise RuntimeError(_NO_ANSWER)
    return frame
