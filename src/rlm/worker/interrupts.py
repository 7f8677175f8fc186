"""Handles SIGINT: it stops the running cell, but never in the middle of a frame or between cells.

SIGXCPU, which the kernel sends when the session's processor time is used up, is handled alike.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

__all__ = ["Interrupts", "set_handler"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType, TracebackType
    from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_THIS_FILE = (lambda: None).__code__.co_filename
_MONITORING_TOOL = 4
_signal: Any = sys.modules["_signal"]  # The C module behind `signal`; type checkers do not know it.


def set_handler(number: int, handler: Callable[[int, FrameType | None], None] | None) -> None:
    """Set a signal handler in a process that was just forked; None is the default action.

    `signal.signal` tries to convert the old handler to an enum. For a function that raises two
    exceptions, which touch more memory than everything else the process has done so far.
    """
    _signal.signal(int(number), _signal.SIG_DFL if handler is None else handler)


class _Pipe:
    """A pipe that wakes a polling thread; `open` creates it, after a fork."""

    def __init__(self) -> None:
        self.reader = self.writer = -1

    def open(self) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.set_blocking(self.writer, False)

    def close(self) -> None:
        os.close(self.reader)
        os.close(self.writer)
        self.reader = self.writer = -1

    def renew(self) -> None:
        reader, writer = self.reader, self.writer
        self.open()
        for fd, place in ((self.reader, reader), (self.writer, writer)):
            os.dup2(fd, place, inheritable=False)
            os.close(fd)
        self.reader, self.writer = reader, writer

    def write(self) -> None:
        try:
            os.write(self.writer, b"!")
        except BlockingIOError:
            return  # It is full, so it is already readable.

    def drain(self) -> None:
        try:
            os.read(self.reader, 4096)
        except BlockingIOError:
            return  # Another thread has read it.


class Interrupts:
    """Decides what a SIGINT does: raise an exception, wait, or nothing.

    Use it as a context manager around work that must not be interrupted: a SIGINT is then only
    recorded, `wake_fd` becomes readable, and KeyboardInterrupt is raised at the end of the
    outermost `with`. `cancel_instead` may handle the first SIGINT more gently; it returns whether
    it did. A SIGINT is also only recorded in `around_cells`, functions that catch what cells raise.
    """

    def __init__(self) -> None:
        self._wakes, self._signals = _Pipe(), _Pipe()
        self.pending = False
        self.count = 0
        self.out_of_cpu_time = False
        self.cancel_instead: Callable[[], bool] | None = None
        self.around_cells: frozenset[CodeType] = frozenset()
        self._cell_is_running = False
        self._depth = 0
        self._main_thread = threading.get_ident()

    def install(self) -> None:
        """Take over the signals; call it from the main thread."""
        set_handler(signal.SIGINT, self._on_signal)
        set_handler(signal.SIGXCPU, self._on_signal)
        self.open_pipes()
        # The C side of a handler writes to a pipe. The Python side runs only between two bytecode
        # instructions: without the pipe, a signal that arrives just before a blocking call would
        # go unnoticed until that call returns.
        signal.set_wakeup_fd(self._signals.writer, warn_on_full_buffer=False)

    def renew(self) -> None:
        """Open new pipes at the same descriptors, in a copy of the process.

        `signal.set_wakeup_fd` can't be called again: it stats the file, which a sealed sandbox
        refuses.
        """
        for pipe in (self._wakes, self._signals):
            pipe.renew()

    def open_pipes(self) -> None:
        """Open the pipes behind `wake_fd` and `signal_fd`, which belong to one process."""
        for pipe in (self._wakes, self._signals):
            pipe.open()

    def close_pipes(self) -> None:
        """Close the pipes."""
        for pipe in (self._wakes, self._signals):
            pipe.close()

    @property
    def wake_fd(self) -> int:
        """A descriptor that is readable after `wake`, until it is drained."""
        return self._wakes.reader

    @property
    def signal_fd(self) -> int:
        """A descriptor that is readable after a signal; only the main thread may drain it."""
        return self._signals.reader

    def wake(self) -> None:
        """Make `wake_fd` readable, which wakes the thread that polls it."""
        self._wakes.write()

    def drain_wakes(self) -> None:
        """Make `wake_fd` unreadable again."""
        self._wakes.drain()

    def drain_signals(self) -> None:
        """Make `signal_fd` unreadable again."""
        self._signals.drain()

    def begin_cell(self) -> None:
        """Let SIGINT interrupt from here on."""
        self.pending = False
        self.count = 0
        self._cell_is_running = True

    def end_cell(self) -> None:
        """Ignore SIGINT from here on; may be called twice."""
        self._cell_is_running = False
        self.pending = False
        if self.count > 1:
            self._set_sticky(False)

    def __enter__(self) -> None:
        if threading.get_ident() == self._main_thread:
            self._depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if threading.get_ident() != self._main_thread:
            return
        self._depth -= 1
        if self.pending and self._depth == 0:
            self.pending = False
            if kind is not KeyboardInterrupt:
                raise KeyboardInterrupt

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGXCPU:
            self.out_of_cpu_time = True
        if not self._cell_is_running:
            return
        self.count += 1
        if self.count > 1:
            self._set_sticky(True)
        if self._depth or self._is_around_cell(frame):
            self.pending = True
            self.wake()
            return
        if self.count == 1 and self.cancel_instead is not None and self.cancel_instead():
            return
        raise KeyboardInterrupt

    def _is_around_cell(self, frame: FrameType | None) -> bool:
        while frame is not None and frame.f_code.co_filename == _THIS_FILE:
            frame = frame.f_back
        return frame is not None and frame.f_code in self.around_cells

    def _set_sticky(self, on: bool) -> None:
        """After the second SIGINT, raise at every line of user code until the cell has ended.

        This ends `except BaseException: continue` loops; it needs Python 3.12's `sys.monitoring`.
        """
        monitoring: Any = getattr(sys, "monitoring", None)
        if monitoring is None:
            return
        events = monitoring.events
        if not on:
            if monitoring.get_tool(_MONITORING_TOOL) is not None:
                monitoring.set_events(_MONITORING_TOOL, 0)
                monitoring.free_tool_id(_MONITORING_TOOL)
            return
        if monitoring.get_tool(_MONITORING_TOOL) is None:
            monitoring.use_tool_id(_MONITORING_TOOL, "rlm")
        watched = (events.LINE, events.PY_START, events.JUMP, events.BRANCH)
        for event in watched:
            monitoring.register_callback(_MONITORING_TOOL, event, self._raise_again)
        monitoring.set_events(_MONITORING_TOOL, sum(watched))

    def _raise_again(self, code: CodeType, *_: object) -> None:
        if (
            self._cell_is_running
            and self._depth == 0
            and threading.get_ident() == self._main_thread
            and not code.co_filename.startswith(_HERE)
        ):
            raise KeyboardInterrupt
