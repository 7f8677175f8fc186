"""Things that listen to events. Nothing is imported before it is asked for."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlm.recorders.console import ConsoleRecorder
    from rlm.recorders.memory import MemoryRecorder

__all__ = ["ConsoleRecorder", "MemoryRecorder"]

_HOMES = {"ConsoleRecorder": "console", "MemoryRecorder": "memory"}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
