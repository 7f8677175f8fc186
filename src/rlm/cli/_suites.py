"""Runs the suites of `rlm env check` and gathers what they say."""

from typing import Any, Protocol

from msgspec import Struct

from rlm.errors import RLMError
from rlm.protocols import Environment, with_defaults
from rlm.testing.attacks import attack
from rlm.testing.conformance import Report, Row, check

__all__ = ["Shown", "Suites", "run"]


class Suites(Struct, frozen=True):
    """What is known of an environment: its layers by its own account, and a report per suite."""

    layers: dict[str, Any]
    reports: dict[str, Report]
    problem: str | None = None

    @property
    def ok(self) -> bool:
        looked_at = [report for report in self.reports.values() if report.rows]
        return self.problem is None and all(report.ok for report in looked_at)


class Shown(Protocol):
    """Who tells the user: about layers, about each row, and about the whole."""

    def layers(self, layers: dict[str, Any]) -> None: ...

    def row(self, row: Row) -> None: ...


async def run(environment: Environment, shown: Shown, *, attacks: bool, only: str | None) -> Suites:
    """Describe, check, attack, close; an environment that can't be closed is a problem."""
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
