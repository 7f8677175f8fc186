"""Things that listen to events."""

from rlm.recorders.console import ConsoleRecorder
from rlm.recorders.memory import MemoryRecorder

__all__ = ["ConsoleRecorder", "MemoryRecorder"]
