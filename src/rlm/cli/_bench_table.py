"""The table at the end of `rlm bench run`."""

import textwrap
from collections.abc import Iterable, Sequence

import click

from rlm._util.text import dollars
from rlm.bench.plan import show_size
from rlm.bench.report.writing import Figures, Place, summarise
from rlm.bench.results import Outcome
from rlm.cli._output import NARROWEST, terminal_width
from rlm.records.recorders.console import one_line

__all__ = ["show_results"]

HEADS = ("task", "size", "method", "n", "hits", "score", "95 %", "calls", "tokens", "cost", "s")
WORDS = 3
"""The first columns contain words, the others figures."""


def show_results(outcomes: Iterable[Outcome]) -> None:
    """Print a line for each task, size and method; if that is too wide, a few lines for each."""
    rows = [_cells(place, each) for place, each in summarise(outcomes, pooled=False).items()]
    table = [list(HEADS), *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADS))]
    if sum(widths) + 2 * (len(widths) - 1) <= terminal_width():
        for row in table:
            click.echo(_line(row, widths))
        return
    for row in rows:
        _show_below_each_other(row)


def _cells(place: Place, each: Figures) -> list[str]:
    """Return the cells of one row: the figures of the trials at a place."""
    is_scored = each.score is not None and each.impossible < each.samples
    score = "–" if each.score is None else f"{each.score:.1f}"
    return [
        one_line(place.task),
        show_size(place.size),
        place.method,
        f"{each.samples}",
        f"{each.hits}",
        score,
        f"{each.low:.0f}–{each.high:.0f}" if is_scored else "–",
        _number(each.calls, "{:,.1f}"),
        _number(each.tokens, "{:,.0f}"),
        "–" if each.tokens is None else dollars(each.cost_usd),
        _number(each.seconds, "{:,.1f}"),
    ]


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        cell.ljust(width) if column < WORDS else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def _show_below_each_other(row: Sequence[str]) -> None:
    """Print a row as a heading and figures with their names, in lines that fit."""
    width = max(NARROWEST, terminal_width())
    task, size, method, *figures = row
    click.echo("\n".join(textwrap.wrap(f"{task} {size} {method}", width)))
    named = [
        f"{name}\N{NO-BREAK SPACE}{cell}" for name, cell in zip(HEADS[WORDS:], figures, strict=True)
    ]
    told = textwrap.wrap(", ".join(named), width, initial_indent="  ", subsequent_indent="  ")
    click.echo("\n".join(told).replace("\N{NO-BREAK SPACE}", " "))
