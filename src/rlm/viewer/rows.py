"""What the page draws, row by row: steps, calls, and usage over time."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from rlm.events import CallEnded, CallStarted, Event, ModelAsked, ModelReplied, ToolCalled
from rlm.images import display_text
from rlm.viewer.index import CODES, ID_CHARS, RunIndex, Sum
from rlm.viewer.record_files import RecordFile

__all__ = ["call_rows", "request_rows", "step_rows", "usage_points"]

MAX_STEP_ROWS = 50_000
MAX_POINTS = 2_000
SHOWN_CHARS = 200
CALL_CODES = frozenset({CODES["call_started"], CODES["call_ended"], CODES["tool_called"]})
BEGIN_CODES = (CODES["call_started"], CODES["tool_called"])
REQUEST_CODES = frozenset({CODES["model_asked"], CODES["model_replied"]})


def step_rows(run: RunIndex, used_by_children: Mapping[int, Sum]) -> list[dict[str, Any]]:
    """Return the steps of one run: what each used with and without its child runs."""
    return [
        {
            "step": step,
            "start": row.start,
            "end": row.end,
            "cells": row.cells,
            "calls": row.calls,
            "failed_calls": row.failed_calls,
            "tools": row.tools,
            **_used(row.used, used_by_children.get(step)),
            "error": row.error,
            "stored": row.stored,
        }
        for step, row in sorted(run.steps.items())[:MAX_STEP_ROWS]
    ]


def _used(own: Sum, by_children: Sum | None) -> dict[str, Any]:
    whole = Sum()
    whole.include(own)
    if by_children is not None:
        whole.include(by_children)
    return {
        "tokens": whole.tokens,
        "cost_usd": whole.cost,
        "own_tokens": own.tokens,
        "own_cost_usd": own.cost,
    }


# -- calls ----------------------------------------------------------------------------------------


class CallRow(Struct, kw_only=True):
    """One call, tool call, or request of a run itself. It has no `end` before it has ended."""

    call_id: str
    run_id: str
    depth: int
    step: int
    kind: str
    model: str
    start: float
    end: float | None = None
    tokens: int = 0
    cost_usd: float | None = None
    error: str | None = None
    stored: bool = False
    retries: int = 0
    child_run_id: str | None = None
    prompt: str = ""
    reply: str = ""


def call_rows(file: RecordFile, run_ids: list[str], limit: int) -> tuple[list[CallRow], int]:
    """Return the first calls of a tree in order of their start, and the number of all."""
    total = sum(file.index_of(run_id).types.count(c) for run_id in run_ids for c in BEGIN_CODES)
    found = _Calls(limit)
    for _, _, event in file.tree_events(run_ids, codes=CALL_CODES):
        if found.is_complete(event):
            break
        found.take(event)
    return sorted(found.rows, key=lambda row: row.start), total


def request_rows(file: RecordFile, run_ids: list[str], limit: int) -> list[CallRow]:
    """Return the first requests of the runs themselves, which are not calls.

    A run has one at a time. `call_id` is the number of its first event.
    """
    rows: list[CallRow] = []
    open_rows: dict[str, CallRow] = {}
    for _, number, event in file.tree_events(run_ids, codes=REQUEST_CODES):
        if isinstance(event, ModelReplied):
            if (row := open_rows.pop(event.run_id, None)) is not None:
                _end_request(row, event)
        elif isinstance(event, ModelAsked) and len(rows) < limit:
            open_rows[event.run_id] = row = _request(event, number)
            rows.append(row)
        if len(rows) >= limit and not open_rows:
            break
    return sorted(rows, key=lambda row: row.start)


def _request(event: ModelAsked, number: int) -> CallRow:
    last = event.new_messages[-1] if event.new_messages else None
    return CallRow(
        call_id=f"#{number}",
        run_id=event.run_id,
        depth=event.depth,
        step=event.step,
        kind="request",
        model=event.model[:SHOWN_CHARS],
        start=event.wall_time,
        prompt="" if last is None else display_text(last.content)[:SHOWN_CHARS],
    )


def _end_request(row: CallRow, event: ModelReplied) -> None:
    usage = event.usage
    row.end = event.wall_time
    row.tokens = usage.total_tokens if usage else 0
    row.cost_usd = usage.cost_usd if usage else None
    row.stored, row.retries, row.reply = event.stored, event.retries, event.text[:SHOWN_CHARS]
    row.error = None if event.error is None else event.error[: 10 * SHOWN_CHARS]


class _Calls:
    """Pairs the starts and ends of calls; ids are unique only within a run."""

    def __init__(self, limit: int) -> None:
        self.rows: list[CallRow] = []
        self._limit = limit
        self._open: dict[tuple[str, str], CallRow] = {}

    def is_complete(self, event: Event) -> bool:
        """Return whether no more rows fit, and all of them have ended."""
        return len(self.rows) >= self._limit and not self._open

    def take(self, event: Event) -> None:
        if isinstance(event, CallEnded):
            row = self._open.pop((event.run_id, event.call_id), None)
            if row is not None:
                _end(row, event)
        elif len(self.rows) >= self._limit:
            return
        elif isinstance(event, CallStarted):
            row = CallRow(
                **_about(event),
                kind=event.kind[:SHOWN_CHARS],
                model=event.model[:SHOWN_CHARS],
                start=event.wall_time,
            )
            row.prompt = event.prompt[:SHOWN_CHARS]
            self._open[event.run_id, event.call_id] = row
            self.rows.append(row)
        elif isinstance(event, ToolCalled):
            self.rows.append(_tool(event))


def _about(event: CallStarted | ToolCalled) -> dict[str, Any]:
    names = ("run_id", "depth", "step")
    return {"call_id": event.call_id[:ID_CHARS], **{name: getattr(event, name) for name in names}}


def _end(row: CallRow, event: CallEnded) -> None:
    usage = event.usage
    row.end = event.wall_time
    row.tokens = usage.total_tokens if usage else 0
    row.cost_usd = usage.cost_usd if usage else None
    row.error, row.stored, row.retries = event.error, event.stored, event.retries
    child = event.child_run_id
    row.child_run_id = None if child is None else child[:ID_CHARS]
    row.reply = event.reply[:SHOWN_CHARS]
    row.error = None if row.error is None else row.error[: 10 * SHOWN_CHARS]


def _tool(event: ToolCalled) -> CallRow:
    """Return the row of a tool call; its only event says that it was made, and how long it took."""
    error = None if event.error is None else event.error[: 10 * SHOWN_CHARS]
    return CallRow(
        **_about(event),
        kind="tool",
        model=event.name[:SHOWN_CHARS],
        start=event.wall_time - max(0.0, event.seconds),
        end=event.wall_time,
        error=error,
        stored=event.stored,
        prompt=str(event.arguments)[:SHOWN_CHARS],
        reply=event.result[:SHOWN_CHARS],
    )


# -- usage ----------------------------------------------------------------------------------------


def usage_points(runs: Iterable[RunIndex]) -> list[dict[str, Any]]:
    """Return tokens and cost so far by depth, in at most `MAX_POINTS` points."""
    paid = sorted(
        (time, run.opening.depth, tokens, cost)
        for run in runs
        for time, tokens, cost in zip(run.times, run.tokens, run.costs, strict=False)
    )
    sums: dict[int, tuple[int, float]] = {}
    points: list[dict[str, Any]] = []
    depths = len({depth for _, depth, _, _ in paid})
    every = -(-len(paid) // max(1, MAX_POINTS - depths))
    last: dict[int, dict[str, Any]] = {}
    for number, (time, depth, tokens, cost) in enumerate(paid):
        before = sums.get(depth, (0, 0.0))
        sums[depth] = before[0] + tokens, before[1] + cost
        point = {"time": time, "depth": depth, "tokens": sums[depth][0], "cost_usd": sums[depth][1]}
        last[depth] = point
        if number % every == 0:
            points.append(last.pop(depth))
    return [*points, *last.values()][:MAX_POINTS]
