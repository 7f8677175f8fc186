"""SIGINT: stops the running cell, never tears a frame, and means nothing between cells.

SIGXCPU, which the kernel sends when the session's processor time is used up, does the same.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # It has no stubs.
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
_MONITORING_TOOL = 4


def set_handler(number: int, handler: Callable[[int, FrameType | None], None] | None) -> None:
    """`signal.signal`, for a process that was just forked; None is the default action.

    The handler there was is not made a member of an enum. That fails for a function, by way of two
    exceptions, and has the process pay for more memory than all it has done until then.
    """
    _signal.signal(int(number), _signal.SIG_DFL if handler is None else handler)


class Interrupts:
    """Decides what a SIGINT does right now: raise, be kept for later, or nothing.

    Use it as a context manager around work that must not be torn: a SIGINT is then only recorded,
    `wake_fd` becomes readable, and KeyboardInterrupt is raised where the outermost `with` ends.
    `cancel_instead` may deal with the first SIGINT more gently, and says whether it did.
    """

    def __init__(self) -> None:
        self.wake_fd = self._wake_writer = -1  # Until `open_pipe`: this may be made before a fork.
        self.pending = False
        self.count = 0
        self.out_of_cpu_time = False
        self.cancel_instead: Callable[[], bool] | None = None
        self._cell_is_running = False
        self._depth = 0
        self._main_thread = threading.get_ident()

    def install(self) -> None:
        """Take over the signals; call it from the main thread."""
        set_handler(signal.SIGINT, self._on_signal)
        set_handler(signal.SIGXCPU, self._on_signal)
        self.open_pipe()
        self._wake_on_signals()

    def _wake_on_signals(self) -> None:
        """Have the C side of the handler write to the pipe.

        The Python side runs between two steps of the interpreter. A signal that comes just before a
        call blocks would else be noticed only when that call returns.
        """
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)

    def renew(self) -> None:
        """In a copy of the process: have a pipe of its own, at the same descriptors.

        The C side keeps its one so: `signal.set_wakeup_fd` looks at the file, which libc does by a
        system call that a sealed sandbox refuses.
        """
        reader, writer = self.wake_fd, self._wake_writer
        self.open_pipe()
        for fd, place in ((self.wake_fd, reader), (self._wake_writer, writer)):
            os.dup2(fd, place, inheritable=False)
            os.close(fd)
        self.wake_fd, self._wake_writer = reader, writer

    def open_pipe(self) -> None:
        """Have the pipe behind `wake_fd`, which belongs to one process."""
        self.wake_fd, self._wake_writer = os.pipe()
        os.set_blocking(self.wake_fd, False)
        os.set_blocking(self._wake_writer, False)

    def close_pipe(self) -> None:
        """Be without a pipe again."""
        os.close(self.wake_fd)
        os.close(self._wake_writer)
        self.wake_fd = self._wake_writer = -1

    def begin_cell(self) -> None:
        """From here on a SIGINT interrupts."""
        self.pending = False
        self.count = 0
        self._cell_is_running = True

    def end_cell(self) -> None:
        """From here on a SIGINT does nothing; calling it twice does no harm."""
        self._cell_is_running = False
        self.pending = False
        if self.count > 1:
            self._set_sticky(False)

    def wake(self) -> None:
        """Make `wake_fd` readable, so that whoever polls it looks around."""
        try:
            os.write(self._wake_writer, b"!")
        except BlockingIOError:
            return  # The pipe is full, hence readable already.

    def drain(self) -> None:
        """Make `wake_fd` unreadable again."""
        try:
            os.read(self.wake_fd, 4096)
        except BlockingIOError:
            return  # Another reader was faster.

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
        if self._depth:
            self.pending = True
            self.wake()
            return
        if self.count == 1 and self.cancel_instead is not None and self.cancel_instead():
            return
        raise KeyboardInterrupt

    def _set_sticky(self, on: bool) -> None:
        """From the second SIGINT on, every line of user code raises until the cell is unwound.

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
