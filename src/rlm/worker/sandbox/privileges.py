"""What a process gives up before it runs user code: privileges, and resources."""

from __future__ import annotations

import math
import os
import resource
import signal
import struct
import time

from . import kernel

__all__ = [
    "apply",
    "be_nice",
    "become",
    "die_with_parent",
    "drop_bounding_set",
    "drop_capabilities",
    "forbid_new_privileges",
    "lower",
    "make_session_nice",
    "make_undumpable",
    "spend_cpu",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# -- privileges --

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522


def forbid_new_privileges() -> None:
    """Keep programs from gaining privileges by set-uid bits or file capabilities."""
    kernel.prctl(_PR_SET_NO_NEW_PRIVS, 1)


def make_undumpable() -> None:
    """Forbid core dumps, and tracing or memory access by other processes of the same uid.

    A change of uid undoes this, and the maps of a new user namespace can't be written afterwards.
    """
    kernel.prctl(_PR_SET_DUMPABLE, 0)


def die_with_parent(parent_lives: Callable[[], bool]) -> None:
    """Have the kernel end this process when its parent ends; a change of uid undoes this.

    The parent may already have ended; `parent_lives` is called to find out.
    """
    kernel.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if not parent_lives():
        os._exit(1)  # The first process of a pid namespace could not kill itself by signal.


def become(uid: int, gid: int) -> None:
    """Change uid and gid for good; a process that leaves uid 0 loses its capabilities."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def drop_capabilities() -> None:
    """Give up every capability, and every way to get one back."""
    drop_bounding_set()
    # Linux before 4.3 has no ambient set; later it shrinks with the permitted one.
    kernel.answer("prctl", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    this_process = 0
    header = struct.pack("<Ii", _CAPABILITY_VERSION_3, this_process)
    nothing_effective_permitted_inheritable = bytes(24)
    kernel.call("capset", header, nothing_effective_permitted_inheritable)


def drop_bounding_set() -> None:
    """Give up the capabilities that a started program could get; keep those in use.

    A process without the privilege to do so has none that it could pass on.
    """
    for capability in range(64):
        if kernel.answer("prctl", _PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            return  # EINVAL: that was the last one. EPERM: not ours to drop.


# -- resources --

_SECONDS_BETWEEN_SIGXCPU_AND_SIGKILL = 5
_NICENESS = 5
_SESSION_PRIORITY = "/proc/self/autogroup"
_SECONDS_BETWEEN_CHANGES = 0.1
"""How often Linux lets processes without privileges change the priority of a session."""

_cpu_seconds: int | None = None
"""The limit on the processor time of this process's session; None for no limit."""


def apply(
    *,
    max_file_bytes: int | None = None,
    max_open_files: int | None = None,
    max_processes: int | None = None,
    cpu_seconds: int | None = None,
) -> None:
    """Limit this process and its forks; None leaves a limit unchanged."""
    lower(resource.RLIMIT_CORE, 0)
    lower(resource.RLIMIT_MEMLOCK, 0)
    lower(resource.RLIMIT_MSGQUEUE, 0)
    # Queued signals count against the user, who may be the host's: a session queues none. Signals
    # other than real-time ones arrive anyway.
    lower(resource.RLIMIT_SIGPENDING, 0)
    for which, limit in (
        (resource.RLIMIT_FSIZE, max_file_bytes),
        (resource.RLIMIT_NOFILE, max_open_files),
        (resource.RLIMIT_NPROC, max_processes),
    ):
        if limit is not None:
            lower(which, limit)
    global _cpu_seconds
    _cpu_seconds = cpu_seconds
    spend_cpu(0)


def spend_cpu(seconds: float) -> None:
    """Subtract the time that earlier processes of this session used from the limit.

    The kernel counts each process from zero, so a resumed checkpoint needs this.
    """
    if _cpu_seconds is not None:
        left = max(1, _cpu_seconds - math.ceil(seconds))
        lower(resource.RLIMIT_CPU, left, left + _SECONDS_BETWEEN_SIGXCPU_AND_SIGKILL)


def be_nice() -> None:
    """Lower the priority, so that the host's own work goes first."""
    os.nice(_NICENESS)


def make_session_nice() -> None:
    """Lower the priority of all processes of a session; only its first process may call this.

    Linux may share the processors among sessions before it shares them among the processes of each
    (autogroups). The niceness of a process then has no effect outside its session.
    """
    if os.getsid(0) != os.getpid():
        return  # The session is the host's.
    for _ in range(3):
        try:
            with open(_SESSION_PRIORITY, "w") as file:
                file.write(str(_NICENESS))
        except BlockingIOError:
            time.sleep(_SECONDS_BETWEEN_CHANGES)
        except OSError:
            return  # This kernel has no autogroups.
        else:
            return


def lower(which: int, soft: int, hard: int | None = None) -> None:
    """Set a limit unless it is already lower; `hard` defaults to `soft`."""
    old_soft, old_hard = resource.getrlimit(which)
    resource.setrlimit(
        which, (_lower(old_soft, soft), _lower(old_hard, soft if hard is None else hard))
    )


def _lower(old: int, new: int) -> int:
    return new if old == resource.RLIM_INFINITY else min(old, new)
