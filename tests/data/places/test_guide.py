"""The worked example of the guide, as it is written, with a server in place of the store."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.data.places.object_store import object_store
from tests.shape.documents import blocks_run_by, commands_of, missing_output, run_python

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "places.md"
PASSAGES = 4
"""The exit code without a language model."""


def test_the_blocks_of_the_guide_print_what_they_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    blocks = blocks_run_by(GUIDE, "make test-places")
    assert len(blocks) == 3
    with object_store():
        for block in blocks:
            if block.language == "console":
                for command in commands_of(block):
                    program = [sys.executable, "-m", *shlex.split(command.text)]
                    ended = subprocess.run(
                        program, capture_output=True, text=True, env={**os.environ}
                    )
                    assert missing_output(command.expected, ended.stderr) is None, ended.stderr
                    assert ended.returncode == PASSAGES
                continue
            run_python(block, names)
