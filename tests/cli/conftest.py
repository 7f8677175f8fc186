"""Commands in this process, with a separate folder for their files."""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rlm.cli import _errors, commands

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Where this test's runs are kept."""
    return tmp_path / "state"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a command without a process of its own: its exit code, and what it printed."""

    def run(*arguments: str, stdin: bytes = b"", **variables: str) -> tuple[int, str, str]:
        out, err = io.BytesIO(), io.BytesIO()
        streams = [io.TextIOWrapper(each, "utf-8") for each in (io.BytesIO(stdin), out, err)]
        with pytest.MonkeyPatch.context() as patch:
            for stream, name in zip(streams, ("stdin", "stdout", "stderr"), strict=True):
                patch.setattr(sys, name, stream)
            folders = {
                "RLM_STATE_DIR": str(tmp_path / "state"),
                "RLM_CONFIG_DIR": str(tmp_path / "config"),
            }
            for variable, value in {**folders, **variables}.items():
                patch.setenv(variable, value)
            patch.chdir(tmp_path)
            code = _errors.run(commands, arguments)
            for stream in streams[1:]:
                stream.flush()
        return code, out.getvalue().decode(), err.getvalue().decode()

    return run
