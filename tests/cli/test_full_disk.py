"""A full disk: what could not be written is said, plainly and with its path."""

import errno
import io
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run

NO_MODEL = ("-m", "offline/extractive")
FULL = os.strerror(errno.ENOSPC)


class FullDisk(io.RawIOBase):
    def write(self, _: object) -> int:
        raise OSError(errno.ENOSPC, FULL)


@pytest.fixture
def _full_logs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing can be written to the files of one folder."""
    real = Path.open

    def opened(path: Path, *given: Any, **options: Any) -> Any:
        file = real(path, *given, **options)
        if given[:1] != ("ab",) or path.parent != tmp_path / "logs":
            return file
        file.close()
        return FullDisk()

    monkeypatch.setattr(Path, "open", opened)


@pytest.mark.usefixtures("_full_logs")
@pytest.mark.parametrize("quiet", [(), ("--quiet",)])
def test_a_log_that_could_not_be_written_is_told_once(
    run: Run, tmp_path: Path, quiet: tuple[str, ...]
) -> None:
    asked = ("ask", "Who?", *NO_MODEL, "--log-dir", str(tmp_path / "logs"), *quiet)
    code, _, err = run(*asked, stdin=b"Who wrote it? Nobody.")
    assert code == 4
    (log,) = (tmp_path / "logs").iterdir()
    assert err.count(f"{log}: {FULL}; the run continues without being logged\n") == 1
    assert "Log: " not in err
