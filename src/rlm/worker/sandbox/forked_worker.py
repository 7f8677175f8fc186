"""A worker as its zygote sees it, and what the forked process does to become one.

The processes of a session are one process group, which none of them can leave, and children of the
zygote. So the zygote can signal them together, learns of every death, and leaves none behind.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket

from .. import interrupts
from . import kernel, layers, permits, privileges, process_state
from .orders import GROW, INTERRUPT, PERMIT_FORK, STATE, TERMINATE

__all__ = ["ForkedWorker", "be_a_worker"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from ..main import Worker
    from .cgroups import Cgroup
    from .orders import Settings

_SET_UP_FAILED = b"E"
_CPU_OVERTIME_SECONDS = 10
"""The kernel ends a process five seconds over its limit; a session may exceed it by this much."""


class ForkedWorker:
    """The worker of a session. `set_up` is a socket on which it reports why it could not start.

    `process_folder` is /proc, opened, if there is one.
    """

    def __init__(
        self,
        group: int,
        monitor: socket.socket,
        set_up: socket.socket,
        settings: Settings,
        process_folder: int | None = None,
        cgroup: Cgroup | None = None,
    ) -> None:
        self.group = group
        self.monitor = monitor
        self.set_up: socket.socket | None = set_up
        self.permits: permits.Permits | None = None
        self._process_folder = process_folder
        self._cgroup = cgroup
        self._most_threads = settings.max_processes
        self._cpu_seconds = settings.cpu_seconds
        self._cpu_seconds_spent = 0.0
        self._permitted_early = False

    def read_set_up(self) -> None:
        """Read what the worker sends while it starts; `set_up` is None once that is done."""
        assert self.set_up is not None
        message, listener = permits.receive(self.set_up)
        if listener >= 0:
            self.permits = permits.Permits(listener, self._most_threads, _threads_of)
            if self._permitted_early:
                self.permits.allow_fork()
        elif message.startswith(_SET_UP_FAILED):
            self._report({"error": message[1:].decode("utf-8", "replace")})
        elif not message:
            self.set_up.close()
            self.set_up = None

    def read_orders(self) -> bool:
        """Carry out the host's orders, if any; return False once it has closed the socket."""
        try:
            orders = self.monitor.recv(64, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        for order in orders:
            if order == INTERRUPT[0]:
                self._signal_and_continue(signal.SIGINT)
            elif order == TERMINATE[0]:
                # A waiting checkpoint blocks this signal.
                self._signal_and_continue(signal.SIGTERM)
            elif order == STATE[0]:
                self._report({"state": process_state.of_group(self._process_folder, self.group)})
            elif order == GROW[0] and self._cgroup is not None:
                self._cgroup.grow()
            elif order == PERMIT_FORK[0]:
                self._permitted_early = True  # The listener may not have arrived yet.
                if self.permits is not None:
                    self.permits.allow_fork()
        return bool(orders)

    def end(self) -> None:
        """Kill every process of the session."""
        self._signal(signal.SIGKILL)

    def note_death(self, status: int, cpu_seconds: float) -> bool:
        """Note the death of a process and its processor time; return False if it was the last.

        The kernel counts a checkpoint's time from zero. The host tells it how much was used, so
        that it lowers its own limit; if it does not, it is ended here when the next process dies.
        """
        if self.permits is not None:
            self.permits.processes -= 1
        self._cpu_seconds_spent += cpu_seconds
        self._report({"status": status, "cpu_seconds": self._cpu_seconds_spent})
        limit = self._cpu_seconds
        if limit is not None and self._cpu_seconds_spent > limit + _CPU_OVERTIME_SECONDS:
            self.end()
        return self._signal(0)

    def close(self) -> None:
        """Close everything; the host then knows that no process is left."""
        while self.set_up is not None:
            self.read_set_up()  # This may still say why it could not start.
        self.monitor.close()
        if self.permits is not None:
            os.close(self.permits.listener)
        if self._cgroup is not None:
            self._cgroup.remove()

    def _signal_and_continue(self, number: int) -> None:
        """Signal the group and continue it: a stopped process does not handle signals."""
        self._signal(number)
        self._signal(signal.SIGCONT)
        self._report({"signalled": True})

    def _signal(self, number: int) -> bool:
        """Signal the whole group; return False if it is empty."""
        try:
            os.killpg(self.group, number)
        except ProcessLookupError:
            return False
        return True

    def _report(self, fact: dict[str, Any]) -> None:
        """Send a report to the host without waiting: the host may not read."""
        try:
            self.monitor.send(json.dumps(fact).encode("ascii") + b"\n", socket.MSG_DONTWAIT)
        except OSError:
            return


def _threads_of(pid: int) -> int:
    """Return the number of threads of a process; 0 if it has just ended."""
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0


# -- in the forked process --

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
    """Become the worker of one session: harden this process, then serve; exit if that fails.

    With `warm_up`, no run waits for this session yet, so it warms up first.
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
    # Cells can reach the variables of every function on the stack.
    vars(found).clear()


def _socket_at(fd: int) -> socket.socket:
    """Return the socket at a descriptor, without asking the kernel for its type."""
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fd)


def _tell_failure(set_up_fd: int, error: OSError) -> NoReturn:
    os.write(set_up_fd, b"E" + str(error).encode("utf-8", "replace"))
    os._exit(1)


def _open_own_streams() -> None:
    """Open this session's own /dev/null at 0, 1 and 2.

    All processes that have an open file share its flags and position. And in our own file tree,
    this one is on a read-only mount, so its mode can't be changed.
    """
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.close(null)


def _keep_only(found: layers.Layers, connection_fd: int, set_up_fd: int) -> None:
    """Move the descriptors that are still needed to fixed numbers, and close all others."""
    kept = [connection_fd, set_up_fd] + ([] if found.ruleset is None else [found.ruleset])
    # First to numbers that do not overlap.
    copies = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _RULESET_FD + 1) for fd in kept]
    for place, fd in enumerate(copies, _CONNECTION_FD):
        os.dup2(fd, place, inheritable=False)
    kernel.call("close_range", _CONNECTION_FD + len(kept), 0x7FFFFFFF, 0)
    if found.ruleset is not None:
        found.ruleset = _RULESET_FD
