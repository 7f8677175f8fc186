"""Where rlm can be installed: the marker of WebAssembly, and wheels for every platform."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
DEPENDENCIES = [
    Requirement(each)
    for each in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
]

MACHINES = {
    "a Mac": {"sys_platform": "darwin", "platform_machine": "arm64"},
    "an older Mac": {"sys_platform": "darwin", "platform_machine": "x86_64"},
    "Windows": {"sys_platform": "win32", "platform_machine": "AMD64"},
    "Windows on ARM": {"sys_platform": "win32", "platform_machine": "ARM64"},
    "Linux": {"sys_platform": "linux", "platform_machine": "x86_64"},
}
WITH_WASM = {"a Mac", "an older Mac", "Windows"}
PYTHONS = ("3.11", "3.12", "3.13")


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("machine", MACHINES)
def test_webassembly_is_a_dependency_where_local_cannot_run(machine: str, python: str) -> None:
    wanted = [
        each.name
        for each in DEPENDENCIES
        if each.marker is None
        or each.marker.evaluate({**MACHINES[machine], "python_version": python})
    ]
    assert ("pyeryx" in wanted) == (machine in WITH_WASM and python != "3.11")
    assert "aiohttp" in wanted


def test_the_extra_and_the_dependency_require_the_same_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (extra,) = map(Requirement, project["optional-dependencies"]["wasm"])
    (here,) = [each for each in DEPENDENCIES if each.name == "pyeryx"]
    assert extra.specifier == here.specifier


@pytest.mark.heavy
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(
    "platform",
    [
        "aarch64-apple-darwin",
        "x86_64-apple-darwin",
        "x86_64-pc-windows-msvc",
        "aarch64-pc-windows-msvc",
        "x86_64-unknown-linux-gnu",
    ],
)
def test_every_dependency_has_a_wheel_on_every_platform(platform: str, python: str) -> None:
    """Ask the index, so it is heavy: nothing is installed, and nothing may need a compiler."""
    command = [
        str(Path(sys.executable).with_name("uv")),
        "pip",
        "compile",
        "pyproject.toml",
        "--quiet",
    ]
    wanted = ["--python-platform", platform, "--python-version", python, "--only-binary", ":all:"]
    done = subprocess.run(
        [*command, *wanted, "--no-header"],
        cwd=ROOT,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    names = {line.partition("==")[0] for line in done.stdout.splitlines() if "==" in line}
    brings = python != "3.11" and "linux" not in platform and platform != "aarch64-pc-windows-msvc"
    assert ("pyeryx" in names) == brings
