"""Recorders: listeners to events. Nothing is imported before it is used."""

from typing import TYPE_CHECKING

from rlm._util.lazy import on_demand

if TYPE_CHECKING:
    from rlm.records.recorders.console import ConsoleRecorder
    from rlm.records.recorders.in_process import MemoryRecorder

__all__ = ["ConsoleRecorder", "MemoryRecorder"]

__getattr__, __dir__ = on_demand(
    __name__, {"ConsoleRecorder": "console", "MemoryRecorder": "in_process"}
)
