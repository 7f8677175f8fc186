"""Tries things in forked children, because most of them can't be undone."""

from __future__ import annotations

import json
import os
import resource
import select
import signal

from . import interpreter, kernel, namespaces, privileges
from . import landlock as rules
from . import seccomp as filters

__all__ = ["Trial", "attempt", "cgroup", "identity", "landlock", "seccomp", "tasks_of", "zero_copy"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from .cgroups import Cgroups

_TIMEOUT_SECONDS = 10


class Trial:
    """An action that runs in a child; call `outcome` once."""

    def __init__(self, action: Callable[[], Any], fork: Callable[[], int] = os.fork) -> None:
        self._reader, writer = os.pipe()
        self._problem = ""
        try:
            self._child = fork()
        except OSError as error:
            self._problem = str(error)
            os.close(self._reader)
            os.close(writer)
            return
        if self._child == 0:
            try:
                _report(action, writer)
            finally:
                os._exit(1)  # Always: a probe must never continue as a second zygote.
        os.close(writer)

    def outcome(self) -> tuple[Any, str]:
        """Return the result of the action, through JSON, and why it failed, or "".

        A child that this process may no longer signal counts as failed, since it can't be stopped.
        """
        if self._problem:
            return None, self._problem
        answer = _first_line(self._reader)
        os.close(self._reader)
        try:
            os.kill(self._child, signal.SIGKILL)
        except PermissionError:
            answer = b'[null, "it could not be signalled any more"]'
        os.waitpid(self._child, 0)
        if not answer:
            return None, "the attempt ended without an answer"
        value, problem = json.loads(answer)
        return value, problem


def attempt(action: Callable[[], Any], fork: Callable[[], int] = os.fork) -> tuple[Any, str]:
    """Try an action and wait for its outcome."""
    return Trial(action, fork).outcome()


def _report(action: Callable[[], Any], writer: int) -> None:
    try:
        answer = [action(), ""]
    except OSError as error:
        answer = [None, str(error)]
    os.write(writer, json.dumps(answer).encode() + b"\n")


def _first_line(reader: int) -> bytes:
    """Read up to a newline: a grandchild may keep the other end open."""
    answer = b""
    while not answer.endswith(b"\n"):
        if not select.select([reader], [], [], _TIMEOUT_SECONDS)[0]:
            return b""
        more = os.read(reader, 65536)
        if not more:
            return b""
        answer += more
    return answer


def seccomp() -> Callable[[], str]:
    """Start a trial; return a function that returns why seccomp does not work here, or ""."""

    def action() -> bool:
        privileges.forbid_new_privileges()
        filters.install(filters.build(kernel.MACHINE))
        return _is_refused(lambda: kernel.call("unshare", 0))

    if kernel.number("seccomp") is None:
        return lambda: f"no system call table for this machine ({os.uname().machine})"
    return _problem_of(Trial(action), "the kernel accepts a filter but does not enforce it")


def landlock() -> Callable[[], str]:
    """Start a trial; return a function that returns why Landlock does not work here, or ""."""

    def action() -> bool:
        privileges.forbid_new_privileges()
        rules.restrict()
        return _is_refused(lambda: os.listdir("/"))

    if rules.abi() < 1:
        return lambda: "the kernel does not offer it"
    return _problem_of(Trial(action), "the kernel accepts rules but does not enforce them")


def cgroup(groups: Cgroups) -> str:
    """Return why no process can be forked into such a group, or ""."""
    group = groups.make(0, 0, 0, 8)
    try:
        return attempt(lambda: True, lambda: namespaces.fork_into(group.fd))[1]
    finally:
        group.remove()


def zero_copy() -> Callable[[], bool]:
    """Start a trial; return a function that returns whether contexts can be mapped, not copied.

    It runs in a child because an unknown Python might crash.
    """

    def action() -> bool:
        from ..selftest import passes

        return passes()

    trial = Trial(action)
    return lambda: trial.outcome()[0] is True


def _problem_of(trial: Trial, disobedience: str) -> Callable[[], str]:
    def problem() -> str:
        refused, reason = trial.outcome()
        return reason or ("" if refused else disobedience)

    return problem


def _is_refused(action: Callable[[], object]) -> bool:
    try:
        action()
    except PermissionError:
        return True
    return False


def identity(become: Callable[[], None], readable: Iterable[str]) -> tuple[dict[str, bool], str]:
    """Return facts about a session after `become`, or why it is impossible.

    `readable`: it can still read the interpreter and what was granted. `counted`: the number of
    its processes is limited, and others' processes do not count.
    """

    def action() -> dict[str, bool]:
        become()
        return {"readable": _can_read(readable), "counted": _processes_are_counted()}

    facts, problem = attempt(action)
    return facts or {}, problem


def _can_read(paths: Iterable[str]) -> bool:
    standard = interpreter.standard_library()[0]
    return os.access(os.path.join(standard, "os.py"), os.R_OK) and all(
        os.access(path, os.R_OK | os.X_OK if os.path.isdir(path) else os.R_OK) for path in paths
    )


def _processes_are_counted() -> bool:
    """Return whether a limit of two allows exactly one child.

    If other processes counted, there would be no room for a child: zygote and probe make two.
    """
    privileges.lower(resource.RLIMIT_NPROC, 2)
    children = [_fork_to_wait(), _fork_to_wait()]
    for child in children:
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return bool(children[0]) and not children[1]


def _fork_to_wait() -> int:
    """Fork a child that waits to be killed; return 0 if that fails."""
    try:
        child = os.fork()
    except OSError:
        return 0
    if child == 0:
        try:
            signal.alarm(_TIMEOUT_SECONDS)
            signal.pause()
        finally:
            os._exit(1)
    return child


def tasks_of(uid: int, process_folder: int) -> int:
    """Count the processes and threads of a user, as far as /proc shows them."""
    count = 0
    for name in os.listdir(process_folder):
        if name.isdigit():
            try:
                if os.stat(name, dir_fd=process_folder).st_uid == uid:
                    # A folder has two links and one more for each folder in it.
                    count += os.stat(f"{name}/task", dir_fd=process_folder).st_nlink - 2
            except OSError:
                continue  # It has ended, or is not visible to us.
    return count
