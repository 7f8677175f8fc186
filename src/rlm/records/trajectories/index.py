"""Where each run and step is in a file, and an outline of every run.

It is built in one pass. A step is a list of spans: adjacent lines of one step are one span, so an
index stays small however many events a step has.
"""

from array import array
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from rlm.messages import Usage
from rlm.records.trajectories.decoding import Glance, Skipped

__all__ = ["Index", "RunOutline", "StepUsage"]

MAX_RUNS = 200_000
MAX_STEPS = 1_000_000
"""The most spans of a file; otherwise, a hostile one could fill the memory."""

SHOWN_CHARS = 2_000
"""How much of a query or an answer an outline contains; the events hold all of it."""


class RunOutline(Struct, frozen=True, kw_only=True):
    """One run, from its last attempt; for unfinished runs, the figures so far.

    `status`: "interrupted" is a run that has not ended and will not. `tokens` and `cost_usd`
    include child runs, `calls` and `steps` do not. `started` is in seconds since 1970, or 0.0.
    """

    run_id: str
    parent_id: str | None = None
    parent_call_id: str | None = None
    depth: int = 0
    query: str = ""
    model: str = ""
    status: Literal["running", "ended", "interrupted"] = "running"
    stop_reason: str = ""
    answer_source: str = ""
    limit: str | None = None
    error: str | None = None
    answer: str | None = None
    steps: int = 0
    calls: int = 0
    tokens: int = 0
    cost_usd: float | None = None
    seconds: float = 0.0
    started: float = 0.0
    attempts: int = 1


class StepUsage(Struct, frozen=True):
    """What a step used itself, and with the child runs that it started."""

    own: Usage = Usage()
    whole: Usage = Usage()


class _Run:
    """What is known of a run while the file is read."""

    __slots__ = (
        *("attempts", "by_step", "calls", "child_calls", "ending", "first"),
        *("latest", "opening", "spans", "usage"),
    )

    def __init__(self, opening: Glance, first: int, attempts: int) -> None:
        self.opening = opening
        self.first = first
        """Where its last attempt starts; earlier events do not count."""
        self.attempts = attempts
        self.ending: Glance | None = None
        self.latest = opening.wall_time
        self.calls = 0
        self.usage = Usage()
        self.by_step: dict[int, StepUsage] = {}
        self.child_calls: dict[str, int] = {}
        """The step of every call that started a child run, unless the call states its usage."""
        self.spans: dict[int, array[int]] = {}

    def add(self, start: int, end: int, glance: Glance) -> None:
        spans = self.spans.setdefault(glance.step, array("Q"))
        if spans and start <= spans[-1]:
            spans[-1] = max(end, spans[-1])
        else:
            spans.extend((start, end))
        self.latest = max(self.latest, glance.wall_time)
        if glance.type == "call_started":
            self.calls += 1
            if glance.kind == "rlm":
                self.child_calls[glance.call_id or ""] = glance.step
        elif glance.type == "run_ended":
            self.ending = _short(glance)
        if glance.usage is not None and glance.type in {"model_replied", "call_ended"}:
            self.usage = _sum(self.usage, glance.usage)
            self._use(glance, glance.usage)

    def _use(self, glance: Glance, usage: Usage) -> None:
        """Add usage; only logs of the reference engine state a child's usage with the call."""
        is_child = glance.type == "call_ended" and glance.kind == "rlm"
        if is_child:
            self.child_calls.pop(glance.call_id or "", None)
        before = self.by_step.get(glance.step, StepUsage())
        own = before.own if is_child else _sum(before.own, usage)
        self.by_step[glance.step] = StepUsage(own, _sum(before.whole, usage))


