"""What a run tree is doing right now, worked out from its events. No output, no terminal."""

import time
from dataclasses import dataclass, field

from rlm.events import (
    CallEnded,
    CallRetried,
    CallStarted,
    CellEnded,
    CellStarted,
    Event,
    ModelAsked,
    ModelReplied,
    RunEnded,
    RunStarted,
    StepStarted,
)
from rlm.messages import Usage

ASKING = {
    "step": "asking the model",
    "final": "asking for an answer now",
    "compaction": "shortening its history",
    "direct": "asking the model",
}


@dataclass
class RunState:
    """One run of the tree: its step, what it is at, its calls of this cell, its live children."""

    run_id: str
    model: str
    started: float = field(default_factory=time.monotonic)
    step: int = 0
    doing: str = "starting"
    since: float = field(default_factory=time.monotonic)
    calls: int = 0
    calls_done: int = 0
    calls_failed: int = 0
    children: dict[str, "RunState"] = field(default_factory=dict)
    children_done: int = 0

    def begins(self, doing: str) -> None:
        self.doing, self.since = doing, time.monotonic()


class Progress:
    """The state of one run tree. Feed it every event, in order."""

    def __init__(self) -> None:
        self.root: RunState | None = None
        self.ended: RunEnded | None = None
        self.usage = Usage()
        self._runs: dict[str, RunState] = {}

    def add(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self._start(event)
        run = self._runs.get(event.run_id)
        if run is None:
            return
        if isinstance(event, ModelReplied | CallEnded) and event.usage is not None:
            self.usage += event.usage
        if isinstance(event, CallStarted | CallEnded):
            _count_call(run, event)
        elif isinstance(event, RunEnded):
            self._end(run, event)
        else:
            _note_step(run, event)

    def _start(self, event: RunStarted) -> None:
        run = RunState(event.run_id, event.model)
        self._runs[event.run_id] = run
        parent = self._runs.get(event.parent_id or "")
        if parent is not None:
            parent.children[event.run_id] = run
        elif self.root is None:
            self.root = run

    def _end(self, run: RunState, event: RunEnded) -> None:
        del self._runs[run.run_id]
        parent = self._runs.get(event.parent_id or "")
        if parent is not None:
            parent.children.pop(run.run_id, None)
            parent.children_done += 1
        if run is self.root:
            self.ended = event


def _note_step(run: RunState, event: Event) -> None:
    if isinstance(event, StepStarted):
        run.step = event.step
        run.calls = run.calls_done = run.calls_failed = run.children_done = 0
        run.begins(ASKING["step"])
    elif isinstance(event, ModelAsked):
        run.begins(ASKING.get(event.purpose, event.purpose))
    elif isinstance(event, CallRetried) and event.call_id is None:
        run.begins(f"asking again (try {event.attempt} failed)")
    elif isinstance(event, CellStarted):
        run.calls = run.calls_done = run.calls_failed = run.children_done = 0
        run.begins(f"cell {event.cell}")
    elif isinstance(event, CellEnded):
        run.begins("reading the output")


def _count_call(run: RunState, event: CallStarted | CallEnded) -> None:
    if isinstance(event, CallStarted):
        run.calls += 1
        return
    run.calls_done += 1
    run.calls_failed += event.error is not None
