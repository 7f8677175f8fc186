"""Outlines of runs, made from an index: parents and children, how each run ended, and totals.

The rules are those of `rlm.records.trajectories`; a test compares the two.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from rlm.records.trajectories import RunOutline
from rlm.viewer.index import MAX_MODELS, RunIndex, Sum

__all__ = ["Forest", "Node"]

MAX_IN_TREE = 5_000


class Node(Struct, kw_only=True):
    """A run with totals: its descendants, their greatest depth, all their calls and models."""

    outline: RunOutline
    root: str
    children: list[str]
    descendants: int = 0
    deepest: int = 0
    all_calls: int = 0
    models: dict[str, Sum] = field(default_factory=dict)
    group: tuple[str, str] | None = None
    listed: dict[str, Any] | None = None
    """What the list shows of it, once that has been made."""

    def plain(self, max_chars: int | None = None) -> dict[str, Any]:
        """Return the run as the page expects it; in lists, long texts are cut."""
        outline = self.outline
        if max_chars is not None:
            answer = None if outline.answer is None else outline.answer[:max_chars]
            outline = replace(outline, query=outline.query[:max_chars], answer=answer)
        plain: dict[str, Any] = msgspec.structs.asdict(outline)
        plain["children"] = self.descendants
        return {**plain, "deepest": self.deepest, "all_calls": self.all_calls}


class Forest:
    """The runs of one file as trees. A parent must have started earlier, so there are no cycles."""

    def __init__(self, runs: Mapping[str, RunIndex], *, may_run: bool) -> None:
        self.nodes: dict[str, Node] = {}
        self.totals = totals = _totals(runs)
        for run_id, run in runs.items():
            above = run.opening.parent_id
            parent = None if above is None else self.nodes.get(above)
            outline = _outline(run, totals[run_id])
            if run.ending is None and not _is_running(run, parent, runs, may_run):
                outline = replace(outline, status="interrupted")
            root = run_id if parent is None else parent.root
            self.nodes[run_id] = Node(
                outline=outline,
                root=root,
                children=[],
                deepest=outline.depth,
                all_calls=outline.calls,
                models={name: _copy(use.used) for name, use in run.models.items()},
                group=run.group,
            )
            if parent is not None:
                parent.children.append(run_id)
        # A run may also have started without an event so far.
        self.is_unfinished = not runs or any(run.ending is None for run in runs.values())
        self._add_up()

    def _add_up(self) -> None:
        for node in reversed(list(self.nodes.values())):
            for child in map(self.nodes.__getitem__, node.children):
                node.descendants += 1 + child.descendants
                node.deepest = max(node.deepest, child.deepest)
                node.all_calls += child.all_calls
                for name, used in child.models.items():
                    if name in node.models or len(node.models) < MAX_MODELS:
                        node.models.setdefault(name, Sum()).include(used)

    @property
    def roots(self) -> list[Node]:
        return [node for run_id, node in self.nodes.items() if node.root == run_id]

    def used_by_children(self, run: RunIndex) -> dict[int, Sum]:
        """Return what the child runs of each step used, with all their descendants."""
        steps: dict[int, Sum] = {}
        for number, row in run.steps.items():
            steps[number] = Sum()
            steps[number].include(row.by_children)
        for child in self.nodes[run.opening.run_id].children:
            step = run.child_calls.get(self.nodes[child].outline.parent_call_id or "")
            if step in steps:
                steps[step].include(self.totals[child])
        return steps

    def below(self, run_id: str, most: int | None = None) -> list[str]:
        """Return that run and all its descendants, parents first."""
        found = [run_id]
        for each in found:
            found += self.nodes[each].children
            if most is not None and len(found) >= most:
                return found[:most]
        return found


def _copy(used: Sum) -> Sum:
    copy = Sum()
    copy.include(used)
    return copy


def _is_running(
    run: RunIndex, parent: Node | None, runs: Mapping[str, RunIndex], may_run: bool
) -> bool:
    """Return whether a run may still be running; a child ends when its parent ends or restarts."""
    if parent is None:
        return may_run
    above = parent.outline
    return runs[above.run_id].first <= run.first and above.status == "running"


def _totals(runs: Mapping[str, RunIndex]) -> dict[str, Sum]:
    """Return usage including children: as reported at the end, or added up."""
    totals: dict[str, Sum] = {}
    for run_id, run in runs.items():
        totals[run_id] = Sum()
        totals[run_id].include(run.used)
    for run_id, run in reversed(list(runs.items())):
        if run.ending is not None and run.ending.usage is not None:
            usage, reported = run.ending.usage, Sum()
            reported.add(usage.total_tokens, usage.cost_usd, usage.requests)
            totals[run_id] = reported
        parent = run.opening.parent_id
        if parent is not None and parent in totals and parent != run_id:
            totals[parent].include(totals[run_id])
    return totals


def _outline(run: RunIndex, used: Sum) -> RunOutline:
    opening, ending = run.opening, run.ending
    outline = RunOutline(
        run_id=opening.run_id,
        parent_id=opening.parent_id,
        parent_call_id=opening.parent_call_id,
        depth=opening.depth,
        query=opening.query,
        model=opening.model,
        steps=max(run.steps, default=0),
        calls=run.calls,
        tokens=used.tokens,
        cost_usd=used.cost,
        seconds=max(0.0, run.latest - opening.wall_time),
        started=opening.wall_time,
        attempts=run.attempts,
    )
    if ending is None:
        return outline
    return replace(
        outline,
        status="ended",
        stop_reason=ending.stop_reason,
        answer_source=ending.answer_source,
        limit=ending.limit,
        error=ending.error,
        answer=ending.answer,
        steps=ending.steps,
        seconds=ending.seconds,
    )
