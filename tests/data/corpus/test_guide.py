"""The worked example of the guide, as it is written."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.shape.documents import blocks_run_by, commands_of, missing_output, run_python

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "corpora.md"


def test_the_blocks_of_the_guide_print_what_they_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    blocks = blocks_run_by(GUIDE, "make test-corpus")
    assert len(blocks) == 5
    for block in blocks:
        if block.language == "console":
            for command in commands_of(block):
                words = command.text.split()
                assert words[0] == "rlm"
                program = [sys.executable, "-m", *words]
                ended = subprocess.run(program, capture_output=True, text=True, check=True)
                assert missing_output(command.expected, ended.stderr) is None, ended.stderr
            continue
        run_python(block, names)
