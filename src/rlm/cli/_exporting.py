"""Run `rlm export`: write the text piece by piece to standard output or a new file."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import click

from rlm._util.atomic import replacing
from rlm._util.text import counted
from rlm.cli._errors import say
from rlm.cli._options import misused
from rlm.cli._records import Recorded, archive, find_recorded
from rlm.errors import ConfigError
from rlm.records.judging import Condition, Judgments, parse_condition
from rlm.records.judging.values import values_of_outline
from rlm.records.recorders.console import harmless
from rlm.records.trajectories import (
    RunOutline,
    Trajectory,
    open_trajectories,
    open_trajectory,
)
from rlm.records.trajectories.exports import export

__all__ = ["export_recorded", "write_new"]


def export_recorded(
    names: Sequence[str], form: str, output: Path | None, *, force: bool, where: str | None = None
) -> None:
    """Export runs and logs by name, or all recorded runs; `where` chooses among them."""
    with misused("--where"):
        condition = None if where is None else parse_condition(where)
    target = None if output is None else _free(output, force=force)
    places = archive().places
    found = [find_recorded(name) for name in names] or [Recorded(places.runs)]
    if not names and not places.runs.is_dir():
        raise ConfigError(f"no runs in {places.root} yet; `rlm ask` makes one")
    trajectory = open_trajectories(each.path for each in found)
    trajectory.judgments = Judgments(places.root).all()
    trajectory.scores = _scores(found)
    chosen = _named(found)
    if condition is not None:
        chosen = _fitting(trajectory, chosen, condition, trajectory.scores)
    only = found[0].run_id if len(found) == 1 and condition is None else None
    pieces = export(trajectory, form, run_id=only, run_ids=None if only else chosen)
    if target is None:
        _print(pieces)
    else:
        size_bytes = write_new(target, pieces)
        say(f"Wrote {output} ({counted(size_bytes, 'byte')}).")
    if warning := str(trajectory.skipped):
        say(warning)


def _named(found: Sequence[Recorded]) -> set[str] | None:
    """Return the ids of the runs that were named; None stands for all of the files."""
    if all(each.run_id is None for each in found):
        return None
    chosen = {each.run_id for each in found if each.run_id is not None}
    for each in found:
        if each.run_id is None:
            chosen |= {run.run_id for run in _roots(open_trajectory(each.path).runs())}
    return chosen


def _fitting(
    trajectory: Trajectory,
    chosen: set[str] | None,
    condition: Condition,
    scores: Mapping[str, float],
) -> set[str]:
    """Return the runs that a condition is true of; ConfigError if there is none."""
    runs = trajectory.runs()
    candidates = _roots(runs) if chosen is None else [r for r in runs if r.run_id in chosen]
    fitting = {
        run.run_id
        for run in candidates
        if condition.holds(values_of_outline(run, trajectory.judgments, scores))
    }
    if not fitting:
        raise ConfigError(f"none of {counted(len(candidates), 'run')} matches --where {condition}")
    return fitting


def _roots(runs: Sequence[RunOutline]) -> list[RunOutline]:
    known = {run.run_id for run in runs}
    return [run for run in runs if run.parent_id not in known]


def _scores(found: Sequence[Recorded]) -> dict[str, float]:
    """Return the scores that `rlm bench run` wrote beside the logs of its trials."""
    from rlm.bench.trial_runs import TrialRuns

    folders = {each.path.resolve().parent for each in found}  # Logs are in its folder `runs`.
    scores: dict[str, float] = {}
    for folder in folders:
        if TrialRuns.are_in(folder):
            scores |= TrialRuns(folder).scores()
    return scores


def _print(pieces: Iterable[str]) -> None:
    """Print harmless text to a terminal, and exact text otherwise."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    for piece in pieces:
        click.echo(harmless(piece) if is_terminal else _encoded(piece), nl=False)


def _free(output: Path, *, force: bool) -> Path:
    """Return the path of the new file; an existing file is overwritten only with --force."""
    target = Path(os.path.realpath(output))
    if target.exists() and not target.is_file():
        raise ConfigError(f"{output} is not a file; leave out -o to write to stdout")
    if target.exists() and not force:
        raise ConfigError(f"{output} already exists; pass --force to overwrite it")
    return target


def write_new(target: Path, pieces: Iterable[str]) -> int:
    """Write a temporary file beside the target, then rename it, so that no one sees half a file."""
    with replacing(target) as file:
        return sum(file.write(_encoded(piece)) for piece in pieces)


def _encoded(piece: str) -> bytes:
    return piece.encode("utf-8", "replace")
