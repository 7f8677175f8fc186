"""Plugins: found by entry points, loaded when they are used, and never a reason to crash."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from rlm import RLM
from rlm._util.distribution import own_name
from rlm.bench.registry import find_tasks, known_tasks
from rlm.cli import commands
from rlm.cli._checks import check_plugins
from rlm.errors import ConfigError
from rlm.wiring import plugins
from rlm.wiring.registry import environments, make_client, make_environment

MODULE = '''
import click

from rlm.bench import Task
from rlm.environments.inprocess import InProcessEnvironment
from rlm.testing import ScriptedClient


class Client(ScriptedClient):
    @classmethod
    def for_model(cls, model, *, word="hello"):
        return cls([f"{word} from {model}"])


class Environment(InProcessEnvironment):
    name = "borrowed"


class Count(Task):
    name = "count"


@click.command()
def wave():
    """Wave."""
    click.echo("hi")


class Configured(click.Command):
    takes_settings = True


@click.command(cls=Configured)
@click.option("--max-steps")
def count_steps(max_steps):
    click.echo(max_steps)


@click.command()
@click.option("--max-steps")
def ignore_settings(max_steps):
    click.echo(max_steps)
'''

ENTRY_POINTS = """
[rlm.clients]
borrowed = borrowed_parts:Client
openai = borrowed_parts:Client
[rlm.environments]
borrowed = borrowed_parts:Environment
local = borrowed_parts:Environment
torn = torn_parts:Environment
[rlm.bench_tasks]
count = borrowed_parts:Count
torn = torn_parts:Task
[rlm.commands]
wave = borrowed_parts:wave
count-steps = borrowed_parts:count_steps
ignore-settings = borrowed_parts:ignore_settings
torn = torn_parts:command
"""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A distribution with one module that works and one that can't be imported."""
    (tmp_path / "borrowed_parts.py").write_text(MODULE)
    (tmp_path / "torn_parts.py").write_text("raise RuntimeError('a screw is missing')\n")
    metadata = tmp_path / "rlm_borrowed-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: rlm-borrowed\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins.offers.cache_clear()
    yield
    plugins.offers.cache_clear()
    for name in ("borrowed_parts", "torn_parts"):
        sys.modules.pop(name, None)


def test_a_plugins_provider_is_used_by_name() -> None:
    options = {"borrowed/some/model": {"word": "bye"}}
    with RLM("borrowed/some/model", client_options=options, strategy="direct") as engine:
        assert engine.ask("Who?").answer == "bye from some/model"
    with pytest.raises(ConfigError, match="borrowed/m has no option 'loud'; options: word"):
        make_client("borrowed/m", {}, loud=True)
    with pytest.raises(ConfigError, match=r"no provider 'borowed'; did you mean borrowed/m\?"):
        RLM("borowed/m")


def test_a_plugins_environment_is_used_by_name() -> None:
    assert make_environment("borrowed").name == "borrowed"
    assert environments()["borrowed"] == "rlm-borrowed"
    assert environments()["wasm"] == environments()["docker"] == own_name()


def test_a_plugin_cannot_replace_a_built_in_name() -> None:
    assert type(make_environment("local")).__module__ == "rlm.environments.local"
    client, _ = make_client("openai/gpt-5-mini", {"OPENAI_API_KEY": "k"})
    assert type(client).__module__ == "rlm.clients.compatible"


def test_a_task_is_known_to_bench() -> None:
    assert "count" in known_tasks()
    assert "torn" not in known_tasks()
    with pytest.raises(ConfigError, match="bench task 'torn' of rlm-borrowed can't be loaded"):
        find_tasks("torn")


def test_a_plugins_command_runs_and_a_broken_one_explains_itself() -> None:
    runner = CliRunner()
    assert runner.invoke(commands, ["wave"]).output == "hi\n"
    assert "see rlm doctor" in runner.invoke(commands, ["--help"]).output
    torn = runner.invoke(commands, ["torn"])
    assert torn.exit_code == 1
    assert "a screw is missing" in torn.output


def test_a_plugins_command_gets_settings_only_if_it_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLM_CONFIG_DIR", str(tmp_path))
    (tmp_path / "config.toml").write_text("[limits]\nmax_steps = 7\n")
    runner = CliRunner()
    assert runner.invoke(commands, ["count-steps"]).output == "7\n"
    assert runner.invoke(commands, ["count-steps", "--max-steps", "3"]).output == "3\n"
    assert runner.invoke(commands, ["ignore-settings"]).output == "\n"


def test_a_broken_plugin_is_one_line_of_doctor() -> None:
    with pytest.raises(ConfigError, match="the environment 'torn' of rlm-borrowed can't be loaded"):
        make_environment("torn")
    found = {(each["kind"], each["name"]): each["problem"] for each in check_plugins()}
    assert found["client", "borrowed"] is None
    problem = found["environment", "torn"]
    assert problem is not None
    assert "RuntimeError: a screw is missing" in problem
    assert "\n" not in problem


def test_built_in_names_do_not_load_plugin_metadata() -> None:
    code = """
from rlm import RLM
from rlm.wiring.plugins import offers
RLM("openai/gpt-5-mini", variables={"OPENAI_API_KEY": "k"})
assert offers.cache_info().misses == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True)
