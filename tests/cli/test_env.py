"""`rlm env`: a table for people, lines for pipes, JSON for programs, honest exit codes."""

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rlm.cli import commands
from rlm.testing.attacks import ATTACKS
from rlm.testing.conformance import CHECKS
from rlm.wiring.registry import environments
from tests.cli.running import in_terminals, one_clear_line, rlm
from tests.environments.plain import PlainEnvironment

STAT = "see that a path exists"


@pytest.mark.heavy
def test_list() -> None:
    done = rlm("env", "list")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(environments())
    auto, local = done.stdout.splitlines()[:2]
    assert auto.startswith("auto         works: local: a hardened process")
    assert local.startswith("local        works: a hardened process")
    found = json.loads(rlm("env", "list", "--json").stdout)
    assert (found["local"]["works"], found["local"]["problem"]) == (True, None)


def test_a_pipe_gets_one_line_per_row() -> None:
    done = rlm("env", "check", "local", "--only", "echo")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert "passed cells: a long echo is cut" in lines
    assert lines[-1] == f"conformance of local: {sum(named('echo', CHECKS))} passed"


def named(text: str, suite: Any) -> list[bool]:
    return [text in f"{each.group}: {each.name}" for each in suite]


def test_json_is_one_object() -> None:
    done = rlm("env", "check", "local", "--attacks", "--only", STAT, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert (found["environment"], found["ok"], found["problem"]) == ("local", True, None)
    assert found["conformance"]["rows"] == []
    (row,) = found["attacks"]["rows"]
    assert row["name"].startswith(STAT)
    assert row["verdict"] in {"stopped", "visible"}
    assert sum(found["attacks"]["counts"].values()) == sum(named(STAT, ATTACKS))


def test_a_terminal_gets_a_table() -> None:
    seen = in_terminals("env", "check", "local", "--only", "echo")
    assert seen.code == 0
    assert b"a long echo is cut" in seen.stdout
    assert "│" in seen.stdout.decode()
    assert b"conformance of local: " in seen.stdout
    assert b"conformance of local: " not in seen.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nowhere"], 1, "unknown environment 'nowhere'"),
        (["local", "--option", "colour=red"], 1, "'colour'"),
        (["local", "--option", "colour"], 2, "'colour' is not KEY=VALUE"),
        (["local", "--only", "no such row"], 2, "no row contains 'no such row'; --attacks adds"),
    ],
)
def test_mistakes(arguments: list[str], code: int, words: str) -> None:
    done = rlm("env", "check", *arguments)
    assert done.returncode == code
    assert words in one_clear_line(done.stderr)


class Described(PlainEnvironment):
    """An unprotected environment that describes itself so."""

    async def describe(self) -> dict[str, Any]:
        return {"layers": [], "python": "3.x", "limits": {"memory": "none\x1b[31m"}}


def checked(monkeypatch: pytest.MonkeyPatch, environment: Any, *arguments: str) -> Result:
    given: list[Any] = []

    def make(name: str, options: dict[str, Any]) -> Any:
        given.append((name, options))
        return environment

    monkeypatch.setattr("rlm.wiring.registry.make_environment", make)
    command = ["env", "check", "mine", "--option", "a=1", "--option", "b=x=y", *arguments]
    result = CliRunner().invoke(commands, command)
    assert given == [("mine", {"a": 1, "b": "x=y"})]
    return result


def test_layers_are_listed_first_and_a_successful_attack_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments = ("--attacks", "--only", "read /etc/passwd")
    done = checked(monkeypatch, Described(), *arguments)
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[:3] == ["layers: none", "python: 3.x", "limits: memory: none\\x1b[31m"]
    assert lines[3].startswith("SUCCEEDED files: read /etc/passwd (")
    assert lines[-1] == "attacks of mine: 1 SUCCEEDED"


def test_json_holds_layers_and_tells_what_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("--attacks", "--only", "read /etc/passwd", "--json")
    done = checked(monkeypatch, Described(), *arguments)
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert found["layers"]["python"] == "3.x"
    assert (found["ok"], found["attacks"]["counts"]) == (False, {"SUCCEEDED": 1})
    assert done.stderr.startswith("SUCCEEDED files: read /etc/passwd (")


def test_an_environment_that_cannot_be_closed_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stays(PlainEnvironment):
        async def close(self) -> None:
            await super().close()
            raise OSError("it stays")

    done = checked(monkeypatch, Stays(), "--only", "a long echo is cut")
    assert done.exit_code == 1
    assert "passed cells: a long echo is cut" in done.stdout
    assert one_clear_line(done.stderr) == "Error: the environment could not be closed: OSError"


def test_a_failed_check_is_a_failed_command(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(PlainEnvironment):
        async def open(self, host: Any, options: Any) -> Any:
            raise RuntimeError("nobody is here")

    done = checked(monkeypatch, Closed(), "--only", "a long echo is cut")
    assert done.exit_code == 1
    assert "failed cells: a long echo is cut (RuntimeError: nobody is here)" in done.stdout


# -- several environments-------------------------------------------------------------------------


def test_several_environments_are_one_table() -> None:
    done = rlm("env", "check", "local", "agent", "--only", "a long echo is cut")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "| conformance | local | agent |",
        "|---|---|---|",
        "| cells: a long echo is cut | ✓ | ✓ |",
        "| **total** | 1 passed | 1 passed |",
    ]
    assert done.stderr.splitlines()[1] == "local: 1 row"


def test_several_environments_are_one_object() -> None:
    done = rlm("env", "check", "local", "agent", "--only", STAT, "--attacks", "--json")
    found = json.loads(done.stdout)["environments"]
    assert list(found) == ["local", "agent"]
    assert found["agent"]["attacks"][0]["name"].startswith(STAT)


def test_an_option_may_apply_to_one_environment() -> None:
    from rlm.cli._environment_checks import options_of

    given = (("docker.image", "x"), ("cpus", 2), ("wasm.warm_sessions", 0))
    assert options_of("docker", given) == {"image": "x", "cpus": 2}
    assert options_of("wasm", given) == {"cpus": 2, "warm_sessions": 0}


def test_a_summary_table_ends_with_the_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "rlm.cli._environment_checks.make_environment", lambda name, options: Described()
    )
    command = ["env", "check", "one", "two", "--attacks", "--only", "read /etc/passwd"]
    done = CliRunner().invoke(commands, command)
    assert done.exit_code == 1
    assert "| files: read /etc/passwd | SUCCEEDED | SUCCEEDED |" in done.stdout
    assert "one: SUCCEEDED files: read /etc/passwd" in done.stderr
