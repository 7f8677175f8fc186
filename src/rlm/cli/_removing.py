"""What `rlm rm` does: choose, ask, remove, and let contexts go that nobody has any more."""

import re
import sys
import time
from collections.abc import Iterable
from contextlib import suppress

import click

from rlm.cli._border import ANSWERED, FAILED, say
from rlm.cli._listing import summary_of
from rlm.cli._records import archive, find_run, newest_first
from rlm.errors import ConfigError
from rlm.records.journal import Archive, RunFile
from rlm.records.recorders.console import counted, one_line

__all__ = ["remove_runs"]

HASH = re.compile(r"[0-9a-f]{64}")
DAY_SECONDS = 86_400


def remove_runs(
    names: tuple[str, ...], older_than: float | None, status: str | None, *, yes: bool
) -> int:
    """Remove; returns the exit code, which is 1 if one of them is still there."""
    kept = archive()
    if names:
        runs = list({run.run_id: run for run in (find_run(kept, name) for name in names)}.values())
    else:
        runs = [run for run in newest_first(kept.places) if _fits(kept, run, older_than, status)]
    if not runs:
        say("There is no such run.")
        return ANSWERED
    if not yes:
        _ask(runs, by_name=bool(names))
    named = _contexts_of(kept, runs)
    removed = [run for run in runs if _is_removed(kept, run)]
    _let_go(kept, named)
    for run in removed:
        click.echo(one_line(run.run_id))
    return ANSWERED if len(removed) == len(runs) else FAILED


def _fits(kept: Archive, run: RunFile, older_than: float | None, status: str | None) -> bool:
    if older_than is not None and time.time() - run.changed < older_than * DAY_SECONDS:
        return False
    if status is None:
        return True
    try:
        return summary_of(kept, run).status == status
    except ConfigError:
        return False


def _ask(runs: list[RunFile], *, by_name: bool) -> None:
    """More than one is worth a question; where nobody can answer it, --yes has to be said."""
    if len(runs) == 1:
        return
    if sys.stdin is not None and sys.stdin.isatty():
        click.confirm(f"Remove {counted(len(runs), 'run')}?", abort=True, err=True)
    elif not by_name:
        raise click.UsageError(
            f"this would remove {counted(len(runs), 'run')}; pass --yes",
            click.get_current_context(),
        )


def _is_removed(kept: Archive, run: RunFile) -> bool:
    try:
        kept.remove(run)
    except ConfigError as error:
        say(f"Error: {error}")
        return False
    return True


# -- contexts -------------------------------------------------------------------------------------


def _contexts_of(kept: Archive, runs: Iterable[RunFile]) -> set[str]:
    """The hashes that these runs name: of contexts and of pictures in them."""
    named: set[str] = set()
    for run in runs:
        with suppress(ConfigError):
            context = kept.facts(run).context
            named |= {context.sha256, *context.pictures.values()}
    return {each for each in named if HASH.fullmatch(each)}


def _let_go(kept: Archive, named: set[str]) -> None:
    """Who removes a run wants its text gone now; what else is not needed goes with time."""
    for sha256 in named - _contexts_of(kept, kept.places.listed()):
        (kept.places.contexts / sha256).unlink(missing_ok=True)
    kept.collect()
