"""Interrupts cells that run in a thread of the host, by raising an exception from outside.

Python delivers it between two bytecode instructions, so never inside a function written in C: a
sleep, a wait for a lock or a long sum ends first.
"""

import asyncio
import ctypes
import queue
import sys
import threading
import time
from typing import Any

from rlm.environments._clock import ProcessState
from rlm.worker.interrupts import Interrupts

__all__ = ["ThreadInterrupts"]

_raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
_RUN_FOREVER = asyncio.BaseEventLoop.run_forever.__code__


class _Absorbed(BaseException):
    """Raised in a thread only to take the place of another exception."""


class ThreadInterrupts(Interrupts):
    """Interrupts one thread, where `rlm.worker.interrupts` uses signals for a process."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._was_raised = False
        self.inbox: queue.SimpleQueue[Any] | None = None

    def adopt_thread(self) -> None:
        """Make the calling thread the one that is interrupted."""
        self._main_thread = threading.get_ident()

    def is_own_thread(self) -> bool:
        """Return whether the calling thread is the one that is interrupted."""
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
                self._was_raised = True
                self._raise_in_thread(KeyboardInterrupt)
        self.wake()
        self._wake_event_loop()

    async def signals_sent(self) -> None:
        """Do nothing: an interrupt is delivered when `interrupt` returns."""

    async def state(self) -> ProcessState | None:
        """Return None: while this thread looks, every other one seems to be asleep."""
        return None

    def begin_cell(self) -> None:
        """Allow interrupts from here on."""
        with self._lock:
            super().begin_cell()

    def end_cell(self) -> None:
        """Ignore interrupts from here on, including one that has not been delivered yet."""
        with self._lock:
            self._cell_is_running = self.pending = False
            if self._was_raised and self.is_own_thread():
                self._was_raised = False
                self._absorb()

    def wake(self) -> None:
        """Wake the thread that waits for an answer."""
        inbox = self.inbox
        if inbox is not None:
            inbox.put(None)

    def _absorb(self) -> None:
        """Replace an exception that may not have been delivered yet with one that is caught here.

        Clearing it would be shorter, but then Python 3.11 and 3.12 keep looking for it, in every
        thread and for good, and 3.11 hangs in the next `await` under a profiler or a debugger.
        """
        try:
            self._raise_in_thread(_Absorbed)
            while True:
                time.sleep(0)
        except _Absorbed:
            return

    def _raise_in_thread(self, error: type[BaseException]) -> None:
        _raise_in(ctypes.c_ulong(self._main_thread), ctypes.py_object(error))

    def _wake_event_loop(self) -> None:
        """Wake the cell's event loop, which waits in C, so that the exception can be raised."""
        frame = sys._current_frames().get(self._main_thread)
        while frame is not None:
            if frame.f_code is _RUN_FOREVER:
                frame.f_locals["self"].call_soon_threadsafe(int)
            frame = frame.f_back
