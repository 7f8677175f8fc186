"""The recorders and callbacks that receive the events of every run of an `RLM`."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rlm._util.notebook import kernel_shell
from rlm.errors import ConfigError
from rlm.protocols import Recorder
from rlm.records.recorders.in_process import CallbackRecorder

if TYPE_CHECKING:
    from rlm.logger import RLMLogger

__all__ = ["Listeners", "progress_recorder"]


def progress_recorder() -> Recorder:
    """Return a recorder that shows runs, in a notebook's output or as lines of text."""
    if (shell := kernel_shell()) is not None:
        from rlm.records.recorders.notebook import NotebookRecorder

        return NotebookRecorder(shell)
    from rlm.records.recorders.console import ConsoleRecorder

    return ConsoleRecorder(sys.stderr, verbose=True)


class Listeners:
    """The recorders and callbacks of every run, besides those of a single run."""

    def __init__(
        self,
        recorders: Sequence[Recorder],
        logger: "RLMLogger | None",
        verbose: bool,
        callbacks: Sequence[Callable[..., Any] | None] = (),
        as_reference: bool = False,
    ) -> None:
        is_recorder = hasattr(logger, "record")
        if logger is not None and not is_recorder and not hasattr(logger, "log"):
            raise ConfigError(f"logger must be an RLMLogger or a recorder, not {logger!r}")
        own = [progress_recorder()] if verbose else []
        self.recorders: tuple[Recorder, ...] = (*recorders, *own)
        if logger is not None and is_recorder:
            self.recorders = (*self.recorders, logger)
        self._callbacks = callbacks
        self._as_reference = as_reference

    def add(self, recorders: Sequence[Recorder]) -> None:
        """Add recorders for every run from now on."""
        self.recorders = (*self.recorders, *recorders)

    def new_callbacks(self) -> CallbackRecorder | None:
        """Return a recorder for one run, which awaits its callbacks; None if there are none."""
        if not any(self._callbacks):
            return None
        return CallbackRecorder(*self._callbacks, as_reference=self._as_reference)
