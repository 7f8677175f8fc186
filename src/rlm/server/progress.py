"""What a run sends while it is in progress: lines of progress, pieces of the answer, usage."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from rlm._util.text import counted, sendable
from rlm.events import (
    DATA,
    CallRetried,
    CellEnded,
    CellStarted,
    Compacted,
    DataRead,
    Event,
    RunEnded,
    RunStarted,
    SessionLost,
    ToolCalled,
)
from rlm.limits import Amount, Budget
from rlm.records.recorders.console import data_read, one_line

__all__ = ["Meter", "Outbox", "Portion", "ProgressRecorder"]

MAX_PROGRESS_LINES = 500
"""If a client reads slowly, the oldest lines of progress are dropped; answers never are."""


class Portion(Struct, frozen=True):
    """What has accumulated: lines of progress, then text of the answer."""

    progress: str = ""
    content: str = ""


class Outbox:
    """Filled by a run and emptied by a connection, on one event loop."""

    def __init__(self) -> None:
        self._progress: deque[str] = deque(maxlen=MAX_PROGRESS_LINES)
        self._content: list[str] = []
        self._changed = asyncio.Event()

    def progress(self, line: str) -> None:
        self._progress.append(f"{line}\n")
        self._changed.set()

    def content(self, text: str) -> None:
        if text:
            self._content.append(sendable(text))
            self._changed.set()

    def wake(self) -> None:
        """Wake the reader, although nothing was added."""
        self._changed.set()

    async def take(self, seconds: float) -> Portion | None:
        """Return what has accumulated, waiting if necessary; None if nothing comes in time."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return None
        return self.take_now()

    def take_now(self) -> Portion:
        self._changed.clear()
        portion = Portion("".join(self._progress), "".join(self._content))
        self._progress.clear()
        self._content.clear()
        return portion


CODE_CHARS = 100
QUERY_CHARS = 80


class Meter:
    """Records how the root run ended and what it used, even if it raised."""

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
        """Return what was used, including what may have been billed for abandoned requests."""
        return Amount() if self._budget is None else self._budget.used


class ProgressRecorder:
    """Records one line for each cell, batch of calls, child run and problem.

    `streamed` gets text that a cell sends ahead of the answer, if the environment supports that.
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
    facts = [counted(event.calls, "call")] if event.calls else []
    if event.error_type:
        facts.append(f"{event.error_type}: {event.error_message}")
    return f"Step {event.step}: {', '.join(facts)}" if facts else ""


def _tool(event: ToolCalled) -> str:
    """Return the line of a tool call. Requests for data have none: a cell may make thousands."""
    return "" if event.name.startswith(DATA) else f"Step {event.step}: called {event.name}"


def _ended(event: RunEnded) -> str:
    name = "Child run" if event.depth else "The run"
    used = f"{counted(event.steps, 'step')}, {counted(event.usage.requests, 'request')}"
    return f"{name} ended ({event.stop_reason}): {used}"


_LINES: dict[type[Event], Callable[[Any], str]] = {
    RunStarted: _started,
    CellStarted: _cell,
    CellEnded: _cell_ended,
    CallRetried: lambda event: f"Asking {event.model} again in {event.wait_seconds:.1f} s",
    Compacted: lambda event: "The history was shortened",
    SessionLost: lambda event: f"The session was lost: {event.reason}",
    ToolCalled: _tool,
    DataRead: lambda event: f"Step {event.step}: {data_read(event)}",
    RunEnded: _ended,
}
