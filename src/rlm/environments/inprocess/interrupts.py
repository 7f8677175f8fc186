"""Interrupts of cells that run in a thread of the host: an exception raised from outside.

Python delivers it between two steps of its interpreter, so never while a function written in C
is at work: a sleep, a lock or a long sum ends first.
"""

import asyncio
import ctypes
import queue
import sys
import threading
from typing import Any

from rlm.environments._clock import ProcessState
from rlm.worker.interrupts import Interrupts

__all__ = ["ThreadInterrupts"]

_raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
_RUN_FOREVER = asyncio.BaseEventLoop.run_forever.__code__


class ThreadInterrupts(Interrupts):
    """What `rlm.worker.interrupts` does with signals, done for one thread of many."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self.inbox: queue.SimpleQueue[Any] | None = None

    def adopt_thread(self) -> None:
        """From here on the calling thread is the one that is interrupted."""
        self._main_thread = threading.get_ident()

    def is_own_thread(self) -> bool:
        """Whether the calling thread is that one."""
        return threading.get_ident() == self._main_thread

    def interrupt(self) -> None:
        """Stop the running cell; called by any other thread."""
        with self._lock:
            if not self._cell_is_running:
                return
            self.count += 1
            if self._depth:
                self.pending = True
            elif self.count > 1 or self.cancel_instead is None or not self.cancel_instead():
                self._raise_in_thread(KeyboardInterrupt)
        self.wake()
        self._wake_event_loop()

    async def signals_sent(self) -> None:
        """An interrupt has arrived when `interrupt` returns."""

    async def state(self) -> ProcessState | None:
        """Who looks holds the interpreter meanwhile, so that every thread seems to be asleep."""
        return None

    def begin_cell(self) -> None:
        """From here on an interrupt interrupts."""
        with self._lock:
            super().begin_cell()

    def end_cell(self) -> None:
        """From here on it does nothing, not even one that is on its way."""
        with self._lock:
            self._cell_is_running = self.pending = False
            self._raise_in_thread(None)

    def wake(self) -> None:
        """Have who waits for an answer look around."""
        inbox = self.inbox
        if inbox is not None:
            inbox.put(None)

    def _raise_in_thread(self, error: type[BaseException] | None) -> None:
        what = ctypes.py_object() if error is None else ctypes.py_object(error)
        _raise_in(ctypes.c_ulong(self._main_thread), what)

    def _wake_event_loop(self) -> None:
        """A loop of the cell's own waits in C; once it is awake, the exception can be raised."""
        frame = sys._current_frames().get(self._main_thread)
        while frame is not None:
            if frame.f_code is _RUN_FOREVER:
                frame.f_locals["self"].call_soon_threadsafe(int)
            frame = frame.f_back
