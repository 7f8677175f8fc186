"""Run the suites of `rlm env check`, and show their rows as a table, lines, JSON or a matrix."""

import asyncio
import json
import sys
from contextlib import ExitStack
from typing import Any, Protocol

import click
import msgspec
from msgspec import Struct

from rlm._util.text import counted
from rlm.cli._errors import say
from rlm.errors import RLMError
from rlm.protocols import Environment, with_defaults
from rlm.records.recorders.console import one_line
from rlm.testing.attacks import attack
from rlm.testing.conformance import Report, Row, check
from rlm.wiring.registry import make_environment

__all__ = [
    "AsJson",
    "AsLines",
    "AsTable",
    "Shown",
    "Suites",
    "as_markdown",
    "checked",
    "options_of",
    "run_suites",
    "show",
]


class Suites(Struct, frozen=True):
    """The layers that an environment reports, and a report per suite."""

    layers: dict[str, Any]
    reports: dict[str, Report]
    problem: str | None = None

    @property
    def ok(self) -> bool:
        looked_at = [report for report in self.reports.values() if report.rows]
        return self.problem is None and all(report.ok for report in looked_at)


class Shown(Protocol):
    """Receives layers, rows and the result, and shows them to the user."""

    def layers(self, layers: dict[str, Any]) -> None: ...

    def row(self, row: Row) -> None: ...


async def run_suites(
    environment: Environment, shown: Shown, *, attacks: bool, only: str | None
) -> Suites:
    """Describe, check, attack and close an environment; a failed close is a problem."""
    problem, layers, reports = None, dict[str, Any](), dict[str, Report]()
    environment = with_defaults(environment)
    try:
        layers = await environment.describe()
        shown.layers(layers)
        reports["conformance"] = await check(environment, only=only, on_row=shown.row)
        if attacks and (problem := environment.no_sandbox) is None:
            reports["attacks"] = await attack(environment, only=only, on_row=shown.row)
    finally:
        try:
            await environment.close()
        except (RLMError, OSError, RuntimeError) as error:
            problem = f"the environment could not be closed: {type(error).__name__}"
    return Suites(layers, reports, problem)


STYLES = {"failed": "bold red", "SUCCEEDED": "bold red", "passed": "green", "stopped": "green"}


class AsLines:
    """Print each row to standard output as soon as it is known, and the totals at the end."""

    def __enter__(self) -> "AsLines":
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

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
    """Print one object to standard output, and failures to standard error while running."""

    def layers(self, layers: dict[str, Any]) -> None:
        """Do nothing: layers are part of the object."""

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
    """Print a table at the end; until then, show the last rows live on standard error."""

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
        """Remove the live rows."""
        self._stack.close()

    def layers(self, layers: dict[str, Any]) -> None:
        """Remember the layers; they are printed above the table."""

    def row(self, row: Row) -> None:
        self._rows.append(row)

    def _latest(self) -> Any:
        table = _table(self._rows[-8:], "")
        table.caption = f"{counted(len(self._rows), 'row')} so far"
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
    """Return a value of the environment's report as one line."""
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {each}" for key, each in value.items()) or "none"
    return str(value)


def summary(name: str, suite: str, report: Report) -> str:
    """Return the totals of a suite as one line."""
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(report.counts.items()))
    return one_line(f"{suite} of {name}: {counts or 'no rows'}")


SIGNS = {
    "passed": "✓",
    "stopped": "✓",
    "not offered": "–",
    "not applicable": "–",
    "visible": "seen",
}
"""Signs of good verdicts; bad ones are written out."""

Findings = dict[str, Suites]


class _Progress:
    """Print failures to standard error as they happen, and how many rows are done."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.rows = 0

    def layers(self, layers: dict[str, Any]) -> None:
        say(one_line(f"{self._name}: {layers.get('isolation', '')}"))

    def row(self, row: Row) -> None:
        self.rows += 1
        if row.verdict not in SIGNS:
            say(
                one_line(f"{self._name}: {row.verdict} {row.group}: {row.name} ({row.detail})", 400)
            )


def options_of(name: str, given: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """Return an environment's own options, such as `docker.image`, and the common ones."""
    found = {}
    for key, value in given:
        owner, dot, option = key.partition(".")
        if not dot:
            found[key] = value
        elif owner == name:
            found[option] = value
    return found


def checked(
    names: tuple[str, ...],
    given: tuple[tuple[str, Any], ...],
    *,
    attacks: bool,
    only: str | None,
) -> Findings:
    """Run the suites on each environment in turn."""
    found: Findings = {}
    for name in names:
        environment = make_environment(name, options_of(name, given))
        shown = _Progress(name)
        found[name] = asyncio.run(run_suites(environment, shown, attacks=attacks, only=only))
        say(f"{name}: {counted(shown.rows, 'row')}")
    return found


def as_markdown(found: Findings) -> str:
    """Return every row of every report in the order of the suites, and the totals."""
    lines = []
    for suite in ("conformance", "attacks"):
        reports = {
            name: each.reports[suite] for name, each in found.items() if suite in each.reports
        }
        if not any(report.rows for report in reports.values()):
            continue
        verdicts = {
            name: {(row.group, row.name): row.verdict for row in report.rows}
            for name, report in reports.items()
        }
        titles = list(dict.fromkeys(key for each in verdicts.values() for key in each))
        lines += ["", f"| {suite} | {' | '.join(reports)} |", "|---|" + "---|" * len(reports)]
        for group, title in titles:
            cells = [verdicts[name].get((group, title), "") for name in reports]
            signs = " | ".join(SIGNS.get(cell, cell) for cell in cells)
            lines.append(f"| {one_line(f'{group}: {title}').replace('|', '/')} | {signs} |")
        sums = [_sum(reports[name].counts) for name in reports]
        lines.append(f"| **total** | {' | '.join(sums)} |")
    return "\n".join(lines).strip()


def as_json(found: Findings) -> str:
    """Return the reports with every detail as one object."""
    plain = {
        name: {
            "ok": each.ok,
            "problem": each.problem,
            "layers": each.layers,
            **{suite: msgspec.to_builtins(report.rows) for suite, report in each.reports.items()},
        }
        for name, each in found.items()
    }
    return json.dumps({"environments": plain}, default=str)


def _sum(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))


def show(found: Findings, as_one_object: bool) -> None:
    """Print the table or the object to standard output."""
    click.echo(as_json(found) if as_one_object else as_markdown(found))
