"""The plugin installed from wheels in a fresh environment, by the README's one command."""

from pathlib import Path

from fresh_install import build_wheel, check_page, install, run
from rollouts import EVAL_OPTIONS, EXAMPLE

NAME = "recursivelm-verifiers"
EXTRA_REQUESTS = 0
"""Every request is the engine's own; `test_rollouts` counts them."""


def test_the_wheel_holds_the_package_its_licence_and_nothing_else(tmp_path: Path) -> None:
    wheel = build_wheel(NAME, tmp_path)
    assert {name.split("/")[0].split("-")[0] for name in wheel.names} == {"recursivelm_verifiers"}
    assert any(name.endswith("licenses/LICENSE") for name in wheel.names)
    assert "Requires-Dist: recursivelm>=0.1" in wheel.metadata


def test_one_command_installs_it_and_vf_eval_runs(tmp_path: Path) -> None:
    fresh = install(NAME, tmp_path)
    command = (str(fresh.bin / "vf-eval"), "recursivelm_verifiers", *EVAL_OPTIONS)
    options = ("--env.taskset.tasks", "s-niah/single", "--env.taskset.n", "1", "-o", "out")
    run(str(fresh.bin / "python"), str(EXAMPLE), *command, *options, folder=tmp_path)
    [traces] = (tmp_path / "out").glob("*/traces.jsonl")
    assert len(traces.read_text().splitlines()) == 1
    check_page(NAME, fresh, EXTRA_REQUESTS)
