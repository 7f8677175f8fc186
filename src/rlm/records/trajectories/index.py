"""Which run and which step stands where in a file, and an outline of every run.

One pass makes it, at a glance a line. A step is a list of spans: neighbouring lines of one step are
one span, so an index stays small however many events a step has.
"""

from array import array
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from rlm.messages import Usage
from rlm.records.trajectories.decoding import Glance, Skipped

__all__ = ["Index", "RunOutline", "StepUsage"]

MOST_RUNS = 200_000
MOST_STEPS = 1_000_000
"""Of a whole file. A hostile one could otherwise fill the memory with a step a line."""

SHOWN_CHARS = 2_000
"""An outline holds so much of a query and of an answer; the events hold all of it."""


class RunOutline(Struct, frozen=True, kw_only=True):
    """One run, from its last attempt. Unfinished runs have counted up what there is so far.

    `status`: "killed" is a run that has not ended and will not. `tokens` and `cost_usd` include
    child runs, `calls` and `steps` do not. `started` is in seconds since 1970, or 0.0.
    """

    run_id: str
    parent_id: str | None = None
    parent_call_id: str | None = None
    depth: int = 0
    query: str = ""
    model: str = ""
    status: Literal["running", "ended", "killed"] = "running"
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
    """What a step used itself, and what it used with the child runs that it started."""

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
        """Where its last attempt starts; what stands before does not count."""
        self.attempts = attempts
        self.ending: Glance | None = None
        self.latest = opening.wall_time
        self.calls = 0
        self.usage = Usage()
        self.by_step: dict[int, StepUsage] = {}
        self.child_calls: dict[str, int] = {}
        """The step of every call that started a child run, unless it says what that used."""
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
        """Only the reference engine says with a call what its child run used."""
        is_child = glance.type == "call_ended" and glance.kind == "rlm"
        if is_child:
            self.child_calls.pop(glance.call_id or "", None)
        before = self.by_step.get(glance.step, StepUsage())
        own = before.own if is_child else _sum(before.own, usage)
        self.by_step[glance.step] = StepUsage(own, _sum(before.whole, usage))


class Index:
    """Grows line by line; `end` is the place to read on from."""

    def __init__(self) -> None:
        self.end = 0
        self._runs: dict[str, _Run] = {}
        self._steps = 0
        self._added_up: tuple[dict[str, Usage], dict[str, list[str]]] | None = None

    def add(self, start: int, end: int, glance: Glance, skipped: Skipped) -> None:
        """Take in one event. A run that starts again forgets its earlier attempt."""
        self._added_up = None
        known = self._runs.get(glance.run_id)
        if known is None and len(self._runs) >= MOST_RUNS:
            skipped.add("of too many runs", f"byte {start:,}", f"more than {MOST_RUNS:,}")
            return
        if known is None or glance.type == "run_started":
            attempts = 1 if known is None else known.attempts + 1
            self._runs[glance.run_id] = known = _Run(_short(glance), start, attempts)
        if glance.step not in known.spans:
            if self._steps >= MOST_STEPS:
                skipped.add("of too many steps", f"byte {start:,}", f"more than {MOST_STEPS:,}")
                return
            self._steps += 1
        known.add(start, end, glance)

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._runs

    def counts(self, run_id: str, step: int, place: int) -> bool:
        """Whether an event of that step, at that place, is in the index: of its last attempt."""
        run = self._runs.get(run_id)
        return run is not None and place >= run.first and step in run.spans

    def steps_of(self, run_id: str) -> list[int]:
        """The steps of a run that have events; 0 is what comes before the first."""
        return sorted(self._runs[run_id].spans) if run_id in self._runs else []

    def spans(self, run_id: str, step: int | None = None) -> list[tuple[int, int]]:
        """Where a run's events are, or those of one step, in the order of the file."""
        run = self._runs.get(run_id)
        if run is None:
            return []
        chosen = run.spans.values() if step is None else [run.spans.get(step, array("Q"))]
        pairs = [(each[at], each[at + 1]) for each in chosen for at in range(0, len(each), 2)]
        return _merged(sorted(pairs))

    def outlines(self, *, may_run: bool) -> list[RunOutline]:
        """Every run in order of appearance. `may_run`: somebody may still be writing the file."""
        totals = self._totals()
        found: dict[str, RunOutline] = {}
        for run_id, run in self._runs.items():
            parent = self._runs.get(run.opening.parent_id or "")
            outline = _outline(run, totals[run_id])
            if run.ending is None and not self._goes_on(run, parent, found, may_run):
                outline = replace(outline, status="killed")
            found[run_id] = outline
        return list(found.values())

    def _goes_on(
        self, run: _Run, parent: _Run | None, found: dict[str, RunOutline], may_run: bool
    ) -> bool:
        """A child ends with its parent, and does not outlive a restart of it."""
        if parent is None:
            return may_run
        above = found.get(parent.opening.run_id)
        return parent.first <= run.first and above is not None and above.status == "running"

    def _totals(self) -> dict[str, Usage]:
        """Usage with that of children: as told at the end, or added up from below."""
        totals = {run_id: run.usage for run_id, run in self._runs.items()}
        for run_id, run in reversed(self._runs.items()):
            if run.ending is not None and run.ending.usage is not None:
                totals[run_id] = run.ending.usage
            parent = run.opening.parent_id or ""
            if parent in totals and parent != run_id:
                totals[parent] = _sum(totals[parent], totals[run_id])
        return totals

    def usage_of(self, run_id: str) -> Usage:
        """What a run used, with its children: as it said at its end, or as much as is known."""
        return self._sums()[0].get(run_id, Usage())

    def step_usages(self, run_id: str) -> dict[int, StepUsage]:
        """What the steps of a run used; those that used nothing are left out."""
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
        """What every run used in all, and which children it has; made anew after an event."""
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
    """Sorted spans without overlaps: a line of the reference engine is of several steps."""
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
    except OverflowError:  # No honest cost is that large.
        return replace(one, cost_usd=None) + replace(other, cost_usd=None)


def _short(glance: Glance) -> Glance:
    """Long texts are cut: an index is kept for as long as somebody looks at the file."""
    answer = None if glance.answer is None else glance.answer[:SHOWN_CHARS]
    error = None if glance.error is None else glance.error[:SHOWN_CHARS]
    return replace(glance, query=glance.query[:SHOWN_CHARS], answer=answer, error=error)


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
        cost_usd=usage.cost_usd,
        seconds=seconds,
        started=opening.wall_time,
        attempts=run.attempts,
    )
