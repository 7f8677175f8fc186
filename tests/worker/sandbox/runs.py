"""Starting `program.py` as root or as somebody else, and reading what it says."""

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rlm import worker

STRANGER = 54_321
PROGRAM = Path(__file__).parent / "program.py"


class Outcome(NamedTuple):
    session: int
    result: Any
    error: str


class Run(NamedTuple):
    report: dict[str, Any]
    outcomes: list[Outcome]


@cache
def public_folder() -> Path:
    """The worker and the program where every user can read them; a checkout may be private."""
    folder = Path(tempfile.mkdtemp(prefix="rlm-sandbox-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    shutil.copytree(
        Path(worker.__file__).parent,
        folder / "worker",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    shutil.copy(PROGRAM, folder / "program.py")
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


@cache
def python_of_strangers() -> str:
    """A Python that a user without rights can run; "" if there is none."""
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        test = "import sys, ctypes, sqlite3; sys.exit(sys.version_info < (3, 9))"
        command = [python, "-S", "-s", "-c", test]
        try:
            done = subprocess.run(command, capture_output=True, cwd="/", **_as_stranger())
        except OSError:
            continue
        if done.returncode == 0:
            return python
    return ""


def _as_root() -> dict[str, Any]:
    return {"extra_groups": [STRANGER]}  # a group to lose


def _as_stranger() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}  # We are one.
    return {"user": STRANGER, "group": STRANGER, "extra_groups": []}


def start(user: str, **order: Any) -> "subprocess.Popen[str]":
    """`user` is "root" or "stranger"; skips what this machine can't have."""
    python, identity = python_for(user)
    folder = public_folder()
    command = [python, "-S", "-s", str(folder / "program.py"), str(folder / "worker")]
    return subprocess.Popen(
        [*command, json.dumps(order)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
        env={"PYTHONDONTWRITEBYTECODE": "1"},
        **identity,
    )


def python_for(user: str) -> tuple[str, dict[str, Any]]:
    """A Python that this user can run, and what to pass to subprocess so that it does."""
    if not sys.platform.startswith("linux"):
        pytest.skip("the layers are Linux's")
    if user == "root" and os.geteuid() != 0:
        pytest.skip("needs root")
    python = sys.executable if user == "root" else python_of_strangers()
    if not python:
        pytest.skip("there is no Python that another user can run")
    return python, _as_stranger() if user == "stranger" else _as_root()


def run(user: str, **order: Any) -> Run:
    """Run all sessions to their end."""
    with start(user, **order) as process:
        output, problems = process.communicate(timeout=120)
    assert process.returncode == 0, problems
    lines = [json.loads(line) for line in output.splitlines()]
    assert lines, problems
    return Run(lines[0], [Outcome(*line) for line in lines[1:]])


def run_cell(user: str, cell: str, **order: Any) -> tuple[dict[str, Any], Outcome]:
    """One session with one cell."""
    done = run(user, sessions=[[cell]], **order)
    assert len(done.outcomes) == 1
    return done.report, done.outcomes[0]


def run_script(user: str, script: str, **order: Any) -> tuple[dict[str, Any], Any]:
    """The report, and the `result` of a script that the zygote ran (see `program.Watched`)."""
    with start(user, script=script, **order) as process:
        output, problems = process.communicate(timeout=120)
    assert process.returncode == 0, problems
    report, result = (json.loads(line) for line in output.splitlines())
    return report, result


def need_namespaces(report: dict[str, Any], *, forks: bool = False) -> None:
    """Skip where there are none, with the reasons."""
    if not report["namespaces"] or (forks and not report["forks"]):
        pytest.skip("; ".join(report["missing"]))
