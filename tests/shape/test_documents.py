"""The documents are correct: their code runs, their links are valid, and the examples work.

In README.md and docs/, every python block is run; those of one file share a namespace. Right before
a block, `<!-- not run: reason -->` leaves it out (a counted skip) and `<!-- run -->` has a console
or bash block run too. `# prints: text` in a python block, and what follows a `$ command` line in a
console block, must be printed, in that order; `...` stands for anything.

Pages that name a provider's model are run against a real HTTP server, where `replies/` has a script
for it: the code on the page is what a reader would run, and only the model is played.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rlm.testing.fake_server import FakeServer
from tests.cli.local_servers import nowhere
from tests.shape.documents import (
    RUNNABLE,
    Block,
    blocks_of,
    broken_links,
    commands_of,
    expected_output,
    missing_output,
)
from tests.shape.tree import ROOT, repository_files

SECONDS = 300
REPLIES = Path(__file__).with_name("replies")
MARKDOWN = [path for path in repository_files() if path.suffix == ".md"]
DOCUMENTS = [
    path for path in MARKDOWN if path == ROOT / "README.md" or ROOT / "docs" in path.parents
]
READ_FIRST = (ROOT, ROOT / "docs", ROOT / "docs" / "start")
DOCUMENTS_TO_RUN = [
    path if path.parent in READ_FIRST else pytest.param(path, marks=pytest.mark.heavy)
    for path in DOCUMENTS
]
"""What a newcomer reads first runs in `make test`, and everything else in `make test-heavy`."""
NOTEBOOKS = sorted((ROOT / "docs" / "cookbook").glob("*.ipynb"))
EXAMPLES = sorted((ROOT / "examples").glob("[0-9][0-9]_*.py"))
PYTHON = {"python", "py"}
SHELL = {"console", "bash", "sh", "shell"}


def environment(home: Path) -> dict[str, str]:
    """What a newcomer has: an empty home, no key, no setting, and our commands on the path."""
    home.mkdir(parents=True, exist_ok=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {"HOME": str(home), "PATH": path, "LANG": "C.UTF-8", **nowhere()}


def run_job(
    job: list[dict[str, Any]], folder: Path, variables: Mapping[str, str] = {}
) -> subprocess.CompletedProcess[str]:
    work = folder / "work"
    work.mkdir()
    return subprocess.run(
        [sys.executable, str(Path(__file__).with_name("run_code.py")), str(ROOT)],
        input=json.dumps(job),
        cwd=work,
        env={**environment(folder / "home"), **variables},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def job_of(path: Path, blocks: list[Block]) -> list[dict[str, Any]]:
    return [
        {
            "path": str(path),
            "line": block.line,
            "code": block.code,
            "expected": expected_output(block.code),
        }
        for block in blocks
        if block.language in PYTHON and block.reason_not_run is None
    ]


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# -- python blocks --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", DOCUMENTS_TO_RUN, ids=_name)
def test_python_blocks_run(path: Path, tmp_path: Path) -> None:
    if job := job_of(path, blocks_of(path.read_text("utf-8"))):
        run_with_replies(job, path, tmp_path)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=_name)
def test_notebooks_contain_the_output_of_their_code(path: Path, tmp_path: Path) -> None:
    """`make test-notebook` runs them in a real kernel."""
    cells = [each for each in json.loads(path.read_text())["cells"] if each["cell_type"] == "code"]
    shown = ["".join("".join(each.get("text", "")) for each in cell["outputs"]) for cell in cells]
    assert any(shown)
    job = [
        {"path": str(path), "line": number, "code": "".join(cell["source"]), "expected": lines}
        for number, (cell, text) in enumerate(zip(cells, shown, strict=True), start=1)
        for lines in [text.splitlines()]
    ]
    run_with_replies(job, path, tmp_path)


def run_with_replies(job: list[dict[str, Any]], path: Path, tmp_path: Path) -> None:
    """Run code; models that it names are answered from the script of the page, if it has one."""
    with ExitStack() as stack:
        variables: Mapping[str, str] = {}
        if (replies := REPLIES / f"{path.stem}.toml").exists():
            server = stack.enter_context(FakeServer.from_file(replies))
            variables = server.variables
        done = run_job(job, tmp_path, variables)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_script_belongs_to_a_page() -> None:
    pages = {path.stem for path in (*DOCUMENTS, *NOTEBOOKS)}
    assert {path.stem for path in REPLIES.glob("*.toml")} <= pages


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per block that is not run, so that each is counted as a skip."""
    if "left_out" in metafunc.fixturenames:
        found = [
            pytest.param(block.reason_not_run, id=f"{_name(path)}:{block.line}")
            for path in DOCUMENTS
            for block in blocks_of(path.read_text("utf-8"))
            if block.reason_not_run
        ]
        metafunc.parametrize("left_out", found or [pytest.param("", id="none")])


def test_skipped_blocks_are_counted(left_out: str) -> None:
    if left_out:
        pytest.skip(left_out)


# -- shell blocks ---------------------------------------------------------------------------------


def run_commands(block: Block, folder: Path) -> str | None:
    """Run a shell block as from the root of a checkout; the complaint, if any."""
    work = folder / "work"
    work.mkdir()
    for entry in ROOT.iterdir():  # what a command writes stays out of the real checkout
        if entry.name not in {".git", "build", "logs"}:
            (work / entry.name).symlink_to(entry)
    for command in commands_of(block):
        if not f"{command.text} ".startswith(RUNNABLE):
            return f"only {', '.join(RUNNABLE)}can be run, not: {command.text}"
        done = subprocess.run(
            command.text,
            shell=True,
            cwd=work,
            env=environment(folder / "home"),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode != 0:
            return f"{command.text}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        if (text := missing_output(command.expected, done.stdout + done.stderr)) is not None:
            return f"{command.text}: does not print {text!r}, but\n{done.stdout}{done.stderr}"
    return None


@pytest.mark.parametrize("path", DOCUMENTS_TO_RUN, ids=_name)
def test_marked_shell_blocks_run(path: Path, tmp_path: Path) -> None:
    for block in blocks_of(path.read_text("utf-8")):
        if block.language in SHELL and block.comment == "run":
            folder = tmp_path / str(block.line)
            folder.mkdir()
            complaint = run_commands(block, folder)
            assert complaint is None, f"{_name(path)}:{block.line}: {complaint}"


# -- examples and links ---------------------------------------------------------------------------


@pytest.mark.parametrize("path", EXAMPLES, ids=_name)
def test_example_runs(path: Path, tmp_path: Path) -> None:
    code = path.read_text("utf-8")
    job = [{"path": str(path), "line": 1, "code": code, "expected": expected_output(code)}]
    done = run_job(job, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", MARKDOWN, ids=_name)
def test_links_are_not_broken(path: Path) -> None:
    assert broken_links(path, ROOT) == []
