"""`rlm` on macOS and Windows, as far as Linux can play them: imports, commands, what is refused.

`tests/environments/test_wasm.py` runs whole queries there.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SYSTEMS = ["darwin", "win32"]

IMPORT_ALL = """
import importlib, pkgutil, sys
import rlm, rlm_runtime

INSIDE = ("rlm.worker.", "rlm.environments.wasm.guest", "rlm._util.limited._forkserver")
EXTRAS = ("rlm.environments.ray", "rlm.environments.ipython", "rlm.testing.attacks.victim")
for package in (rlm, rlm_runtime):
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not found.name.startswith((*INSIDE, *EXTRAS)) and not found.name.endswith("__main__"):
            importlib.import_module(found.name)
loaded = [name for name in sys.modules if name.startswith("rlm.")]
print(len(loaded))
inside = [name for name in loaded if name.startswith("rlm.worker.sandbox.")]
print(*sorted(inside))
"""


def on(
    system: str, tmp_path: Path, program: str, *arguments: str
) -> "subprocess.CompletedProcess[str]":
    """Run a program as on another system."""
    path = tmp_path / "program.py"
    path.write_text(program)
    folders = {"HOME": tmp_path, "XDG_STATE_HOME": tmp_path / "state", "XDG_CACHE_HOME": tmp_path}
    return subprocess.run(
        [sys.executable, "-m", "tests.other_systems", system, str(path), *arguments],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **{name: str(each) for name, each in folders.items()}},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


RLM = "import sys\nfrom rlm.cli import main\nmain(sys.argv[1:])"


@pytest.mark.parametrize("system", [pytest.param("darwin", marks=pytest.mark.heavy), "win32"])
def test_every_module_of_the_host_can_be_imported(system: str, tmp_path: Path) -> None:
    done = on(system, tmp_path, IMPORT_ALL)
    assert done.returncode == 0, done.stderr[-2_000:]
    number, inside = done.stdout.splitlines()
    assert int(number) > 400
    names = [name.removeprefix("rlm.worker.sandbox.") for name in inside.split()]
    assert names == ["orders", "preload", "process_state"]  # The others need Linux.


@pytest.mark.heavy
@pytest.mark.parametrize("system", SYSTEMS)
def test_local_is_refused_in_one_line_that_suggests_auto(system: str, tmp_path: Path) -> None:
    context = tmp_path / "context.txt"
    context.write_text("The secret number is 42.\n")
    given = ("ask", "What is the secret number?", "-f", str(context), "--environment", "local")
    done = on(system, tmp_path, RLM, *given, "-m", "offline/extractive", "--strategy", "rlm")
    assert done.returncode == 1
    (line,) = [each for each in done.stderr.splitlines() if "Linux" in each]
    assert "Use environment='auto'" in line
    assert "Traceback" not in done.stderr


@pytest.mark.heavy
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_doctor_lists_every_candidate_with_its_reason(system: str, tmp_path: Path) -> None:
    done = on(system, tmp_path, RLM, "doctor", "--json")
    found = json.loads(done.stdout)
    assert list(found["environments"]) == ["local", "wasm", "docker"]
    assert found["environments"]["local"]["works"] is False
    assert "need Linux" in found["environments"]["local"]["problem"]
    if found["environment"] is None:
        assert done.returncode == 1
        assert any("can isolate model-written code" in each for each in found["to_do"])
    else:
        assert found["environment"] in {"wasm", "docker"}


@pytest.mark.heavy
def test_a_journal_is_locked_written_and_read_on_windows(tmp_path: Path) -> None:
    program = """
from rlm import RLM, ScriptedClient
model = ScriptedClient(["one", "two"])
model.identity = "script"
with RLM(model, strategy="direct", journal=True, cache=True) as rlm:
    print(rlm.ask("Which?", run_id="first").answer, rlm.ask("Which?", run_id="first").answer)
    print(len(model.requests))
"""
    done = on("win32", tmp_path, program)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert done.stdout.split() == ["one", "one", "1"]
    listed = on("win32", tmp_path, RLM, "runs", "--json")
    (run,) = json.loads(listed.stdout)
    assert run["run_id"] == "first"


@pytest.mark.heavy
@pytest.mark.parametrize("command", [("mcp",), ("mcp", "install", "--client", "cursor")])
def test_serving_files_to_mcp_clients_needs_a_unix(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    done = on("win32", tmp_path, RLM, *command, "--root", str(tmp_path))
    assert done.returncode == 1
    assert "WSL 2" in done.stderr
    assert "Traceback" not in done.stderr
