"""Tables and facts on stdout: as wide as the terminal, and never wrapped for a pipe."""

import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence

import click

from rlm.records.recorders.console import one_line

__all__ = ["show_facts", "show_table"]

INDENT = 13
NARROWEST = 40
PIPE_WIDTH = 1_000


def show_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Each fact after its name; in a terminal, long ones go on below themselves."""
    width = max(NARROWEST, _width())
    for name, text in facts:
        line = f"{name:<{INDENT}}{one_line(text, limit=2_000)}"
        wrapped = textwrap.wrap(line, width, subsequent_indent=" " * INDENT, break_on_hyphens=False)
        click.echo("\n".join(wrapped) if len(line) > width else line)


def show_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, name: int, right: int
) -> None:
    """Columns, as wide as they need. A name that is too long for its column gets its own line.

    `name` and `right` are numbers of columns: of that with the names, of that with the figures.
    """
    cells = [list(head), *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    others = sum(widths) - widths[name] + 2 * (len(widths) - 1)
    widths[name] = min(widths[name], max(NARROWEST // 2, _width() - others))
    for row in cells:
        if len(row[name]) > widths[name]:
            click.echo(_line([*row[: name + 1]], widths, right))
            row = ["" if column <= name else cell for column, cell in enumerate(row)]
        click.echo(_line(row, widths, right))


def _line(row: Sequence[str], widths: Sequence[int], right: int) -> str:
    return "  ".join(
        cell.rjust(width) if column == right else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=False))
    ).rstrip()


def _width() -> int:
    if sys.stdout is None or not sys.stdout.isatty():
        return PIPE_WIDTH
    return shutil.get_terminal_size().columns
