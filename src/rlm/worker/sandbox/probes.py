"""Trying things out in a forked child, because most of what is tried here can't be undone."""

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
    """An action that a child is at; ask for its outcome once."""

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
                os._exit(1)  # Whatever happened: a probe must never go on as a second zygote.
        os.close(writer)

    def outcome(self) -> tuple[Any, str]:
        """What it returned, as JSON brings it back, and why it failed, or "".

        A child that this process may not signal in the end counts as failed: it could not be
        stopped.
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
    """Try something and wait for what comes of it."""
    return Trial(action, fork).outcome()


def _report(action: Callable[[], Any], writer: int) -> None:
    try:
        answer = [action(), ""]
    except OSError as error:
        answer = [None, str(error)]
    os.write(writer, json.dumps(answer).encode() + b"\n")


def _first_line(reader: int) -> bytes:
    """Up to the newline: the other end may be held open by a grandchild."""
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
    """Begin to try; the result tells why user code can't be kept from system calls, or ""."""

    def action() -> bool:
        privileges.forbid_new_privileges()
        filters.install(filters.build(kernel.MACHINE))
        return _is_refused(lambda: kernel.call("unshare", 0))

    if kernel.number("seccomp") is None:
        return lambda: f"no table of system calls for this machine ({os.uname().machine})"
    return _problem_of(Trial(action), "the kernel takes a filter but does not obey it")


def landlock() -> Callable[[], str]:
    """Begin to try; the result tells why Landlock can't keep user code from files, or ""."""

    def action() -> bool:
        privileges.forbid_new_privileges()
        rules.restrict()
        return _is_refused(lambda: os.listdir("/"))

    if rules.abi() < 1:
        return lambda: "the kernel does not offer it"
    return _problem_of(Trial(action), "the kernel takes rules but does not obey them")


def cgroup(groups: Cgroups) -> str:
    """Why no process can be made in such a group, or ""."""
    group = groups.make(0, 0, 0, 8)
    try:
        return attempt(lambda: True, lambda: namespaces.fork_into(group.fd))[1]
    finally:
        group.remove()


def zero_copy() -> Callable[[], bool]:
    """Begin to try; the result tells whether contexts can be mapped instead of copied.

    A Python that is not like those it was written for might crash.
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
    """What a session would be like after `become`, or why it can't be.

    `readable`: it can still read the interpreter and what was granted. `counted`: the number of
    its processes is limited, and processes of others do not count.
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
    """With a limit of two there is room for one child and not for another.

    If others counted there would be no room for the first: the zygote and this probe are two.
    """
    privileges.lower(resource.RLIMIT_NPROC, 2)
    children = [_fork_to_wait(), _fork_to_wait()]
    for child in children:
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return bool(children[0]) and not children[1]


def _fork_to_wait() -> int:
    """A child that does nothing until it is killed; 0 if there is none."""
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
    """How many processes and threads a user has now, as far as /proc shows them."""
    count = 0
    for name in os.listdir(process_folder):
        if name.isdigit():
            try:
                if os.stat(name, dir_fd=process_folder).st_uid == uid:
                    # A folder has two links of its own and one for each folder in it.
                    count += os.stat(f"{name}/task", dir_fd=process_folder).st_nlink - 2
            except OSError:
                continue  # It has ended, or is not ours to look at.
    return count
