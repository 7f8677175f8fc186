"""What a process gives up: the priority of its session."""

import subprocess
import sys
from pathlib import Path

CODE = """
import sys
from rlm.worker.sandbox import privileges
privileges._SESSION_PRIORITY = sys.argv[1]
privileges.make_session_nice()
"""
BUSY_AT_FIRST = """
import builtins, sys, time
from rlm.worker.sandbox import privileges
privileges._SESSION_PRIORITY = sys.argv[1]
left, opened, waits = [BlockingIOError, BlockingIOError], builtins.open, []
def busy(path, mode):
    if left:
        raise left.pop()
    return opened(path, mode)
builtins.open, time.sleep = busy, waits.append
privileges.make_session_nice()
print(len(waits))
"""


def _run(code: str, file: Path, *, starts_session: bool = True) -> str:
    command = [sys.executable, "-c", code, str(file)]
    done = subprocess.run(
        command, start_new_session=starts_session, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_first_process_of_a_session_lowers_its_priority(tmp_path: Path) -> None:
    _run(CODE, tmp_path / "autogroup")
    assert (tmp_path / "autogroup").read_text() == "5"


def test_the_session_of_the_host_keeps_its_priority(tmp_path: Path) -> None:
    _run(CODE, tmp_path / "autogroup", starts_session=False)
    assert not (tmp_path / "autogroup").exists()


def test_a_kernel_without_autogroups_is_no_error(tmp_path: Path) -> None:
    assert _run(CODE, tmp_path / "missing" / "autogroup") == ""


def test_the_kernel_may_ask_for_patience(tmp_path: Path) -> None:
    assert _run(BUSY_AT_FIRST, tmp_path / "autogroup") == "2"
    assert (tmp_path / "autogroup").read_text() == "5"
