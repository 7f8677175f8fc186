"""Interrupts without signals: the interpreter polls for them while cells run.

`sys.monitoring` calls back at backward jumps and function starts. Every 256th time the clock is
read, and now and then the shared file. That makes tight loops several times slower, so a location
that is hit too often is dropped for a while, unless it is the only one: `while` loops and recursion
stay. So an interrupt of a hot `for` loop without other such locations waits until the loop ends.
"""

import _thread
import gc
import opcode
import signal
import sys
import time
from collections.abc import Callable
from types import CodeType
from typing import Any

from rlm.worker.interrupts import Interrupts, set_handler

__all__ = ["PolledInterrupts"]

_monitoring: Any = getattr(sys, "monitoring", None)
_TOOL = 3
_STRIDE = 256
_HOT_SECONDS = _STRIDE * 4e-6
_LOOK_SECONDS = 0.02
_RESTART_SECONDS = 0.1
_FOR_ITER = opcode.opmap["FOR_ITER"]


class PolledInterrupts(Interrupts):
    """Polls `total`, the host's count of interrupts, in place of signals."""

    def __init__(self) -> None:
        super().__init__()
        self.total: Callable[[], int] = int
        self._seen = 0
        self._sampled = self._looked = self._restarted = 0.0

    @property
    def signal_fd(self) -> int:
        """Return -1: event loops poll the shared file instead."""
        return -1

    def install(self) -> None:
        """Install the callbacks."""
        set_handler(signal.SIGINT, self._on_signal)
        on_jump, on_start = self._callbacks()
        events = _monitoring.events
        _monitoring.use_tool_id(_TOOL, "rlm interrupts")
        _monitoring.register_callback(_TOOL, events.JUMP, on_jump)
        _monitoring.register_callback(_TOOL, events.PY_START, on_start)
        _monitoring.set_events(_TOOL, events.JUMP | events.PY_START)
        gc.callbacks.append(self._on_collection)

    def wake(self) -> None:
        """Do nothing: no wait here is long."""

    def begin_cell(self) -> None:
        """Allow interrupts from here on; ignore those meant for an earlier cell."""
        self._seen = self.total()
        super().begin_cell()

    def notice(self) -> bool:
        """Return whether there was a new interrupt; may raise KeyboardInterrupt."""
        total = self.total()
        if total <= self._seen:
            return False
        self._seen = total
        self._on_signal(signal.SIGINT, None)
        return True

    def _callbacks(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        left = _STRIDE
        is_hot, drop = self._sample, _monitoring.DISABLE

        def on_jump(code: CodeType, _: int, target: int) -> Any:
            nonlocal left
            left -= 1
            if left:
                return None
            left = _STRIDE
            return drop if is_hot() and code.co_code[target] == _FOR_ITER else None

        def on_start(code: CodeType, _: int) -> Any:
            nonlocal left
            left -= 1
            if left:
                return None
            left = _STRIDE
            return drop if is_hot() and not _is_recursive(code) else None

        return on_jump, on_start

    def _sample(self) -> bool:
        """Poll if it is time to; return whether callbacks are too frequent."""
        now = time.monotonic()
        is_hot = now - self._sampled < _HOT_SECONDS
        self._sampled = now
        if now - self._looked > _LOOK_SECONDS and self._cell_is_running:
            self._looked = now
            self.notice()
        if now - self._restarted > _RESTART_SECONDS:
            self._restarted = now
            _monitoring.restart_events()
        return is_hot

    def _on_collection(self, phase: str, _: dict[str, int]) -> None:
        """Poll during garbage collection, for loops that were dropped; exceptions here are lost."""
        now = time.monotonic()
        if phase == "stop" and now - self._looked > _LOOK_SECONDS and self._cell_is_running:
            self._looked = now
            if (total := self.total()) > self._seen:
                self._seen = total
                _thread.interrupt_main()


def _is_recursive(code: CodeType) -> bool:
    frame = sys._getframe(2)
    return frame.f_back is not None and frame.f_back.f_code is code
