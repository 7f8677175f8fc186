"""A run told in readable lines while it goes on, and what it used when it ends."""

from collections.abc import Callable
from typing import Any

from rlm.events import (
    CallRetried,
    CellEnded,
    CellStarted,
    Compacted,
    Event,
    RunEnded,
    RunStarted,
    SessionLost,
    ToolCalled,
)
from rlm.limits import Amount, Budget
from rlm.records.recorders.console import counted, one_line

__all__ = ["Meter", "Narrator"]

CODE_CHARS = 100
QUERY_CHARS = 80


class Meter:
    """Remembers how the root run ended and what it used, also when it raised."""

    def __init__(self) -> None:
        self.ended: RunEnded | None = None
        self._budget: Budget | None = None

    def watch(self, budget: Budget) -> None:
        self._budget = budget

    def record(self, event: Event) -> None:
        if type(event) is RunEnded and event.parent_id is None:
            self.ended = event

    @property
    def used(self) -> Amount:
        """What was used, and what may have been billed for requests that were given up."""
        return Amount() if self._budget is None else self._budget.used


class Narrator:
    """One line for each cell, batch of calls, child run and surprise.

    `streamed` hears text that a cell sends ahead of the answer, where an environment has that.
    """

    def __init__(
        self, say: Callable[[str], None], streamed: Callable[[str], None] | None = None
    ) -> None:
        self._say = say
        self._streamed = streamed

    def record(self, event: Event) -> None:
        if event.__struct_config__.tag == "output_streamed":
            if self._streamed is not None and event.parent_id is None:
                self._streamed(str(getattr(event, "text", "")))
            return
        tell = _LINES.get(type(event))
        if tell is not None and (line := tell(event)):
            self._say("  " * event.depth + one_line(line))


def _started(event: RunStarted) -> str:
    if event.depth:
        return f"Child run: {one_line(event.query, QUERY_CHARS)}"
    return f"Run {event.run_id}: the context is {event.context_description}"


def _cell(event: CellStarted) -> str:
    lines = [line.strip() for line in event.code.splitlines()]
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return f"Step {event.step}: running {one_line(first, CODE_CHARS)}"


def _cell_ended(event: CellEnded) -> str:
    told = [counted(event.calls, "call")] if event.calls else []
    if event.error_type:
        told.append(f"{event.error_type}: {event.error_message}")
    return f"Step {event.step}: {', '.join(told)}" if told else ""


def _ended(event: RunEnded) -> str:
    who = "Child run" if event.depth else "The run"
    used = f"{counted(event.steps, 'step')}, {counted(event.usage.requests, 'request')}"
    return f"{who} ended ({event.stop_reason}): {used}"


_LINES: dict[type[Event], Callable[[Any], str]] = {
    RunStarted: _started,
    CellStarted: _cell,
    CellEnded: _cell_ended,
    CallRetried: lambda event: f"Asking {event.model} again in {event.wait_seconds:.1f} s",
    Compacted: lambda event: "The history was shortened",
    SessionLost: lambda event: f"The session was lost: {event.reason}",
    ToolCalled: lambda event: f"Step {event.step}: called {event.name}",
    RunEnded: _ended,
}
