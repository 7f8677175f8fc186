"""What run trees are doing now, computed from their events, without any output.

There can be ten thousand events a second, so each costs a few dictionary operations, whatever the
size of the tree.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rlm.events import (
    DATA,
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
    ToolCalled,
)
from rlm.messages import Usage

ASKING = {
    "step": "asking the model",
    "final": "asking for an answer now",
    "compaction": "shortening its history",
    "direct": "asking the model",
}
EXCERPT_CHARS = 200


@dataclass(slots=True)
class OpenCall:
    """A call without a reply; `prompt` is only the beginning of what it asks."""

    started: float
    prompt: str
    is_request: bool


@dataclass(slots=True, eq=False)
class LiveRun:
    """One run of a tree: its step and activity, the calls of its cell, its live children."""

    run_id: str
    model: str
    started: float
    since: float
    parent: "LiveRun | None" = field(default=None, repr=False)
    step: int = 0
    doing: str = "starting"
    calls: int = 0
    calls_done: int = 0
    calls_failed: int = 0
    retries: int = 0
    data_requests: int = 0
    from_journal: int = 0
    open_calls: dict[str, OpenCall] = field(default_factory=dict)
    children: dict[str, "LiveRun"] = field(default_factory=dict)
    children_done: int = 0

    @property
    def slowest(self) -> OpenCall | None:
        """Return the request that has been open longest: dictionaries keep their order."""
        return next((call for call in self.open_calls.values() if call.is_request), None)

    def begins(self, doing: str, now: float) -> None:
        self.doing, self.since = doing, now

    def counts_anew(self) -> None:
        """Reset the counts, except for calls that threads of an earlier cell left open."""
        self.calls = len(self.open_calls)
        self.calls_done = self.calls_failed = self.children_done = self.retries = 0
        self.data_requests = 0


class Progress:
    """All live run trees, and their sums. Feed it every event, in order."""

    def __init__(self) -> None:
        self.roots: dict[str, LiveRun] = {}
        self.tokens = 0
        self.requests_open = 0
        self.child_runs = 0
        self.retries = 0
        self.from_journal = 0
        self.from_cache = 0
        self._cost_usd = 0.0
        self._cost_known: bool | None = None
        self._runs: dict[str, LiveRun] = {}
        self._began = False

    @property
    def is_over(self) -> bool:
        """Whether at least one run has begun, and all have ended."""
        return self._began and not self.roots

    @property
    def cost_usd(self) -> float | None:
        """Return what was spent; None unless every provider stated it."""
        return self._cost_usd if self._cost_known else None

    def add(self, event: Event) -> None:
        if type(event) is RunStarted:
            self._start(event)
            return
        run = self._runs.get(event.run_id)
        note = NOTES.get(type(event))
        if run is not None and note is not None:
            note(self, run, event)

    def _start(self, event: RunStarted) -> None:
        if (before := self._runs.get(event.run_id)) is not None:
            self._forget(before)
        now = event.monotonic_time
        parent = None if event.parent_id is None else self._runs.get(event.parent_id)
        run = LiveRun(event.run_id, event.model, now, now, parent)
        self._runs[event.run_id] = run
        self._began = True
        if parent is None:
            self.roots[event.run_id] = run
        else:
            parent.children[event.run_id] = run
            self.child_runs += 1

    def _end(self, run: LiveRun, event: RunEnded) -> None:
        if run.parent is not None:
            run.parent.children_done += 1
            run.parent.from_journal += run.from_journal
        self._forget(run)

    def _forget(self, run: LiveRun) -> None:
        """Forget a run and whatever it left behind; a run that was killed may leave a lot."""
        if run.parent is None:
            del self.roots[run.run_id]
        else:
            del run.parent.children[run.run_id]
            self.child_runs -= 1
        ahead = [run]
        while ahead:
            gone = ahead.pop()
            ahead += gone.children.values()
            self.child_runs -= len(gone.children)
            self.requests_open -= sum(call.is_request for call in gone.open_calls.values())
            del self._runs[gone.run_id]

    def _open_call(self, run: LiveRun, event: CallStarted) -> None:
        is_request = event.kind == "llm"
        if event.call_id in run.open_calls:
            return
        prompt = event.prompt[:EXCERPT_CHARS]
        run.open_calls[event.call_id] = OpenCall(event.monotonic_time, prompt, is_request)
        run.calls += 1
        self.requests_open += is_request

    def _close_call(self, run: LiveRun, event: CallEnded) -> None:
        call = run.open_calls.pop(event.call_id, None)
        if call is not None:
            self.requests_open -= call.is_request
            run.calls_done += 1
            run.calls_failed += event.error is not None
        self._reply(run, event)

    def _reply(self, run: LiveRun, event: ModelReplied | CallEnded) -> None:
        if event.stored:
            cached = is_cached(event)
            self.from_cache += cached
            self.from_journal += not cached
            run.from_journal += not cached
        if event.usage is not None:
            self._spend(event.usage)

    def _spend(self, usage: Usage) -> None:
        self.tokens += usage.input_tokens + usage.output_tokens
        if usage.cost_usd is not None:
            self._cost_usd += usage.cost_usd
            self._cost_known = self._cost_known is not False
        elif usage.requests:
            self._cost_known = False

    def _retry(self, run: LiveRun, event: CallRetried) -> None:
        run.retries += 1
        self.retries += 1
        if event.call_id is None:
            run.begins(f"asking again (try {event.attempt} failed)", event.monotonic_time)

    def _step(self, run: LiveRun, event: StepStarted) -> None:
        run.step = event.step
        run.counts_anew()
        run.begins(ASKING["step"], event.monotonic_time)

    def _ask(self, run: LiveRun, event: ModelAsked) -> None:
        run.begins(ASKING.get(event.purpose, event.purpose), event.monotonic_time)

    def _cell(self, run: LiveRun, event: CellStarted) -> None:
        run.counts_anew()
        run.begins(f"cell {event.cell}", event.monotonic_time)

    def _tool(self, run: LiveRun, event: ToolCalled) -> None:
        run.data_requests += event.name.startswith(DATA)

    def _read(self, run: LiveRun, event: CellEnded) -> None:
        run.begins("reading the output", event.monotonic_time)


def is_cached(event: ModelReplied | CallEnded) -> bool:
    """Return whether a stored reply comes from the cache, which states a usage of zero."""
    return event.stored and event.usage is not None and not event.usage.requests


NOTES: dict[type[Event], Callable[[Progress, LiveRun, Any], None]] = {
    CallEnded: Progress._close_call,
    CallRetried: Progress._retry,
    CallStarted: Progress._open_call,
    CellEnded: Progress._read,
    CellStarted: Progress._cell,
    ModelAsked: Progress._ask,
    ModelReplied: Progress._reply,
    RunEnded: Progress._end,
    StepStarted: Progress._step,
    ToolCalled: Progress._tool,
}
"""What each kind of event changes. Other kinds change nothing that is shown."""
