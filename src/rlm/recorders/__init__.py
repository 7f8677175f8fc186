"""Things that listen to events. Nothing is imported before it is asked for."""

from typing import TYPE_CHECKING

from rlm.lazily import on_demand

if TYPE_CHECKING:
    from rlm.recorders.console import ConsoleRecorder
    from rlm.recorders.memory import MemoryRecorder

__all__ = ["ConsoleRecorder", "MemoryRecorder"]

__getattr__, __dir__ = on_demand(
    __name__, {"ConsoleRecorder": "console", "MemoryRecorder": "memory"}
)
