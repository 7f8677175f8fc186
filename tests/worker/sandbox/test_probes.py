"""Trying out in a child: the answer comes back, and no failure does."""

import errno
import os
import signal
from pathlib import Path

import pytest

from rlm.worker.sandbox import probes

# Children only make system calls and exit, whatever threads the test runner has.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def open_files() -> list[str]:
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


def test_a_probe_returns_its_answer() -> None:
    value, problem = probes.attempt(lambda: {"pid": os.getpid()})
    assert problem == ""
    assert value["pid"] != os.getpid()


def test_an_error_in_a_probe_is_its_reason() -> None:
    def fail() -> None:
        raise OSError(errno.EPERM, "not here")

    assert probes.attempt(fail) == (None, "[Errno 1] not here")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_probe_that_dies_has_a_reason(number: int) -> None:
    value, problem = probes.attempt(lambda: os.kill(os.getpid(), number))
    assert (value, problem) == (None, "the attempt ended without an answer")


def test_a_probe_that_cannot_fork_has_a_reason() -> None:
    def fork() -> int:
        raise OSError(errno.EAGAIN, "no more processes")

    before = open_files()
    assert probes.attempt(lambda: 1, fork) == (None, "[Errno 11] no more processes")
    assert open_files() == before


def test_probes_run_at_the_same_time() -> None:
    reader, writer = os.pipe()
    waits = probes.Trial(lambda: os.read(reader, 1).decode())
    writes = probes.Trial(lambda: os.write(writer, b"x"))
    assert (waits.outcome(), writes.outcome()) == (("x", ""), (1, ""))
    os.close(reader)
    os.close(writer)


def test_nothing_is_left_of_a_probe() -> None:
    before = open_files()
    probes.attempt(lambda: 1)
    assert open_files() == before
    assert _dead_child() is None


def _dead_child() -> object:
    """A child that nobody has reaped, if there is one; living ones belong to other tests."""
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None


def test_processes_of_our_own_uid_are_not_counted_separately() -> None:
    """Root's are not limited at all, and a user's include this one."""
    facts, problem = probes.identity(lambda: None, ["/"])
    assert problem == ""
    assert facts == {"readable": True, "counted": False}


def test_an_unreadable_path_is_noticed() -> None:
    facts, _ = probes.identity(lambda: None, ["/nowhere"])
    assert facts["readable"] is False


def test_tasks_of_a_user_are_counted() -> None:
    folder = os.open("/proc", os.O_RDONLY)
    try:
        assert probes.tasks_of(os.getuid(), folder) >= 1
        assert probes.tasks_of(3_999_999_999, folder) == 0
    finally:
        os.close(folder)
