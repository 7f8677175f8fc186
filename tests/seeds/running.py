"""How the tests of the documents run programs: in a folder of their own, with few variables."""

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["AS_IN_A_NOTEBOOK", "run_notebook", "run_python"]

KEPT = ("PATH", "HOME", "TMPDIR")

AS_IN_A_NOTEBOOK = """
import ast, asyncio, sys

code = compile(sys.argv[1], "<notebook>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
asyncio.run(eval(code, {}))
"""


def run_python(
    arguments: list[str], folder: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    """This Python, with no variables but these: no key of the person who runs the tests."""
    keep = {name: os.environ[name] for name in KEPT if name in os.environ}
    keep["RLM_STATE_DIR"] = str(folder / ".rlm-state")
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**keep, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def run_notebook(code: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Code with `await` and `async for` at its top, as notebooks take it."""
    return run_python(["-c", AS_IN_A_NOTEBOOK, code], folder, **variables)
