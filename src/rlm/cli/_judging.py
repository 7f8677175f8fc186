"""Run `rlm judge`."""

from typing import Any

import click
import msgspec

from rlm.cli._options import misused
from rlm.cli._output import as_harmless_json
from rlm.cli._records import archive, find_recorded
from rlm.errors import ConfigError
from rlm.records.journal import Archive
from rlm.records.judging import (
    Judgment,
    JudgmentChange,
    Judgments,
    checked_score,
    checked_tag,
)
from rlm.records.recorders.console import harmless, one_line
from rlm.records.trajectories import open_trajectory
from rlm.records.trajectories.exports import clock_time

__all__ = ["change_of", "judge_recorded"]


def change_of(
    *,
    score: float | None,
    no_score: bool,
    tags: tuple[str, ...],
    untags: tuple[str, ...],
    comment: str | None,
    gone: str | None,
) -> JudgmentChange | None:
    """Return what the options change; None if they only ask to print."""
    with misused("--tag"):
        for tag in tags:
            checked_tag(tag)
    with misused("--score"):
        checked_score(score)
    given: dict[str, Any] = {"add_tags": tags, "remove_tags": untags, "comment": comment}
    given["remove_comment"] = gone
    if score is not None or no_score:
        given["score"] = score
    change = JudgmentChange(**given)
    return None if change == JudgmentChange() else change


def judge_recorded(name: str, change: JudgmentChange | None, *, as_json: bool) -> None:
    """Change the judgment of a root run, and print the outcome."""
    kept = archive()
    run_id = _root_of(kept, name)
    judgments = Judgments(kept.places.root)
    if change is None:
        found = judgments.get(run_id)
    else:
        gone = change.remove_comment
        if gone is not None and all(each.id != gone for each in judgments.get(run_id).comments):
            raise ConfigError(
                f"run {run_id} has no comment {gone!r}; `rlm judge {name}` lists them"
            )
        found = judgments.change(run_id, change)
    if as_json:
        click.echo(as_harmless_json({"run_id": run_id, **msgspec.to_builtins(found)}))
    else:
        _show(run_id, found)


def _root_of(kept: Archive, name: str) -> str:
    """Return the id of the root run that an argument names: only whole runs are judged."""
    recorded = find_recorded(name)
    if recorded.run is not None:
        return recorded.run.run_id
    runs = open_trajectory(recorded.path).runs()
    known = {run.run_id for run in runs}
    roots = [run.run_id for run in runs if run.parent_id not in known]
    if len(roots) == 1:
        return roots[0]
    raise ConfigError(
        f"{name} has {len(roots):,} root runs; `rlm view {name}` lets you judge each of them"
    )


def _show(run_id: str, found: Judgment) -> None:
    click.echo(f"run     {one_line(run_id)}")
    click.echo(f"score   {'-' if found.score is None else f'{found.score:g}'}")
    click.echo(f"tags    {' '.join(found.tags) or '-'}")
    for comment in found.comments:
        click.echo(f"comment {comment.id}, {clock_time(comment.at)}")
        for line in harmless(comment.text).splitlines():
            click.echo(f"    {line}")
