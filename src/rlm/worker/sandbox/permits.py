"""Forks and threads by permission: the kernel asks the zygote before a worker gets one.

A checkpoint is a fork, so the system-call filter can't forbid forks altogether; but code that may
fork freely can multiply its memory allowance. So a second filter stops every fork in the kernel and
asks (a "user notification"). Such a fork creates a child of the *zygote* (CLONE_PARENT, which the
main filter requires), so the zygote reaps and counts all of them.

Where the kernel can't limit the threads of one session, the filter asks about threads too.
"""

from __future__ import annotations

import array
import errno
import os
import socket
import struct
import time

from . import kernel, namespaces, privileges, probes, seccomp

__all__ = ["Permits", "fork", "receive", "send_listener", "trial"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_CLONE_PARENT = 0x00008000
_CLONE_THREAD = 0x00010000
_MAX_PROCESSES = 3
"""A worker, its checkpoint, and the next checkpoint until the first has ended."""

_PERMIT_SECONDS = 10.0

_NOTIFICATION = struct.Struct("<QII iIQQ")
"""The head of `struct seccomp_notif`: id, pid, flags; number, machine, address, first argument."""
_NOTIFICATION_BYTES = 80
_RESPONSE = struct.Struct("<QqiI")
_RECEIVE = 0xC0502100  # SECCOMP_IOCTL_NOTIF_RECV
_SEND = 0xC0182101  # SECCOMP_IOCTL_NOTIF_SEND
_CONTINUE = 1  # Safe here: the flags of clone are in a register, which can't change.


class Permits:
    """The permits of one session. `count_threads` returns the threads of a process."""

    def __init__(
        self, listener: int, max_threads: int, count_threads: Callable[[int], int]
    ) -> None:
        self.listener = listener
        self.processes = 1
        self._most_threads = max_threads
        self._count_threads = count_threads
        self._fork_allowed_until = 0.0

    def allow_fork(self) -> None:
        """Permit one fork, if it happens soon and there are not too many processes."""
        self._fork_allowed_until = time.monotonic() + _PERMIT_SECONDS

    def decide(self) -> None:
        """Answer the process that waits in the kernel."""
        import fcntl

        notification = bytearray(_NOTIFICATION_BYTES)
        try:
            fcntl.ioctl(self.listener, _RECEIVE, notification, True)
            identity, pid, _, _, _, _, flags = _NOTIFICATION.unpack_from(notification)
            if self._is_allowed(pid, flags):
                answer = _RESPONSE.pack(identity, 0, 0, _CONTINUE)
            else:
                refusal = errno.EAGAIN if flags & _CLONE_THREAD else errno.EPERM
                answer = _RESPONSE.pack(identity, 0, -refusal, 0)
            fcntl.ioctl(self.listener, _SEND, answer)
        except OSError:
            return  # The process was killed or interrupted while it waited.

    def _is_allowed(self, pid: int, flags: int) -> bool:
        if flags & _CLONE_THREAD:
            return self._count_threads(pid) < self._most_threads
        in_time = time.monotonic() < self._fork_allowed_until
        allowed = in_time and self.processes < _MAX_PROCESSES
        if allowed:
            self._fork_allowed_until = 0.0
            self.processes += 1
        return allowed


def trial() -> Callable[[], str]:
    """Start a trial; return a function that returns why this kernel can't do it, or ""."""

    def action() -> None:
        privileges.forbid_new_privileges()
        _listen(threads=False)

    if not namespaces.tid_address():
        return lambda: "the address of the thread's id is unknown"
    begun = probes.Trial(action)
    return lambda: begun.outcome()[1]


def send_listener(connection: socket.socket, threads: bool) -> None:
    """In the worker: install the filter and send its listener to the zygote."""
    listener = _listen(threads)
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [listener]))
    connection.sendmsg([b"L"], [rights])
    os.close(listener)


def _listen(threads: bool) -> int:
    return seccomp.install_listener(seccomp.build_listener(kernel.MACHINE, threads))


def receive(connection: socket.socket) -> tuple[bytes, int]:
    """In the zygote: receive a message from the worker (empty at the end) and a listener."""
    message, ancillary, _, _ = connection.recvmsg(4096, socket.CMSG_SPACE(4))
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            return message, int(array.array("i", data)[0])
    return message, -1


def fork() -> int:
    """Fork a child of the zygote; raise OSError (EPERM) without a permit."""
    child = namespaces.fork(_CLONE_PARENT)
    if child == 0:
        privileges.die_with_parent(lambda: True)  # Not inherited.
    return child
