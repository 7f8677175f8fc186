"""The plugin built, installed in a fresh environment by the README's command, and used."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.installed
PLUGIN = Path(__file__).resolve().parents[1]
ROOT = PLUGIN.parents[1]
PROBE = """
import asyncio
from elizaos import AgentRuntime
from elizaos_plugin_rlm import plugin

async def main():
    settings = {"ELIZA_RLM_BACKEND": "offline"}
    runtime = AgentRuntime(plugins=[plugin], settings=settings)
    await runtime.initialize()
    quiet = "Nothing happened. " * 9_000
    text = f"{quiet}The code of the vault is 7F-113. {quiet}"
    params = {"prompt": "What is the code of the vault?\\n\\n" + text}
    for provider in ("rlm", "plugin-rlm"):
        answer = await runtime.use_model("TEXT_LARGE", params, provider=provider)
        print("ANSWER", " ".join(answer.split()))
    await runtime.stop()

asyncio.run(main())
"""


def run(*command: str | Path, folder: Path) -> str:
    keep = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, env=keep, capture_output=True, text=True)
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def fresh(folder: Path) -> Path:
    """The Python of an environment that has only pip."""
    run(sys.executable, "-m", "venv", folder / "venv", folder=folder)
    return folder / "venv" / "bin" / "python"


def answers(python: Path, folder: Path) -> list[str]:
    """Return what the plugin answers there, away from the sources."""
    output = run(python, "-c", PROBE, folder=folder)
    return [
        line.removeprefix("ANSWER ") for line in output.splitlines() if line.startswith("ANSWER ")
    ]


def test_the_wheel_works_first_without_and_then_with_an_engine(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    build = (
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        wheels,
    )
    run(*build, ROOT, PLUGIN, folder=tmp_path)
    python = fresh(tmp_path)
    (of_plugin,) = wheels.glob("elizaos_plugin_rlm-*.whl")
    (of_engine,) = wheels.glob("recursivelm-*.whl")
    run(python, "-m", "pip", "install", "-q", of_plugin, folder=tmp_path)
    assert answers(python, tmp_path) == ["[RLM STUB] RLM backend not available"] * 2
    run(python, "-m", "pip", "install", "-q", of_engine, folder=tmp_path)
    for answer in answers(python, tmp_path):
        assert "7F-113" in answer


def test_the_install_command_of_the_readme_works(tmp_path: Path) -> None:
    readme = (PLUGIN / "README.md").read_text("utf-8")
    command = re.search(r"^pip install .*$", readme, re.MULTILINE)
    assert command is not None
    assert command.group() == "pip install . ./plugins/plugin-rlm"
    python = fresh(tmp_path)
    run(python, "-m", *command.group().split(), folder=ROOT)
    found = answers(python, tmp_path)
    assert len(found) == 2
    for answer in found:
        assert "7F-113" in answer
