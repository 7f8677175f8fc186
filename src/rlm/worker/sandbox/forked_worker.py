"""A session as the zygote sees it: its processes, its monitor to the host, its permits.

The processes of a session are one process group, which none of them can leave, and all are children
of the zygote. So it can signal them together, knows of every death, and leaves nobody behind.
"""

from __future__ import annotations

import json
import os
import signal
import socket

from . import permits, process_state
from .orders import GROW, INTERRUPT, PERMIT_FORK, STATE, TERMINATE

__all__ = ["ForkedWorker"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .cgroups import Cgroup
    from .settings import Settings

_SET_UP_FAILED = b"E"
_CPU_OVERTIME_SECONDS = 10
"""The kernel ends a process five seconds after its limit; a session gets no more than this."""


class ForkedWorker:
    """One session. `set_up` is where its worker tells that it is ready, or why it is not.

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
        """Take what the worker says while it is set up; `set_up` is None once it is done."""
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
        """Do what the host wrote, if anything; False once it has let go."""
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
                # A checkpoint that waits has this one blocked.
                self._signal_and_continue(signal.SIGTERM)
            elif order == STATE[0]:
                self._report({"state": process_state.of_group(self._process_folder, self.group)})
            elif order == GROW[0] and self._cgroup is not None:
                self._cgroup.grow()
            elif order == PERMIT_FORK[0]:
                self._permitted_early = True  # If its listener was not taken yet.
                if self.permits is not None:
                    self.permits.allow_fork()
        return bool(orders)

    def end(self) -> None:
        """Nobody of it goes on."""
        self._signal(signal.SIGKILL)

    def note_death(self, status: int, cpu_seconds: float) -> bool:
        """One of its processes has died, having used that much; False if it was the last one.

        A checkpoint begins with no processor time used. It is told what the others have used and
        lowers its own limit; one that does not is ended here, with the next process that dies.
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
        """Let go of everything; the host then knows that nobody is left."""
        while self.set_up is not None:
            self.read_set_up()  # Why it could not be set up, if its death was noticed first.
        self.monitor.close()
        if self.permits is not None:
            os.close(self.permits.listener)
        if self._cgroup is not None:
            self._cgroup.remove()

    def _signal_and_continue(self, number: int) -> None:
        """A process that was stopped takes a signal only once it is continued."""
        self._signal(number)
        self._signal(signal.SIGCONT)
        self._report({"signalled": True})

    def _signal(self, number: int) -> bool:
        """Signal the whole group; False if nobody is in it."""
        try:
            os.killpg(self.group, number)
        except ProcessLookupError:
            return False
        return True

    def _report(self, fact: dict[str, Any]) -> None:
        """Tell the host, if it still listens; it may not read, so never wait for it."""
        try:
            self.monitor.send(json.dumps(fact).encode("ascii") + b"\n", socket.MSG_DONTWAIT)
        except OSError:
            return


def _threads_of(pid: int) -> int:
    """How many threads a process has; none if it has just ended."""
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0
