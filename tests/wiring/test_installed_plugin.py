"""The plugin of docs/guides/plugins.md, built as a wheel and installed into a fresh environment."""

import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "plugins.md"
ASK = "from rlm import RLM; print(RLM('echo/any', strategy='direct').ask('Hello').answer)"
OPEN = (
    "from rlm.wiring.registry import make_environment as make;"
    "from rlm.testing import ScriptedClient; from rlm import RLM;"
    "one = RLM(ScriptedClient(['```repl\\nSUBMIT(str(6 * 7))\\n```']), environment='small');"
    "print(one.ask('What?', 'text').answer)"
)


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def run(*command: str | Path) -> str:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment["PIP_NO_INDEX"] = "1"
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.heavy
def test_the_plugin_of_the_guide_works_as_an_installed_wheel(tmp_path: Path) -> None:
    project, wheels, home = tmp_path / "project", tmp_path / "wheels", tmp_path / "venv"
    project.mkdir()
    (project / "rlm_echo.py").write_text(block("python"))
    (project / "pyproject.toml").write_text(block("toml"))
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels)
    run(sys.executable, "-m", "pip", "wheel", *options, ROOT, project)
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", *sorted(wheels.glob("*.whl")))
    # Dependencies come from this environment; what is installed there stands behind the wheels.
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    (Path(site) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    assert str(home) in run(python, "-c", "import rlm; print(rlm.__file__)")
    assert run(python, "-c", ASK) == "Hello\n"
    assert run(python, "-c", OPEN) == "42\n"
    rlm = home / "bin" / "rlm"
    listed = run(rlm, "env", "list")
    assert re.search(r"^small +works.*\(from rlm-echo\)$", listed, re.MULTILINE)
    assert re.search(r"plugin +echo/…, from rlm-echo", run(rlm, "models"))
    assert "environment small, from rlm-echo" in run(rlm, "doctor")
