"""What `rlm runs` shows: a table for people, an array for programs."""

import math
import shutil
import sys
import time
from collections.abc import Iterator, Sequence

import click
import msgspec

from rlm.cli._border import say
from rlm.cli._output import as_harmless_json
from rlm.cli._records import archive, newest_first, short_id
from rlm.errors import ConfigError
from rlm.records.journal import Archive, RunFile, RunSummary
from rlm.records.recorders.console import counted, one_line

__all__ = ["age", "money", "show_runs", "summary_of"]

HEAD = ("run", "age", "status", "steps", "tokens", "cost", "query")
FIGURES = (1, 3, 4, 5)
"""The columns that end at the same place; the others begin there."""

NARROWEST_QUERY, WIDEST_QUERY = 20, 80
AGES = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def show_runs(*, as_json: bool, most: int | None, status: str | None) -> None:
    """The newest runs of a status; what can't be read is told on stderr and passed over."""
    kept = archive()
    files = newest_first(kept.places)
    found: list[RunSummary] = []
    left = len(files)
    for summary in _readable(kept, files):
        if most is not None and len(found) == most:
            break
        left -= 1
        if summary is not None and status in {None, summary.status}:
            found.append(summary)
    if as_json:
        click.echo(as_harmless_json([msgspec.to_builtins(each) for each in found]))
    elif found:
        _show_table([HEAD, *(_cells(each, files) for each in found)])
    if not files:
        say(f"There is no run yet in {kept.places.root}; `rlm ask` makes one.")
    elif not found and not as_json:
        say(f"None of {counted(len(files), 'run')} has the status {status}.")
    elif left and not as_json:
        say(f"{counted(left, 'older run')} not looked at; --all lists them, -n N the newest N.")


def _readable(kept: Archive, files: list[RunFile]) -> Iterator[RunSummary | None]:
    for run in files:
        try:
            yield summary_of(kept, run)
        except ConfigError as error:
            say(f"Run {run.run_id} is left out: {error}")
            yield None


def summary_of(kept: Archive, run: RunFile) -> RunSummary:
    """What a journal says of its run, if that makes sense; anybody may have written the file."""
    try:
        found = msgspec.convert(msgspec.structs.asdict(kept.summary(run)), RunSummary)
    except ConfigError:
        raise
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ConfigError(f"its journal makes no sense: {error}") from error
    if found.run_id != run.run_id:
        raise ConfigError(f"its journal is that of another run, {found.run_id}")
    figures = (found.started, found.seconds, found.cost_usd)
    if not all(figure is None or math.isfinite(figure) for figure in figures):
        raise ConfigError("its journal makes no sense: a figure in it is no number")
    return found


# -- for people -----------------------------------------------------------------------------------


def _cells(summary: RunSummary, files: list[RunFile]) -> Sequence[str]:
    return (
        one_line(short_id(summary.run_id, files)),
        age(time.time() - summary.started),
        summary.status,
        str(summary.steps),
        f"{summary.tokens:,}",
        money(summary.cost_usd),
        summary.query,
    )


def _show_table(rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as they need; queries are cut to what is left of the line."""
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
    """How long ago, in one unit."""
    for unit, size in AGES:
        if seconds >= size:
            return f"{int(seconds // size):,} {unit}"
    return "now"


def money(cost_usd: float | None) -> str:
    return "?" if cost_usd is None else f"${cost_usd:.4f}"
