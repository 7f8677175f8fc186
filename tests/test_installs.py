"""What a new user does first: `make demo`, or an install from a wheel, without a key.

The packages come from the index that pip and uv are set up for. Sizes are asserted; seconds depend
on the machine and the network, and are only printed.
"""

import os
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest

from rlm.clients.offline import PASSAGES
from tests.seeds.cloning import SITE

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).resolve().parents[1]
UV = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv") or "uv"
MEGABYTE = 1_000_000
LARGEST_DEMO = 60 * MEGABYTE
ASK = ("ask", "Who mended the sail?", "-f", "letter.txt")


def size_of(folder: Path) -> int:
    """The bytes that a folder takes on disk, as `du` counts them."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))


class Newcomer:
    """Runs commands in an empty home, without any variable but those that a site needs."""

    def __init__(self, home: Path) -> None:
        self.home = home
        (home / "letter.txt").write_text("The storm was long.\n\nMira mended the sail.\n")
        site = {name: value for name, value in os.environ.items() if SITE.fullmatch(name)}
        self.variables = {
            **site,
            "HOME": str(home),
            "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "UV_CACHE_DIR": str(home / "cache"),
            "UV_TOOL_DIR": str(home / "tools"),
            "UV_TOOL_BIN_DIR": str(home / "bin"),
            "UV_PYTHON": sys.executable,
            "UV_PYTHON_DOWNLOADS": "never",
            "PIPX_HOME": str(home / "pipx"),
        }

    def run(
        self, *command: str | Path, folder: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        began = time.monotonic()
        done = subprocess.run(
            [str(part) for part in command],
            cwd=folder or self.home,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        print(f"{time.monotonic() - began:.1f} s: {' '.join(map(str, command))}")
        return done

    def install(self, *command: str | Path) -> None:
        done = self.run(*command)
        assert done.returncode == 0, done.stdout + done.stderr

    def asks(self, *command: str | Path) -> None:
        """Ask a question without a model: the exit code is 4, and the passage has its place."""
        done = self.run(*command, *ASK)
        assert done.returncode == 4, done.stdout + done.stderr
        assert done.stdout == f"{PASSAGES}\n\n1. letter.txt:3\n   Mira mended the sail.\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    build = [UV, "build", "--quiet", "--wheel", "--no-build-isolation", "--python", sys.executable]
    subprocess.run([*build, "--out-dir", str(out), str(ROOT)], check=True, timeout=300)
    (found,) = out.glob("*.whl")
    return found


@pytest.fixture
def newcomer(tmp_path: Path) -> Newcomer:
    return Newcomer(tmp_path)


def test_make_demo_installs_few_packages_and_shows_a_run(newcomer: Newcomer) -> None:
    clone = newcomer.home / "clone"
    newcomer.install("git", "clone", "--quiet", "--no-local", ROOT, clone)
    done = newcomer.run("make", "demo", f"PYTHON={sys.executable}", folder=clone)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a script plays its part" in done.stdout
    assert "right: the needle says 3077052" in done.stdout
    assert "Source:   line 2071, characters 228,567 to 228,654:" in done.stdout
    assert [f"step {n}" in done.stderr for n in (1, 2, 3)] == [True] * 3
    size = size_of(clone / "build" / "venv-demo")
    print(f"{size / MEGABYTE:.0f} MB: build/venv-demo")
    assert size <= LARGEST_DEMO
    shown = newcomer.run(clone / "build" / "venv-demo" / "bin" / "rlm", "show", "last")
    assert (shown.returncode, "3077052" in shown.stdout) == (0, True)
    newcomer.asks(clone / "build" / "venv-demo" / "bin" / "rlm")


def test_pip_install(newcomer: Newcomer, wheel: Path) -> None:
    venv.create(newcomer.home / "venv", with_pip=True)
    newcomer.install(newcomer.home / "venv" / "bin" / "pip", "install", "--quiet", wheel)
    print(f"{size_of(newcomer.home / 'venv') / MEGABYTE:.0f} MB: pip install")
    newcomer.asks(newcomer.home / "venv" / "bin" / "rlm")


def test_uvx(newcomer: Newcomer, wheel: Path) -> None:
    newcomer.asks(Path(UV).with_name("uvx"), "--quiet", "--from", wheel, "rlm")


def test_uv_tool_install(newcomer: Newcomer, wheel: Path) -> None:
    newcomer.install(UV, "tool", "install", "--quiet", wheel)
    print(f"{size_of(newcomer.home / 'tools') / MEGABYTE:.0f} MB: uv tool install")
    newcomer.asks(newcomer.home / "bin" / "rlm")


def test_pipx_run(newcomer: Newcomer, wheel: Path) -> None:
    venv.create(newcomer.home / "venv", with_pip=True)
    newcomer.install(newcomer.home / "venv" / "bin" / "pip", "install", "--quiet", "pipx")
    newcomer.asks(newcomer.home / "venv" / "bin" / "pipx", "run", "--spec", wheel, "rlm")
