"""Environments and sessions of other people, with and without the base classes."""

from __future__ import annotations

from typing import Any

import pytest

from rlm import RLM, ScriptedClient
from rlm.cli import _environment_checks
from rlm.environments.inprocess import InProcessEnvironment
from rlm.environments.local import LocalEnvironment
from rlm.environments.remote import RemoteEnvironment
from rlm.protocols import BaseEnvironment, BaseSession, ContextSource, Host, with_defaults
from rlm.results import CellResult, Submission
from rlm.testing.conformance.bench import Bench

NO_HOST: Any = object()


class PlainSession:
    """No more than `rlm.protocols.Session` asks for."""

    variables: tuple[str, ...] = ("x",)

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.closed = 0

    async def load(self, name: str, context: ContextSource) -> None:
        self.loaded.append(name)

    async def execute(self, code: str, *, timeout_seconds: float) -> CellResult:
        return CellResult(submission=Submission("done", "FINAL"))

    async def fetch(self, name: str) -> str | None:
        return name

    async def interrupt(self) -> None:
        return

    async def close(self) -> None:
        self.closed += 1


class PlainEnvironment:
    """No more than `rlm.protocols.Environment` asks for."""

    name = "plain"

    def __init__(self) -> None:
        self.sessions: list[PlainSession] = []

    async def open(self, host: Host, options: dict[str, Any]) -> PlainSession:
        self.sessions.append(PlainSession())
        return self.sessions[-1]

    async def close(self) -> None:
        return


class TellingSession(PlainSession):
    layers = ("glass",)

    def __init__(self) -> None:
        super().__init__()
        self.tools: list[dict[str, str]] = []

    async def set_tools(self, tools: list[dict[str, str]]) -> None:
        self.tools = tools


class TellingEnvironment(PlainEnvironment):
    """Offers all that is optional, without the base class."""

    name = "telling"
    is_sandbox = True
    is_paid = True
    no_sandbox = "none"
    patience = 3.0
    lacks = {"cells": "no time"}  # noqa: RUF012
    repl_names = ("a name",)

    def __init__(self) -> None:
        super().__init__()
        self.prepared: list[ContextSource] = []
        self.harms_host = {"recovery": "it would"}

    @classmethod
    def problem(cls) -> str | None:
        return "not today"

    async def not_ready(self) -> str | None:
        return "soon"

    def describe(self) -> dict[str, Any]:  # Not a coroutine: that has always been allowed.
        return {"isolation": "glass"}

    async def prepare(self, context: ContextSource) -> None:
        self.prepared.append(context)

    async def open(self, host: Host, options: dict[str, Any]) -> TellingSession:
        return TellingSession()


async def test_an_environment_without_options_gets_the_defaults() -> None:
    environment = with_defaults(PlainEnvironment())
    assert environment.name == "plain"
    assert not environment.is_sandbox
    assert not environment.is_paid
    assert (environment.no_sandbox, environment.problem()) == (None, None)
    assert (environment.patience, dict(environment.lacks), dict(environment.harms_host)) == (
        1,
        {},
        {},
    )
    assert await environment.not_ready() is None
    assert await environment.describe() == {}
    session: Any = await environment.open(NO_HOST, {})
    assert isinstance(session, BaseSession)
    assert (session.layers, session.variables) == ((), ("x",))
    await session.set_tools([])
    assert await session.fetch("y") == "y"


async def test_attributes_are_used_without_the_base_class() -> None:
    plain = TellingEnvironment()
    environment = with_defaults(plain)
    assert environment.is_sandbox
    assert environment.is_paid
    assert (environment.no_sandbox, environment.problem()) == ("none", "not today")
    assert await environment.not_ready() == "soon"
    assert await environment.describe() == {"isolation": "glass"}
    assert environment.repl_names == ("a name",)
    bench = Bench(plain)
    assert bench.patience == 3.0
    assert bench.excuse_for("cells: echo") == "no time"
    assert bench.harm_of("recovery: a crash") == "it would"
    session: Any = await environment.open(NO_HOST, {})
    assert session.layers == ("glass",)
    await session.set_tools([{"name": "a", "description": "b"}])
    assert session._inner.tools == [{"name": "a", "description": "b"}]


def test_a_subclass_of_the_base_class_is_used_unchanged() -> None:
    environment = InProcessEnvironment()
    assert with_defaults(environment) is environment
    assert isinstance(environment, BaseEnvironment)


@pytest.mark.parametrize("kind", [LocalEnvironment, RemoteEnvironment])
def test_all_our_environments_except_inprocess_are_sandboxes(kind: type[BaseEnvironment]) -> None:
    assert kind.is_sandbox
    assert not InProcessEnvironment.is_sandbox


async def test_a_run_works_in_a_minimal_environment() -> None:
    environment = PlainEnvironment()
    async with RLM(ScriptedClient(["```repl\nx\n```"]), environment=environment) as rlm:
        result = await rlm.aask("What?", "a text")
    assert result.answer == "done"
    assert environment.sessions[0].loaded == ["context"]
    assert environment.sessions[0].closed == 1


async def test_env_check_accepts_a_describe_method_that_is_not_async() -> None:
    class Shown:
        def layers(self, layers: dict[str, Any]) -> None:
            self.told = layers

        def row(self, row: Any) -> None:
            return

    shown = Shown()
    await _environment_checks.run_suites(
        TellingEnvironment(), shown, attacks=True, only="no such row"
    )
    assert shown.told == {"isolation": "glass"}
