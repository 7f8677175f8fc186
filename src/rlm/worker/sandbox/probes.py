"""Trying things out in a forked child, because most of what is tried here can't be undone."""

from __future__ import annotations

import json
import os
import resource
import select
import signal

from . import interpreter, kernel, landlock, privileges, rlimits, seccomp

__all__ = ["attempt", "identity", "landlock_problem", "seccomp_problem", "tasks_of"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

_TIMEOUT_SECONDS = 10


def attempt(action: Callable[[], Any], fork: Callable[[], int] = os.fork) -> tuple[Any, str]:
    """What `action` returned in a child, as JSON brings it back, and why it failed, or "".

    A child that this process may not signal in the end counts as failed: it could not be stopped.
    """
    reader, writer = os.pipe()
    try:
        child = fork()
    except OSError as error:
        os.close(reader)
        os.close(writer)
        return None, str(error)
    if child == 0:
        try:
            _report(action, writer)
        finally:
            os._exit(1)  # Whatever happened: a probe must never go on as a second zygote.
    os.close(writer)
    answer = _first_line(reader)
    os.close(reader)
    try:
        os.kill(child, signal.SIGKILL)
    except PermissionError:
        answer = b'[null, "it could not be signalled any more"]'
    os.waitpid(child, 0)
    if not answer:
        return None, "the attempt ended without an answer"
    value, problem = json.loads(answer)
    return value, problem


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


def seccomp_problem() -> str:
    """Why user code can't be kept from making system calls; "" if it can."""

    def action() -> bool:
        privileges.forbid_new_privileges()
        seccomp.install(seccomp.build(kernel.MACHINE))
        return _is_refused(lambda: kernel.call("unshare", 0))

    if kernel.number("seccomp") is None:
        return f"no table of system calls for this machine ({os.uname().machine})"
    refused, problem = attempt(action)
    return problem or ("" if refused else "the kernel takes a filter but does not obey it")


def landlock_problem() -> str:
    """Why Landlock can't keep user code from files; "" if it can."""

    def action() -> bool:
        privileges.forbid_new_privileges()
        landlock.restrict()
        return _is_refused(lambda: os.listdir("/"))

    if landlock.abi() < 1:
        return "the kernel does not offer it"
    refused, problem = attempt(action)
    return problem or ("" if refused else "the kernel takes rules but does not obey them")


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
    rlimits.lower(resource.RLIMIT_NPROC, 2)
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
