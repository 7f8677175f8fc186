"""The plugin installed from wheels in a fresh environment, by the README's one command."""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from llm_command import Cli
from scripted_models import cell

from rlm.testing.fake_server import FakeServer

PLUGIN = Path(__file__).resolve().parents[1]
REPOSITORY = PLUGIN.parents[1]
SECONDS = 480


def run(*command: str, folder: Path, **variables: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_wheel_holds_the_module_its_licence_and_nothing_else(tmp_path: Path) -> None:
    options = ("--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", str(tmp_path))
    run(sys.executable, "-m", "pip", "wheel", *options, str(PLUGIN), folder=tmp_path)
    [wheel] = tmp_path.glob("llm_rlm-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
        hooks = archive.read(next(n for n in names if n.endswith("/entry_points.txt"))).decode()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"llm_rlm"}
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert "rlm = llm_rlm" in hooks
    assert "Requires-Dist: recursivelm>=0.1" in metadata


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """A new environment after running the README's command in a copy of the repository."""
    copy = tmp_path / "repository"
    skipped = shutil.ignore_patterns("build", ".*", "__pycache__", "node_modules", "tests")
    shutil.copytree(REPOSITORY, copy, ignore=skipped)
    text = (PLUGIN / "README.md").read_text("utf-8")
    command = re.search(r"^pip install .*llm-rlm$", text, re.MULTILINE)
    assert command is not None
    venv.create(tmp_path / "fresh", with_pip=True)
    bin_folder = tmp_path / "fresh" / "bin"
    path = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
    run("sh", "-c", command.group(), folder=copy, PATH=path, PIP_DISABLE_PIP_VERSION_CHECK="1")
    shutil.rmtree(copy)
    return bin_folder


def test_one_command_installs_it_and_it_answers(
    fresh: Path, cli: Cli, serve: Callable[..., FakeServer]
) -> None:
    serve(cell("FINAL({'lines': len(context.splitlines())})", "I count."))
    cli.path = fresh / "llm"
    listed = json.loads(cli.ok("plugins"))
    assert [each["name"] for each in listed] == ["llm-rlm"]
    (cli.folder / "big.log").write_text("line\n" * 1_000)
    said = cli.ok("-m", "rlm/mine", "-f", "big.log", "How many lines?", "--schema", "lines int")
    assert json.loads(said) == {"lines": 1_000}
    assert "I count." in cli.ok("logs", "-n", "1")
    where = run(
        str(fresh / "python"), "-c", "import llm_rlm; print(llm_rlm.__file__)", folder=fresh
    )
    assert str(fresh.parent) in where
