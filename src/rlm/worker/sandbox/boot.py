"""Becoming a worker: from a process that was just forked off the zygote to one that serves."""

from __future__ import annotations

import fcntl
import os
import signal
import socket

from .. import interrupts
from . import kernel, layers, permits, privileges

__all__ = ["be_a_worker"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from ..main import Worker

_CONNECTION_FD = 3
_SET_UP_FD = 4
_RULESET_FD = 5


def be_a_worker(
    session: Worker,
    found: layers.Layers,
    slot: int,
    connection_fd: int,
    set_up_fd: int,
    warm_up: bool,
) -> NoReturn:
    """Be the worker of one session: hardened before it takes its first request, else gone.

    `warm_up`: nobody waits for this session yet, so it warms itself up.
    """
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        interrupts.set_handler(signal.SIGCHLD, None)
        try:
            layers.enter_session(found, slot)
            _open_own_streams()
        except OSError as error:
            _tell_failure(set_up_fd, error)
        _keep_only(found, connection_fd, set_up_fd)
        session.serve(_socket_at(_CONNECTION_FD), lambda: _harden(found), warm_up)
    finally:
        os._exit(1)


def _harden(found: layers.Layers) -> None:
    with _socket_at(_SET_UP_FD) as set_up:
        try:
            if found.forks or found.asks_for_threads:
                privileges.forbid_new_privileges()
                permits.send_listener(set_up, found.asks_for_threads)
            layers.harden(found)
        except OSError as error:
            _tell_failure(_SET_UP_FD, error)
    # Code in cells sees the variables of every function below it, and what they hold.
    vars(found).clear()


def _socket_at(fd: int) -> socket.socket:
    """One of the host's or the zygote's; the kernel need not be asked what kind it is."""
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fd)


def _tell_failure(set_up_fd: int, error: OSError) -> NoReturn:
    os.write(set_up_fd, b"E" + str(error).encode("utf-8", "replace"))
    os._exit(1)


def _open_own_streams() -> None:
    """Have a /dev/null of this session's own at 0, 1 and 2, not one that others have open too.

    What is set on an open file (its flags, its position) is set for everybody who has it. And where
    there is a file tree of our own, this one is on a mount that is read-only: its mode stays.
    """
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.close(null)


def _keep_only(found: layers.Layers, connection_fd: int, set_up_fd: int) -> None:
    """Give what is still needed a fixed place and close every other descriptor above 2."""
    kept = [connection_fd, set_up_fd] + ([] if found.ruleset is None else [found.ruleset])
    # First to where no place is in the way of another.
    copies = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _RULESET_FD + 1) for fd in kept]
    for place, fd in enumerate(copies, _CONNECTION_FD):
        os.dup2(fd, place, inheritable=False)
    kernel.call("close_range", _CONNECTION_FD + len(kept), 0x7FFFFFFF, 0)
    if found.ruleset is not None:
        found.ruleset = _RULESET_FD
