"""How `rlm env check` shows itself: a table in a terminal, lines in a pipe, or JSON."""

import json
import sys
from contextlib import ExitStack
from typing import Any

import click
import msgspec

from rlm.cli._border import say
from rlm.cli._suites import Suites
from rlm.records.recorders.console import one_line
from rlm.testing.conformance import Report, Row

__all__ = ["AsJson", "AsLines", "AsTable"]

STYLES = {"failed": "bold red", "SUCCEEDED": "bold red", "passed": "green", "stopped": "green"}


class AsLines:
    """Each row as a line on stdout, as soon as it is there; the sums at the end."""

    def __enter__(self) -> "AsLines":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to put away."""

    def layers(self, layers: dict[str, Any]) -> None:
        for name, value in layers.items():
            click.echo(one_line(f"{name}: {as_text(value)}"))

    def row(self, row: Row) -> None:
        detail = f" ({row.detail})" if row.detail else ""
        click.echo(one_line(f"{row.verdict:<14} {row.group}: {row.name}{detail}", 400))

    def result(self, name: str, suites: Suites) -> None:
        for suite, report in suites.reports.items():
            click.echo(summary(name, suite, report))
        if suites.problem:
            say(f"Error: {suites.problem}")


class AsJson(AsLines):
    """One object on stdout; while it runs, what goes wrong as lines on stderr."""

    def layers(self, layers: dict[str, Any]) -> None:
        """They are part of the object."""

    def row(self, row: Row) -> None:
        if row.verdict in STYLES and STYLES[row.verdict] == "bold red":
            say(f"{row.verdict} {row.group}: {row.name} ({row.detail})")

    def result(self, name: str, suites: Suites) -> None:
        reports = {
            suite: {
                "ok": report.ok,
                "counts": report.counts,
                "rows": msgspec.to_builtins(report.rows),
            }
            for suite, report in suites.reports.items()
        }
        whole = {
            "environment": name,
            "ok": suites.ok,
            "problem": suites.problem,
            "layers": suites.layers,
            **reports,
        }
        click.echo(json.dumps(whole, default=str))


class AsTable(AsLines):
    """The table on stdout at the end; until then, the last few rows on stderr, live."""

    def __init__(self) -> None:
        from rich.console import Console

        self._progress = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._out = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
        self._stack = ExitStack()
        self._rows: list[Row] = []

    def __enter__(self) -> "AsTable":
        from rich.live import Live

        if self._progress.is_terminal and not self._progress.is_dumb_terminal:
            self._stack.enter_context(
                Live(
                    get_renderable=self._latest,
                    console=self._progress,
                    transient=True,
                    redirect_stdout=False,
                    redirect_stderr=False,
                )
            )
        return self

    def __exit__(self, *_: object) -> None:
        """Take the live rows away."""
        self._stack.close()

    def layers(self, layers: dict[str, Any]) -> None:
        """They stand above the table, at the end."""

    def row(self, row: Row) -> None:
        self._rows.append(row)

    def _latest(self) -> Any:
        table = _table(self._rows[-8:], "")
        table.caption = f"{len(self._rows)} rows so far"
        return table

    def result(self, name: str, suites: Suites) -> None:
        super().layers(suites.layers)
        for suite, report in suites.reports.items():
            if report.rows:
                self._out.print(_table(report.rows, suite))
        super().result(name, suites)


def _table(rows: Any, title: str) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", expand=True)
    table.add_column("", no_wrap=True)
    table.add_column("what", ratio=3)
    table.add_column("detail", ratio=2)
    table.add_column("s", justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            Text(row.verdict, style=STYLES.get(row.verdict, "yellow")),
            Text(one_line(f"{row.group}: {row.name}")),
            Text(one_line(row.detail, 120)),
            Text(f"{row.seconds:.2f}"),
        )
    return table


def as_text(value: Any) -> str:
    """A value of the environment's own report, in a line."""
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {each}" for key, each in value.items()) or "none"
    return str(value)


def summary(name: str, suite: str, report: Report) -> str:
    """The sums of a suite in a line."""
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(report.counts.items()))
    return one_line(f"{suite} of {name}: {counts or 'no rows'}")
