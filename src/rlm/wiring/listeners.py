"""Who hears of the runs of an `RLM`."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rlm.errors import ConfigError
from rlm.protocols import Recorder
from rlm.records.recorders.in_process import CallbackRecorder

if TYPE_CHECKING:
    from rlm.logger import RLMLogger

__all__ = ["Listeners"]


class Listeners:
    """Who hears of every run of an RLM, besides those that one run is given."""

    def __init__(
        self, recorders: Sequence[Recorder], logger: "RLMLogger | None", verbose: bool
    ) -> None:
        if logger is not None and not hasattr(logger, "record"):
            raise ConfigError(f"logger must be an RLMLogger or a recorder, not {logger!r}")
        own: list[Recorder] = []
        if verbose:
            from rlm.records.recorders.console import ConsoleRecorder

            own.append(ConsoleRecorder(sys.stderr))
        self.recorders = (*recorders, *own, *([] if logger is None else [logger]))

    def call_back(self, *callbacks: Callable[..., Any] | None) -> None:
        self._callbacks = callbacks

    def new_callbacks(self) -> CallbackRecorder | None:
        """One for each run: it waits for its callbacks before the run returns. None if there are
        no callbacks.
        """
        return CallbackRecorder(*self._callbacks) if any(self._callbacks) else None
