"""The plugin installed from wheels in a fresh environment, by the README's one command."""

from pathlib import Path

from fresh_install import build_wheel, check_page, install, run

NAME = "recursivelm-inspect"
EXTRA_REQUESTS = 0
"""Every request is the engine's own; `test_evaluations` counts them."""

TASK = """
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from recursivelm_inspect import rlm_solver

CELL = "```repl\\nFINAL(len(context))\\n```"


@task
def lengths():
    output = ModelOutput.from_content("mockllm/model", CELL)
    output.usage = ModelUsage(input_tokens=100, output_tokens=10, total_tokens=110)
    model = get_model("mockllm/model", custom_outputs=[output])
    sample = Sample(input="How long is it?", target="5000", metadata={"context": "12345" * 1000})
    return Task(dataset=[sample], solver=rlm_solver(), scorer=includes(), model=model)
"""


def test_the_wheel_holds_the_package_its_licence_and_nothing_else(tmp_path: Path) -> None:
    wheel = build_wheel(NAME, tmp_path)
    assert {name.split("/")[0].split("-")[0] for name in wheel.names} == {"recursivelm_inspect"}
    assert any(name.endswith("licenses/LICENSE") for name in wheel.names)
    assert "recursivelm_inspect = recursivelm_inspect.registry" in wheel.entry_points
    assert "inspect = recursivelm_inspect.client:InspectClient" in wheel.entry_points
    assert "Requires-Dist: recursivelm>=0.1" in wheel.metadata


def test_one_command_installs_it_and_inspect_evaluates(tmp_path: Path) -> None:
    fresh = install(NAME, tmp_path)
    (tmp_path / "lengths.py").write_text(TASK)
    options = ("--display", "plain", "--log-dir", "logs")
    said = run(str(fresh.bin / "inspect"), "eval", "lengths.py", *options, folder=tmp_path)
    assert "accuracy  1.000" in said
    check_page(NAME, fresh, EXTRA_REQUESTS)
