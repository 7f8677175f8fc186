"""Progress as plain lines for people."""

import threading
from collections import defaultdict
from dataclasses import dataclass
from typing import TextIO

from rlm._util.text import counted
from rlm.events import (
    CallEnded,
    CallRetried,
    CellEnded,
    Compacted,
    Diverged,
    Event,
    ModelReplied,
    Planned,
    RunEnded,
    RunStarted,
    SessionLost,
    StepStarted,
    ToolCalled,
)
from rlm.records.recorders._details import Details
from rlm.records.recorders._lines import (
    CONTROL,
    cell_details,
    context_size,
    data_read,
    harmless,
    one_line,
)
from rlm.records.recorders._progress import is_cached

__all__ = [
    "CONTROL",
    "ConsoleRecorder",
    "cell_details",
    "counted",
    "data_read",
    "divergence",
    "harmless",
    "loss",
    "one_line",
    "plan",
    "retry",
    "summary",
]

COUNTED = frozenset({CallEnded, CallRetried, ModelReplied, RunStarted, ToolCalled})
TOLD = frozenset(
    {
        *(CallRetried, CellEnded, Compacted, Diverged, RunEnded),
        *(Planned, RunStarted, SessionLost, StepStarted),
    }
)
"""Events that are counted, and events that may print a line. Others are ignored."""


def summary(event: RunEnded, from_journal: int = 0) -> str:
    """Return how a run ended, in one line; `from_journal` replies were paid for earlier."""
    usage = event.usage
    cost = "" if usage.cost_usd is None else f", ${usage.cost_usd:.4f}"
    named = event.limit and event.limit != event.stop_reason
    why = f"{event.stop_reason} ({event.limit})" if named else event.stop_reason
    replies = counted(from_journal, "reply", "replies")
    free = f", {replies} from the journal for free" if from_journal else ""
    tokens = counted(usage.total_tokens, "token")
    return (
        f"run {event.run_id} ended: {why}, {counted(event.steps, 'step')}, "
        f"{counted(usage.requests, 'request')}, {tokens}{cost}{free}, "
        f"{event.seconds:.2f} s"
    )


def loss(event: SessionLost) -> str:
    """Return what happened to a worker that died, in one line."""
    if event.restored:
        return f"the worker was lost, its variables were restored: {event.reason}"
    return f"the session was lost: {event.reason}"


def retry(event: CallRetried) -> str:
    """Say in one line that a run's own request failed and is sent again."""
    return f"asking {event.model} again in {event.wait_seconds:.1f} s: {event.error}"


def divergence(event: Diverged) -> str:
    """Say in one line that repeated cells printed something else."""
    return (
        f"cells of step {event.step} printed something different this time; the model is shown the "
        "original output"
    )


def plan(event: Planned) -> str:
    """Return how a run proceeds and why, in one line."""
    if not event.pieces:
        return f"strategy {event.strategy}: {event.reason}"
    pieces = f"{counted(event.pieces, 'piece')} of at most {event.piece_chars:,} characters"
    unread = f", {event.unread:,} of them initially left out" if event.unread else ""
    return f"{event.strategy}: {event.reason}; {pieces}{unread}"


def _shortened(event: Compacted) -> str:
    before = counted(event.messages_before, "message")
    return f"the history was shortened from {before} to {event.messages_after}"


@dataclass(slots=True)
class _Tally:
    """What happened in a run since its last cell ended, and how much of the run was free."""

    failed: int = 0
    retries: int = 0
    stored: int = 0
    tools: int = 0
    from_journal: int = 0

    def of_cell(self, event: CellEnded) -> str:
        """Return what a cell's line says about its calls, and reset the counts."""
        found = {"failed": self.failed, "stored": self.stored}
        asides = [f"{number:,} {word}" for word, number in found.items() if number]
        asides += [counted(self.retries, "retry", "retries")] if self.retries else []
        calls = f", {counted(event.calls, 'call')}" if event.calls else ""
        calls += f" ({', '.join(asides)})" if calls and asides else ""
        tools = f", {counted(self.tools, 'tool call')}" if self.tools else ""
        self.failed = self.retries = self.stored = self.tools = 0
        return calls + tools


class ConsoleRecorder:
    """Prints one line per step and notable event, indented by depth.

    `verbose` adds what the model says, its code, what cells print and how they fail; in a terminal,
    in colour.

    A stream that can no longer be written to is ignored: progress never ends a run.
    """

    def __init__(self, stream: TextIO, *, verbose: bool = False) -> None:
        self._stream = stream
        self._details = Details(stream) if verbose else None
        self._tallies: defaultdict[str, _Tally] = defaultdict(_Tally)
        self._lock = threading.Lock()
        self._open = True

    def __enter__(self) -> "ConsoleRecorder":
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def record(self, event: Event) -> None:
        kind = type(event)
        with self._lock:
            if kind in COUNTED:
                self._count(event)
            for line in self._lines(event):
                self._write("  " * event.depth + line)

    def note(self, text: str) -> None:
        """Print a line for the caller."""
        self._write(one_line(text))

    def _write(self, line: str) -> None:
        if not self._open:
            return
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            self._open = False

    def _count(self, event: Event) -> None:
        """Count calls, which are reported when their cell ends: there may be thousands."""
        tally = self._tallies[event.run_id]
        if isinstance(event, CallEnded):
            tally.failed += event.error is not None
            tally.stored += event.stored
            tally.from_journal += event.stored and not is_cached(event)
        elif isinstance(event, ModelReplied):
            tally.from_journal += event.stored and not is_cached(event)
        elif isinstance(event, CallRetried):
            tally.retries += event.call_id is not None
        elif isinstance(event, ToolCalled):
            tally.tools += 1
        else:
            self._tallies[event.run_id] = _Tally()

    def _lines(self, event: Event) -> list[str]:
        details = [] if self._details is None else self._details.of(event)
        line = self._line(event) if type(event) in TOLD else None
        indent = "" if isinstance(event, RunStarted | StepStarted | RunEnded) else "  "
        own = [] if line is None else [indent + one_line(line)]
        return [f"    {each}" for each in details] + own

    def _line(self, event: Event) -> str | None:
        if isinstance(event, RunStarted):
            return f"run {event.run_id} on {event.model}, {context_size(event)}"
        if isinstance(event, StepStarted):
            return f"step {event.step}"
        if isinstance(event, CellEnded):
            calls = self._tallies[event.run_id].of_cell(event)
            return f"cell {event.cell}: {event.seconds:.2f} s{calls}{_error(event)}"
        if isinstance(event, CallRetried):
            return retry(event) if event.call_id is None else None
        if isinstance(event, RunEnded):
            return self._end(event)
        return _notable(event)

    def _end(self, event: RunEnded) -> str:
        """Return the line of a finished run; what was free in a child was free in its parent."""
        from_journal = self._tallies.pop(event.run_id, _Tally()).from_journal
        if event.parent_id is not None and event.parent_id in self._tallies:
            self._tallies[event.parent_id].from_journal += from_journal
        return summary(event, from_journal)


def _notable(event: Event) -> str | None:
    if isinstance(event, SessionLost):
        return loss(event)
    if isinstance(event, Diverged):
        return divergence(event)
    if isinstance(event, Planned):
        return plan(event)
    return _shortened(event) if isinstance(event, Compacted) else None


def _error(event: CellEnded) -> str:
    return f", {event.error_type}: {event.error_message}" if event.error_type else ""
