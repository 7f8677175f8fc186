"""`rlm env check` of several environments: one table of all rows, a column for each."""

import asyncio
import json
from typing import Any

import click
import msgspec

from rlm.cli import _suites
from rlm.cli._border import say
from rlm.records.recorders.console import one_line
from rlm.testing.conformance import Row
from rlm.wiring.registry import make_environment

__all__ = ["as_markdown", "checked", "options_of", "show"]

SIGNS = {
    "passed": "✓",
    "stopped": "✓",
    "not offered": "–",
    "not applicable": "–",
    "visible": "seen",
}
"""Of verdicts that are not bad; the bad ones are written out."""

Findings = dict[str, _suites.Suites]


class _Progress:
    """What goes wrong as it does, on stderr, and how far it is."""

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
    """Of all options those that name an environment, as in `docker.image`, and the common ones."""
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
    """Run the suites on each, one after the other."""
    found: Findings = {}
    for name in names:
        environment = make_environment(name, options_of(name, given))
        shown = _Progress(name)
        found[name] = asyncio.run(_suites.run(environment, shown, attacks=attacks, only=only))
        say(f"{name}: {shown.rows} rows")
    return found


def as_markdown(found: Findings) -> str:
    """Every row that any of them has, in the order of the suites, and the sums."""
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
        lines.append(f"| **sum** | {' | '.join(sums)} |")
    return "\n".join(lines).strip()


def as_json(found: Findings) -> str:
    """The same with every detail, as one object."""
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
    """On stdout, as it is to be kept."""
    click.echo(as_json(found) if as_one_object else as_markdown(found))
