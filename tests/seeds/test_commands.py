"""The shell blocks of 002, 003 and 004, each executed whole, as written, in a temporary clone.

They install from the package index, so they are heavy: `make test-seeds` runs them.
"""

import contextlib
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
import zipfile

import pytest

from rlm.testing.fake_server import FakeServer
from tests.endpoint import endpoint
from tests.seeds.cloning import Clone
from tests.seeds.models import searcher
from tests.seeds.reading import code_of
from tests.seeds.test_rlm_demo import MODELS, variables_of

pytestmark = pytest.mark.heavy

RIGHT = "right: the needle says 3077052"
SUITE = "tests/rlm_runtime tests/shape/test_layers.py"
"""What `uv run pytest` runs of the suite. All of it runs in `make test`, and in a clone in
`make test-clone`; SEEDS_PYTEST="" has it run here once more."""


def test_the_installation_with_uv(clone: Clone) -> None:
    done = clone.run(code_of("003/1"))
    assert done.returncode == 0, done.stdout + done.stderr
    python = clone.folder / ".venv" / "bin" / "python"
    found = clone.run(f"{python} -c 'import rlm, rlm_runtime; print(rlm.__file__)'")
    assert found.stdout.strip() == str(clone.folder / "src" / "rlm" / "__init__.py")


def test_the_demo_with_the_key_of_the_document(clone: Clone) -> None:
    """The `.env` of the installation section, then the usage section's command."""
    with endpoint(searcher) as server:
        (clone.folder / ".env").write_text(f"{code_of('003/2')}\nGROQ_BASE_URL={server.url}\n")
        done = clone.run(code_of("003/3"))
        (clone.folder / ".env").unlink()
    assert done.returncode == 0, done.stdout + done.stderr
    assert RIGHT in done.stdout
    assert "Model:    groq/llama-3.3-70b-versatile" in done.stdout
    assert set(server.keys) == {"Bearer gsk_your_key_here"}


def test_the_demo_with_every_model_line(clone: Clone) -> None:
    """All four commands of the block, one after the other, each against its provider's double."""
    gemini = FakeServer(
        rules=[("", lambda asked: searcher({"messages": [{"content": asked.text}]}))]
    )
    with endpoint(searcher) as server, gemini:
        given: dict[str, str] = {}
        for model in MODELS:
            given |= variables_of(model, gemini if "gemini" in model else server)
        done = clone.run(code_of("003/4"), **given)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(RIGHT) == len(MODELS) == 4
    shown = [line.split()[-1] for line in done.stdout.splitlines() if line.startswith("Model:")]
    assert shown == MODELS


def test_the_quickstart_of_rlm_runtime(clone: Clone) -> None:
    done = clone.run(code_of("002/1"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "fake summary\n"


def test_the_quality_gates(clone: Clone) -> None:
    """ruff, its formatter, ty and pytest, as one block; the formatter finds nothing to do."""
    before = clone.run("git status --porcelain").stdout
    done = clone.run(code_of("002/3"), PYTEST_ADDOPTS=os.environ.get("SEEDS_PYTEST", SUITE))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("All checks passed!") == 2
    assert " files left unchanged" in done.stdout
    assert " passed" in done.stdout
    assert clone.run("git status --porcelain").stdout == before


def test_a_wheel_of_this_repository_holds_both_packages(clone: Clone) -> None:
    """Installed where there is no checkout, the example of 002 runs all the same."""
    active = clone.new_venv("from-a-wheel")
    built = clone.run("uv build --quiet --wheel --out-dir ../wheel", **active)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = (clone.folder.parent / "wheel").glob("recursivelm-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"rlm/__init__.py", "rlm_runtime/__init__.py", "rlm_runtime/py.typed"} <= names
    example = clone.folder.parent / "example.py"
    example.write_text(code_of("002/2"))
    done = clone.run(f"pip install --quiet {wheel} && cd / && python {example}", **active)
    assert (done.returncode, done.stdout) == (0, "fake summary\n"), done.stderr


def test_the_visualizer_answers_on_its_port(clone: Clone) -> None:
    """It serves until it is stopped, so it is stopped once its page is there."""
    with subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", code_of("004/4")],
        cwd=clone.folder,
        env=clone.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as running:
        try:
            page = fetched("http://localhost:3001/", running)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGTERM)
            said = running.stdout.read() if running.stdout else ""
    assert '<div id="app"' in page or "<script" in page, said
    assert "3001" in said


def fetched(url: str, running: "subprocess.Popen[str]", tries: int = 600) -> str:
    """Return the page once it is served, or the program's output if it ends before."""
    for _ in range(tries):
        try:
            with urllib.request.urlopen(url, timeout=5) as response:
                return str(response.read().decode())
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.5)
        if running.poll() is not None:
            raise AssertionError(running.stdout.read() if running.stdout else "it ended")
    raise AssertionError(f"nothing answers at {url}")
