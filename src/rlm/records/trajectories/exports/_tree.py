"""Runs in the order in which somebody reads them: each followed by those it started."""

from rlm.records.trajectories.index import RunOutline

__all__ = ["in_tree_order"]


def in_tree_order(runs: list[RunOutline], only: str | None = None) -> list[RunOutline]:
    """All runs, or one of them with all below it. Made without recursion: depth is theirs."""
    known = {run.run_id for run in runs}
    below: dict[str | None, list[RunOutline]] = {}
    for run in runs:
        parent = run.parent_id if run.parent_id in known else None
        below.setdefault(parent, []).append(run)
    ahead = list(below.get(None, [])) if only is None else [r for r in runs if r.run_id == only]
    ahead.reverse()
    ordered: dict[str, RunOutline] = {}
    while ahead:
        run = ahead.pop()
        if run.run_id not in ordered:
            ordered[run.run_id] = run
            ahead += reversed(below.get(run.run_id, []))
    return list(ordered.values())
