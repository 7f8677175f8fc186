"""Events kept in a list, in the order they happened."""

from rlm.events import Event

__all__ = ["MemoryRecorder"]


class MemoryRecorder:
    """The simplest recorder: `events` is what a RunResult carries."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def record(self, event: Event) -> None:
        self.events.append(event)
