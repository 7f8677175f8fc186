"""Run programs written for the reference engine unchanged with it and with ours, and compare.

Each program in `programs/` uses only what the reference documents, and prints one JSON document.
Its constant `SCRIPT` is what the model replies; a fake server gives the same replies to both.
"""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from rlm.testing.fake_server import FakeServer

__all__ = ["PROGRAMS", "REFERENCE", "Outcome", "run_program", "script_of"]

FOLDER = Path(__file__).with_name("programs")
ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "build" / "venv-bench-rlms" / "bin" / "python"
PROGRAMS = tuple(sorted(path.stem for path in FOLDER.glob("*.py")))
SECONDS = 120


class Outcome(NamedTuple):
    """What a program printed last, as JSON; and what went wrong, if anything."""

    value: Any
    error: str = ""
    requests: int = 0


def script_of(name: str) -> list[Any]:
    """Return the constant `SCRIPT` of a program, without running the rest."""
    tree = ast.parse((FOLDER / f"{name}.py").read_text("utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SCRIPT":
            script: list[Any] = eval(compile(ast.Expression(node.value), name, "eval"), {})
            return script
    raise ValueError(f"{name}.py has no SCRIPT")


def run_program(name: str, python: Path | str) -> Outcome:
    """Run a program with one interpreter, against a server with its script."""
    with FakeServer(script_of(name)) as server:
        variables = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": server.openai_url}
        kept = {n: os.environ[n] for n in ("PATH", "HOME", "TMPDIR", "LANG") if n in os.environ}
        done = subprocess.run(
            [str(python), "-B", str(FOLDER / f"{name}.py")],
            env={**kept, **variables, "COLUMNS": "100"},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        count = server.count
    if done.returncode:
        return Outcome(None, done.stderr.strip()[-2_000:], count)
    return Outcome(json.loads(done.stdout.strip().splitlines()[-1]), "", count)


def main() -> None:
    """Print one line for each program: the same, or both outcomes."""
    different = 0
    for name in PROGRAMS:
        theirs, ours = (run_program(name, python) for python in (REFERENCE, sys.executable))
        same = theirs.value == ours.value and not (theirs.error or ours.error)
        different += not same
        print(f"{'same     ' if same else 'DIFFERENT'} {name} ({ours.requests} requests)")
        if not same:
            print(f"  rlms: {theirs.error or json.dumps(theirs.value)}")
            print(f"  rlm:  {ours.error or json.dumps(ours.value)}")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
