"""Run the notebooks of the cookbook in a real kernel, and store what they show.

`python tools/notebooks.py` writes the outputs into docs/cookbook; `--check` only reports cells that
print something else than is stored. A notebook that names a provider's model is answered by a
server on this machine, from the script of its name in tests/shape/replies.
"""

import importlib
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rlm.testing.fake_server import FakeServer

# Not imported by name: the type checkers run where these are not installed.
nbclient: Any = importlib.import_module("nbclient")
nbformat: Any = importlib.import_module("nbformat")

ROOT = Path(__file__).resolve().parents[1]
COOKBOOK = ROOT / "docs" / "cookbook"
REPLIES = ROOT / "tests" / "shape" / "replies"
SECONDS = 300


def execute(path: Path) -> Any:
    """Return the notebook with fresh outputs."""
    notebook = nbformat.read(path, as_version=4)
    with ExitStack() as stack:
        variables: dict[str, str] = {}
        if (replies := REPLIES / f"{path.stem}.toml").exists():
            variables = stack.enter_context(FakeServer.from_file(replies)).variables
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        environment = {**os.environ, **variables, "HOME": folder}
        client = nbclient.NotebookClient(
            notebook,
            timeout=SECONDS,
            record_timing=False,
            resources={"metadata": {"path": folder}},
        )
        client.execute(env=environment)
    return notebook


def printed(cell: Any) -> str:
    """Return what a cell prints: the part of its outputs that is the same in every run."""
    return "".join(
        each["text"]
        for each in cell.get("outputs", [])
        if each["output_type"] == "stream" and each["name"] == "stdout"
    )


def differences(path: Path, fresh: Any) -> list[str]:
    """Return a line for every cell that prints something else than is stored."""
    stored = nbformat.read(path, as_version=4)
    return [
        f"{path.name}: cell {number} prints {printed(new)!r}, not {printed(old)!r}"
        for number, (old, new) in enumerate(zip(stored.cells, fresh.cells, strict=True), start=1)
        if printed(old) != printed(new)
    ]


def main(arguments: list[str]) -> int:
    problems: list[str] = []
    for path in sorted(COOKBOOK.glob("*.ipynb")):
        fresh = execute(path)
        if arguments == ["--check"]:
            problems += differences(path, fresh)
        else:
            nbformat.write(fresh, path)
        print(f"{path.name}: {len(fresh.cells)} cells", file=sys.stderr)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
