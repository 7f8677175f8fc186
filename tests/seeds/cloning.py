"""A temporary clone with uv beside it, for shell blocks that are executed as they are written.

The home is empty; only what a site needs to reach its package index is kept of the variables.
"""

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import NamedTuple

from tests.shape.tree import ROOT

SECONDS = 900
SITE = re.compile(r"(?i)(PIP|UV|NPM_CONFIG|NODE|SSL_CERT|REQUESTS_CA)_\w+|TMPDIR|LANG|\w+_PROXY")
"""Variables that say how packages are reached from here."""


class Clone(NamedTuple):
    """A fresh checkout, and the variables its commands are given."""

    folder: Path
    variables: dict[str, str]

    def environment(self, **variables: str) -> dict[str, str]:
        return {**self.variables, **variables}

    def run(
        self, block: str, folder: str = ".", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """A whole shell block; it ends at the first command that fails, as a reader would."""
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=self.folder / folder,
            env=self.environment(**variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def new_venv(self, name: str) -> dict[str, str]:
        """A fresh environment with pip; the variables that make it the active one."""
        place = self.folder.parent / name
        venv.create(place, with_pip=True)
        path = f"{place / 'bin'}{os.pathsep}{self.variables['PATH']}"
        return {"VIRTUAL_ENV": str(place), "PATH": path}


def make_clone(place: Path) -> Clone:
    """Clone what is committed, and put what is not yet on top; uv comes by pip, in its own venv."""
    _checked(["git", "clone", "--quiet", "--no-local", str(ROOT), str(place / "clone")])
    listed = _checked(["git", "-C", str(ROOT), "ls-files", "-zmo", "--exclude-standard"])
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            target = place / "clone" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
        else:
            (place / "clone" / name).unlink(missing_ok=True)
    (place / "home").mkdir()
    site = {name: value for name, value in os.environ.items() if SITE.fullmatch(name)}
    python = Path(sys.executable).resolve().parent
    cache = {"UV_CACHE_DIR": str(ROOT / "build" / "seeds" / "uv"), "UV_PYTHON_DOWNLOADS": "never"}
    path = os.pathsep.join([str(_uv(place, site)), str(python), os.environ["PATH"]])
    variables = {**cache, **site, "HOME": str(place / "home"), "PATH": path}
    return Clone(place / "clone", variables)


def _uv(place: Path, site: dict[str, str]) -> Path:
    """A folder with nothing in it but uv."""
    venv.create(place / "bootstrap", with_pip=True)
    pip = [str(place / "bootstrap" / "bin" / "pip"), "install", "--quiet", "uv"]
    _checked(pip, env={**site, "HOME": str(Path.home()), "PATH": os.environ["PATH"]})
    (place / "bin").mkdir()
    for name in ("uv", "uvx"):
        (place / "bin" / name).symlink_to(place / "bootstrap" / "bin" / name)
    return place / "bin"


def _checked(command: list[str], env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout
