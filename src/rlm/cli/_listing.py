"""List recorded runs for `rlm runs`, and remove them for `rlm rm`."""

import math
import re
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import click
import msgspec

from rlm._util.text import counted, dollars
from rlm.cli._errors import ANSWERED, FAILED, say
from rlm.cli._options import misused
from rlm.cli._output import as_harmless_json
from rlm.cli._records import archive, find_run, newest_first, short_id
from rlm.errors import ConfigError
from rlm.records.journal import Archive, RunFile, RunSummary
from rlm.records.judging import Judgment, Judgments, parse_condition, status_words
from rlm.records.judging.values import values_of_summary
from rlm.records.recorders.console import one_line

__all__ = ["age", "remove_runs", "show_runs", "summary_of"]

HEAD = ("run", "age", "status", "steps", "tokens", "cost", "query")
FIGURES = (1, 3, 4, 5)
"""Columns that are aligned to the right."""

NARROWEST_QUERY, WIDEST_QUERY = 20, 80
AGES = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def show_runs(
    *, as_json: bool, most: int | None, status: str | None, where: str | None = None
) -> None:
    """Print the newest runs that fit; runs that cannot be read are reported and skipped."""
    with misused("--where"):
        condition = None if where is None else parse_condition(where)
    kept = archive()
    judgments = Judgments(kept.places.root).all()
    files = newest_first(kept.places)
    found: list[RunSummary] = []
    left = len(files)
    for summary in _readable(kept, files):
        if most is not None and len(found) == most:
            break
        left -= 1
        if summary is None or not _has(summary, status):
            continue
        if condition is None or condition.holds(values_of_summary(summary, judgments)):
            found.append(summary)
    if as_json:
        click.echo(as_harmless_json([_plain(each, judgments) for each in found]))
    elif found:
        _show_table([HEAD, *(_cells(each, files) for each in found)])
    if not files:
        say(f"No runs in {kept.places.root} yet; `rlm ask` makes one.")
    elif not found and not as_json:
        wanted = " and ".join(
            [
                *([f"the status {status}"] if status else []),
                *([str(condition)] if condition else []),
            ]
        )
        say(f"None of {counted(len(files), 'run')} has {wanted}.")
    elif left and not as_json:
        say(f"{counted(left, 'older run')} not shown; --all lists them, -n N the newest N.")


def _plain(summary: RunSummary, judgments: Mapping[str, Judgment]) -> dict[str, Any]:
    judged = msgspec.to_builtins(judgments.get(summary.run_id, Judgment()))
    return {**msgspec.to_builtins(summary), **judged}


def _readable(kept: Archive, files: list[RunFile]) -> Iterator[RunSummary | None]:
    for run in files:
        try:
            yield summary_of(kept, run)
        except ConfigError as error:
            say(f"Skipped run {run.run_id}: {error}")
            yield None


def summary_of(kept: Archive, run: RunFile) -> RunSummary:
    """Return the summary of a run if it is plausible; the file may come from anyone."""
    try:
        found = msgspec.convert(msgspec.structs.asdict(kept.summary(run)), RunSummary)
    except ConfigError:
        raise
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ConfigError(f"its journal is invalid: {error}") from error
    if found.run_id != run.run_id:
        raise ConfigError(f"its journal belongs to another run, {found.run_id}")
    figures = (found.started, found.seconds, found.cost_usd)
    if not all(figure is None or math.isfinite(figure) for figure in figures):
        raise ConfigError("its journal is invalid: a figure is not a number")
    return found


# -- for people -----------------------------------------------------------------------------------


def _cells(summary: RunSummary, files: list[RunFile]) -> Sequence[str]:
    return (
        one_line(short_id(summary.run_id, files)),
        age(time.time() - summary.started),
        summary.status,
        str(summary.steps),
        f"{summary.tokens:,}",
        dollars(summary.cost_usd),
        summary.query,
    )


def _show_table(rows: Sequence[Sequence[str]]) -> None:
    """Print columns as wide as they need; queries are cut to the rest of the line."""
    *widths, _ = (max(map(len, column)) for column in zip(*rows, strict=True))
    left = _width() - sum(widths) - 2 * len(widths)
    room = max(NARROWEST_QUERY, min(WIDEST_QUERY, left))
    for *cells, query in rows:
        placed = [
            cell.rjust(width) if column in FIGURES else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        click.echo("  ".join([*placed, one_line(query, room)]).rstrip())


def _width() -> int:
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return shutil.get_terminal_size().columns if is_terminal else 1_000


def age(seconds: float) -> str:
    """Return how long ago a time was, in one unit."""
    for unit, size in AGES:
        if seconds >= size:
            return f"{int(seconds // size):,} {unit}"
    return "now"


HASH = re.compile(r"[0-9a-f]{64}")
DAY_SECONDS = 86_400


def remove_runs(
    names: tuple[str, ...], older_than: float | None, status: str | None, *, yes: bool
) -> int:
    """Remove runs, and return the exit code: 1 if any of them is still there."""
    kept = archive()
    if names:
        runs = list({run.run_id: run for run in (find_run(kept, name) for name in names)}.values())
    else:
        runs = [run for run in newest_first(kept.places) if _fits(kept, run, older_than, status)]
    if not runs:
        say("No run matches.")
        return ANSWERED
    if not (yes or _is_wanted(runs, by_name=bool(names))):
        say("Nothing is removed.")
        return ANSWERED
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
        return _has(summary_of(kept, run), status)
    except ConfigError:
        return False


def _has(summary: RunSummary, status: str | None) -> bool:
    """Return whether a run has a status; `limit` covers `steps`, as in conditions."""
    return status is None or status in status_words(summary.status, summary.status)


def _is_wanted(runs: list[RunFile], *, by_name: bool) -> bool:
    """Ask before more than one run is removed; without a terminal, require --yes."""
    if len(runs) == 1:
        return True
    if sys.stdin is not None and sys.stdin.isatty():
        return click.confirm(f"Remove {counted(len(runs), 'run')}?", err=True)
    if not by_name:
        raise click.UsageError(
            f"this would remove {counted(len(runs), 'run')}; pass --yes to confirm",
            click.get_current_context(),
        )
    return True


def _is_removed(kept: Archive, run: RunFile) -> bool:
    try:
        kept.remove(run)
    except ConfigError as error:
        say(f"Error: {error}")
        return False
    return True


# -- contexts -------------------------------------------------------------------------------------


def _contexts_of(kept: Archive, runs: Iterable[RunFile]) -> set[str]:
    """Return the hashes of contexts and pictures that runs name."""
    named: set[str] = set()
    for run in runs:
        with suppress(ConfigError):
            context = kept.facts(run).context
            named |= {context.sha256, *context.pictures.values()}
    return {each for each in named if HASH.fullmatch(each)}


def _let_go(kept: Archive, named: set[str]) -> None:
    """Remove contexts that are no longer used; other leftovers expire with time."""
    for sha256 in named - _contexts_of(kept, kept.places.listed()):
        (kept.places.contexts / sha256).unlink(missing_ok=True)
    kept.collect()
