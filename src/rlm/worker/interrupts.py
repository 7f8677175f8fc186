"""SIGINT: stops the running cell, never tears a frame, and means nothing between cells."""

from __future__ import annotations

import os
import signal
import sys
import threading

__all__ = ["Interrupts"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType, TracebackType
    from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_MONITORING_TOOL = 4


class Interrupts:
    """Decides what a SIGINT does right now: raise, be kept for later, or nothing.

    Use it as a context manager around work that must not be torn: a SIGINT is then only recorded,
    `wake_fd` becomes readable, and KeyboardInterrupt is raised where the outermost `with` ends.
    `cancel_instead` may deal with the first SIGINT more gently, and says whether it did.
    """

    def __init__(self) -> None:
        self.wake_fd = self._wake_writer = -1
        self._open_pipe()
        self.pending = False
        self.count = 0
        self.cancel_instead: Callable[[], bool] | None = None
        self._cell_is_running = False
        self._depth = 0
        self._main_thread = threading.get_ident()

    def install(self) -> None:
        """Take over SIGINT; call it from the main thread."""
        signal.signal(signal.SIGINT, self._on_signal)
        self._wake_on_signals()

    def _wake_on_signals(self) -> None:
        """Have the C side of the handler write to the pipe.

        The Python side runs between two steps of the interpreter. A signal that comes just before a
        call blocks would else be noticed only when that call returns.
        """
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)

    def renew(self) -> None:
        """In a copy of the process: have a pipe of its own."""
        os.close(self.wake_fd)
        os.close(self._wake_writer)
        self._open_pipe()
        self._wake_on_signals()

    def _open_pipe(self) -> None:
        self.wake_fd, self._wake_writer = os.pipe()
        os.set_blocking(self.wake_fd, False)
        os.set_blocking(self._wake_writer, False)

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
