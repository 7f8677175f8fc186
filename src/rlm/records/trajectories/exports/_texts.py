"""Texts and the order of runs that all exports share."""

import time
from collections.abc import Collection
from typing import Any

import msgspec

from rlm.images import display_text
from rlm.records.trajectories.index import RunOutline
from rlm.records.trajectories.read import Trajectory

__all__ = ["clock_time", "in_tree_order", "json_of", "judgments_of", "roots_of", "text_of"]


def text_of(content: str | list[dict[str, Any]]) -> str:
    """Return a message's content for people; pictures by size and hash."""
    return content if isinstance(content, str) else "\n".join(_part(part) for part in content)


def _part(part: dict[str, Any]) -> str:
    if part.get("type") == "text":
        text = part.get("text")
        return text if isinstance(text, str) else "[text]"
    try:
        return display_text([part])
    except RecursionError:
        return "[part]"


def json_of(value: Any) -> str:
    """Return JSON for a value that was JSON before; null if it is nested too deeply to write."""
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:
        return "null"


def clock_time(seconds: float) -> str:
    """Return a moment in an unambiguous form; empty if it is invalid."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds)) if seconds > 0 else ""
    except (ValueError, OverflowError, OSError):
        return ""


def in_tree_order(runs: list[RunOutline], only: Collection[str] | None = None) -> list[RunOutline]:
    """Return all runs, or some and those below them, without recursion: the depth is untrusted."""
    known = {run.run_id for run in runs}
    below: dict[str | None, list[RunOutline]] = {}
    for run in runs:
        parent = run.parent_id if run.parent_id in known else None
        below.setdefault(parent, []).append(run)
    ahead = list(below.get(None, [])) if only is None else [r for r in runs if r.run_id in only]
    ahead.reverse()
    ordered: dict[str, RunOutline] = {}
    while ahead:
        run = ahead.pop()
        if run.run_id not in ordered:
            ordered[run.run_id] = run
            ahead += reversed(below.get(run.run_id, []))
    return list(ordered.values())


def judgments_of(trajectory: Trajectory, runs: list[RunOutline]) -> dict[str, dict[str, Any]]:
    """Return what people said about each run or its root, as plain values, by run id."""
    if not trajectory.judgments:
        return {}
    return {
        run_id: msgspec.to_builtins(judgment)
        for run_id, root in roots_of(runs).items()
        if (judgment := trajectory.judgments.get(root))
    }


def roots_of(runs: list[RunOutline]) -> dict[str, str]:
    """Return the root's id for each run's id; in `runs`, parents come first."""
    roots: dict[str, str] = {}
    for run in runs:
        roots[run.run_id] = roots.get(run.parent_id or "", run.run_id)
    return roots
