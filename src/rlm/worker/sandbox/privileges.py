"""What a process gives up about itself: privileges, identity, being looked at, outliving others."""

from __future__ import annotations

import os
import signal
import struct

from . import kernel

__all__ = [
    "become",
    "die_with_parent",
    "drop_bounding_set",
    "drop_capabilities",
    "forbid_new_privileges",
    "make_undumpable",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522


def forbid_new_privileges() -> None:
    """No program that is started from here on gains rights by set-uid bits or file capabilities."""
    kernel.prctl(_PR_SET_NO_NEW_PRIVS, 1)


def make_undumpable() -> None:
    """No core dump, and no other process of the same uid may trace this one or read its memory.

    A change of uid undoes it, and the maps of a new user namespace can't be written after it.
    """
    kernel.prctl(_PR_SET_DUMPABLE, 0)


def die_with_parent(parent_lives: Callable[[], bool]) -> None:
    """Have the kernel end this process when its parent ends; a change of uid undoes it.

    The parent may have ended before it was asked for; `parent_lives` is asked afterwards.
    """
    kernel.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if not parent_lives():
        os._exit(1)  # The first process of a pid namespace could not kill itself by signal.


def become(uid: int, gid: int) -> None:
    """Take another identity without a way back; capabilities go with uid 0."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def drop_capabilities() -> None:
    """Give up every capability, and every way to get one back."""
    drop_bounding_set()
    # Linux before 4.3 has no ambient set; elsewhere it shrinks with the permitted one anyway.
    kernel.answer("prctl", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    this_process = 0
    header = struct.pack("<Ii", _CAPABILITY_VERSION_3, this_process)
    nothing_effective_permitted_inheritable = bytes(24)
    kernel.call("capset", header, nothing_effective_permitted_inheritable)


def drop_bounding_set() -> None:
    """Give up the capabilities a started program could get; those in use stay until dropped.

    Without the right to do so there is nothing in use that could be passed on either.
    """
    for capability in range(64):
        if kernel.answer("prctl", _PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            return  # EINVAL: that was the last one. EPERM: not ours to drop.