class Index:
    """An index that grows line by line; `end` is where to continue reading."""

    def __init__(self) -> None:
        self.end = 0
        self._runs: dict[str, _Run] = {}
        self._steps = 0
        self._added_up: tuple[dict[str, Usage], dict[str, list[str]]] | None = None

    def add(self, start: int, end: int, glance: Glance, skipped: Skipped) -> None:
        """Add one event. A run that starts again forgets its earlier attempt."""
        self._added_up = None
        known = self._runs.get(glance.run_id)
        if known is None and len(self._runs) >= MAX_RUNS:
            skipped.add("of too many runs", f"byte {start:,}", f"more than {MAX_RUNS:,}")
            return
        if known is None or glance.type == "run_started":
            attempts = 1 if known is None else known.attempts + 1
            self._runs[glance.run_id] = known = _Run(_short(glance), start, attempts)
        if glance.step not in known.spans:
            if self._steps >= MAX_STEPS:
                skipped.add("of too many steps", f"byte {start:,}", f"more than {MAX_STEPS:,}")
                return
            self._steps += 1
        known.add(start, end, glance)

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._runs

    def counts(self, run_id: str, step: int, place: int) -> bool:
        """Return whether an event at that position belongs to the last attempt."""
        run = self._runs.get(run_id)
        return run is not None and place >= run.first and step in run.spans

    def steps_of(self, run_id: str) -> list[int]:
        """Return the steps of a run that have events; 0 is what comes before the first."""
        return sorted(self._runs[run_id].spans) if run_id in self._runs else []

    def spans(self, run_id: str, step: int | None = None) -> list[tuple[int, int]]:
        """Return where the events of a run, or of one step, are, in file order."""
        run = self._runs.get(run_id)
        if run is None:
            return []
        chosen = run.spans.values() if step is None else [run.spans.get(step, array("Q"))]
        pairs = [(each[at], each[at + 1]) for each in chosen for at in range(0, len(each), 2)]
        return _merged(sorted(pairs))

    def outlines(self, *, may_run: bool) -> list[RunOutline]:
        """Return every run in order of appearance. `may_run`: the file may still be growing."""
        totals = self._totals()
        found: dict[str, RunOutline] = {}
        for run_id, run in self._runs.items():
            parent = self._runs.get(run.opening.parent_id or "")
            outline = _outline(run, totals[run_id])
            if run.ending is None and not self._goes_on(run, parent, found, may_run):
                outline = replace(outline, status="interrupted")
            found[run_id] = outline
        return list(found.values())

    def _goes_on(
        self, run: _Run, parent: _Run | None, found: dict[str, RunOutline], may_run: bool
    ) -> bool:
        """Return whether a child is still running: it ends with its parent or a restart of that."""
        if parent is None:
            return may_run
        above = found.get(parent.opening.run_id)
        return parent.first <= run.first and above is not None and above.status == "running"

    def _totals(self) -> dict[str, Usage]:
        """Return usage including children: as stated at the end, or added up."""
        totals = {run_id: run.usage for run_id, run in self._runs.items()}
        for run_id, run in reversed(self._runs.items()):
            if run.ending is not None and run.ending.usage is not None:
                totals[run_id] = run.ending.usage
            parent = run.opening.parent_id or ""
            if parent in totals and parent != run_id:
                totals[parent] = _sum(totals[parent], totals[run_id])
        return totals

    def usage_of(self, run_id: str) -> Usage:
        """Return what a run and its children used: as stated at its end, or as far as known."""
        return self._sums()[0].get(run_id, Usage())

    def step_usages(self, run_id: str) -> dict[int, StepUsage]:
        """Return what the steps of a run used, except steps that used nothing."""
        run = self._runs.get(run_id)
        if run is None:
            return {}
        found, (totals, children) = dict(run.by_step), self._sums()
        for child in children.get(run_id, ()):
            step = run.child_calls.get(self._runs[child].opening.parent_call_id or "")
            if step is not None:
                before = found.get(step, StepUsage())
                found[step] = replace(before, whole=_sum(before.whole, totals[child]))
        return found

    def _sums(self) -> tuple[dict[str, Usage], dict[str, list[str]]]:
        """Return the total usage and the children of every run; recomputed after each event."""
        if self._added_up is None:
            children: dict[str, list[str]] = {}
            for run_id, run in self._runs.items():
                if run.opening.parent_id is not None:
                    children.setdefault(run.opening.parent_id, []).append(run_id)
            self._added_up = self._totals(), children
        return self._added_up

    def __iter__(self) -> Iterator[str]:
        return iter(self._runs)


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return sorted spans without overlaps: a reference engine's line belongs to several steps."""
    merged: list[tuple[int, int]] = []
    for start, end in spans:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _sum(one: Usage, other: Usage) -> Usage:
    try:
        return one + other
    except OverflowError:  # No real cost is that large.
        return replace(one, cost_usd=None) + replace(other, cost_usd=None)


def _short(glance: Glance) -> Glance:
    """Cut long texts: an index is kept as long as the file is open."""
    answer = None if glance.answer is None else glance.answer[:SHOWN_CHARS]
    error = None if glance.error is None else glance.error[:SHOWN_CHARS]
    return replace(glance, query=glance.query[:SHOWN_CHARS], answer=answer, error=error)


def _cost(run: _Run, usage: Usage) -> float | None:
    """Return the cost of a run: 0 if it ended before its first request, None if it is unknown."""
    is_over = run.ending is not None and not (run.ending.steps or run.calls or usage.requests)
    return 0.0 if is_over else usage.cost_usd


def _outline(run: _Run, usage: Usage) -> RunOutline:
    opening, ending = run.opening, run.ending
    seconds = max(0.0, run.latest - opening.wall_time) if ending is None else ending.seconds
    return RunOutline(
        run_id=opening.run_id,
        parent_id=opening.parent_id,
        parent_call_id=opening.parent_call_id,
        depth=opening.depth,
        query=opening.query,
        model=opening.model,
        status="running" if ending is None else "ended",
        stop_reason="" if ending is None else ending.stop_reason,
        answer_source="" if ending is None else ending.answer_source,
        limit=None if ending is None else ending.limit,
        error=None if ending is None else ending.error,
        answer=None if ending is None else ending.answer,
        steps=max(run.spans, default=0) if ending is None else ending.steps,
        calls=run.calls,
        tokens=usage.total_tokens,
        cost_usd=_cost(run, usage),
        seconds=seconds,
        started=opening.wall_time,
        attempts=run.attempts,
    )
