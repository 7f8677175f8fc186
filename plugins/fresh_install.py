"""For the tests of the plugins: their wheels, and an environment made by their README's command."""

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import distributions
from pathlib import Path
from typing import NamedTuple

PLUGINS = Path(__file__).resolve().parent
REPOSITORY = PLUGINS.parent
PAGE = REPOSITORY / "docs" / "guides" / "integrations.md"
SECONDS = 540
TOLERANCE = 0.25
"""How far a size may be from the page's: other versions and systems have other sizes."""


class Wheel(NamedTuple):
    names: list[str]
    metadata: str
    entry_points: str


class Fresh(NamedTuple):
    """A fresh environment: its programs, and how many distributions and MB are in it."""

    bin: Path
    distributions: int
    megabytes: float


def run(*command: str, folder: Path, **variables: str) -> str:
    """Run a command that has to succeed, and return what it prints."""
    done = subprocess.run(  # noqa: S603 - a test's own command
        command,
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build_wheel(plugin: str, folder: Path) -> Wheel:
    """Build the wheel of a plugin, and read it."""
    options = ("--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", str(folder))
    run(sys.executable, "-m", "pip", "wheel", *options, str(PLUGINS / plugin), folder=folder)
    [wheel] = folder.glob(f"{plugin.replace('-', '_')}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()

        def text(ending: str) -> str:
            found = [name for name in names if name.endswith(ending)]
            return archive.read(found[0]).decode() if found else ""

        return Wheel(names, text("/METADATA"), text("/entry_points.txt"))


def install(plugin: str, folder: Path) -> Fresh:
    """Run the install command of a README in a copy of the repository, and remove the copy."""
    copy = folder / "repository"
    skipped = shutil.ignore_patterns("build", ".*", "__pycache__", "node_modules", "tests")
    shutil.copytree(REPOSITORY, copy, ignore=skipped)
    text = (PLUGINS / plugin / "README.md").read_text("utf-8")
    command = re.search(rf"^pip install .*{plugin}$", text, re.MULTILINE)
    assert command is not None
    venv.create(folder / "fresh", with_pip=True)
    bin_folder = folder / "fresh" / "bin"
    [packages] = (folder / "fresh").glob("lib/python*/site-packages")
    before = _measured(packages)
    path = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
    run("sh", "-c", command.group(), folder=copy, PATH=path, PIP_DISABLE_PIP_VERSION_CHECK="1")
    shutil.rmtree(copy)
    after = _measured(packages)
    return Fresh(bin_folder, after[0] - before[0], after[1] - before[1])


def _measured(packages: Path) -> tuple[int, float]:
    """Count distributions, and the MB of their files without what Python compiles."""
    files = [path for path in packages.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    found = sum(1 for _ in distributions(path=[str(packages)]))
    return found, sum(path.stat().st_size for path in files) / 1e6


def check_page(plugin: str, fresh: Fresh, extra_requests: int) -> None:
    """Compare what was measured with the plugin's row in the table of integrations."""
    row = re.search(
        rf"^\| \[`{plugin}`\][^|]*\|[^|]*\| (\d+) \| (\d+) \| (\d+) \|",
        PAGE.read_text("utf-8"),
        re.MULTILINE,
    )
    measured = f"{fresh.distributions} | {fresh.megabytes:.0f} | {extra_requests}"
    assert row is not None, f"no row of {plugin}; measured: {measured}"
    said = [float(number) for number in row.groups()]
    assert abs(fresh.distributions - said[0]) <= TOLERANCE * said[0], measured
    assert abs(fresh.megabytes - said[1]) <= TOLERANCE * said[1], measured
    assert extra_requests == said[2], measured
