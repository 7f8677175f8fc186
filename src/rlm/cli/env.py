"""`rlm env`: list environments, and check whether one keeps its promises."""

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from rlm.cli._options import key_and_value

if TYPE_CHECKING:
    from rlm.cli._environment_checks import Suites

__all__ = ["env"]

EXAMPLES = """\b
Examples:
  rlm env list
  rlm env check local
  rlm env check local --attacks
  rlm env check local --attacks --only network --json
  rlm env check docker --option image=python:3.13-slim
  rlm env check local docker wasm --option docker.cpus=2 > table.md
"""


@click.group(epilog=EXAMPLES, short_help="List the places where code can run, and check them.")
def env() -> None:
    """Where model-written code runs: list environments, and check one."""


@env.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as one JSON object.")
def list_environments(as_json: bool) -> None:
    """List the environments, and whether each works here."""
    import msgspec

    from rlm.cli._checks import check_environment
    from rlm.records.recorders.console import one_line
    from rlm.wiring.registry import environments

    offered = environments()
    found = {name: check_environment(name) for name in offered}
    if as_json:
        facts = msgspec.to_builtins(found)
        click.echo(json.dumps({n: {**each, "from": offered[n]} for n, each in facts.items()}))
        return
    for name, each in found.items():
        layers = f"; layers: {', '.join(each.layers)}" if each.layers else ""
        held = f": {each.isolation}" if each.isolation else ""
        state = f"works{held}{layers}" if each.works else f"not usable: {each.problem}"
        click.echo(f"{name:<13}{one_line(state)} (from {offered[name]})")


@env.command(short_help="Check that environments keep their promises.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--attacks", is_flag=True, help="Also run the attack list; it is harmless.")
@click.option("--only", metavar="TEXT", help="Run only rows whose group or name contains TEXT.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
@click.option(
    "--option",
    "options",
    type=key_and_value,
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the environment (NAME.KEY for one of several); may be repeated.",
)
@click.pass_context
def check(
    ctx: click.Context,
    names: tuple[str, ...],
    attacks: bool,
    only: str | None,
    as_json: bool,
    options: tuple[tuple[str, Any], ...],
) -> None:
    """Run the conformance suite against the environment NAME; for several, print one table.

    Exit code 0 means that every promise is kept and, with --attacks, that no attack succeeded.
    """
    from rlm.cli import _environment_checks

    if len(names) == 1:
        found = {names[0]: _check_one(names[0], dict(options), attacks, only, as_json)}
    else:
        found = _environment_checks.checked(names, options, attacks=attacks, only=only)
    if not any(report.rows for each in found.values() for report in each.reports.values()):
        more = "" if attacks else "; --attacks adds more rows"
        raise click.UsageError(f"no row contains {only!r}{more}", ctx)
    if len(names) > 1:
        _environment_checks.show(found, as_json)
    ctx.exit(0 if all(each.ok for each in found.values()) else 1)


def _check_one(
    name: str, options: dict[str, Any], attacks: bool, only: str | None, as_json: bool
) -> "Suites":
    import asyncio

    from rlm.cli import _environment_checks
    from rlm.wiring.registry import make_environment

    environment = make_environment(name, options)
    shown = _output_format(as_json)
    with shown:
        suites: Suites = asyncio.run(
            _environment_checks.run_suites(environment, shown, attacks=attacks, only=only)
        )
    if any(report.rows for report in suites.reports.values()):
        shown.result(name, suites)
    return suites


def _output_format(as_json: bool) -> Any:
    from rlm.cli import _environment_checks

    if as_json:
        return _environment_checks.AsJson()
    if sys.stdout is not None and sys.stdout.isatty():
        return _environment_checks.AsTable()
    return _environment_checks.AsLines()
