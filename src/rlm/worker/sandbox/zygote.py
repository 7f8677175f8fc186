"""The zygote: a process that has everything loaded and forks a hardened worker on request.

The host writes one byte for each session it wants, with two descriptors: the worker's end of the
session's stream and the zygote's end of its monitor. There are no answers on this socket: a session
that can't be made is reported on its own monitor. The zygote has one thread, runs only this code,
and ends with the host. In a pid namespace it is process 1, so nothing can outlive it.
"""

from __future__ import annotations

import array
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import sys

from .. import memory, shared
from ..main import Worker
from . import layers, namespaces, permits, preload, privileges, sealed
from .forked_worker import ForkedWorker, be_a_worker
from .orders import RETIRE, WARM

__all__ = ["Zygote", "made"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from .cgroups import Cgroup
    from .trials import Trials

_PACKAGE = __name__.partition(".")[0]
_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_LENGTH = struct.Struct("<I")
_PARENT_CHECK_SECONDS = 5


def made(
    control: socket.socket, host_pid: int, settings: dict[str, Any], trials: Trials
) -> Zygote | None:
    """Load everything, apply the layers that are needed before forks, and report to the host.

    Return None if no sandbox is possible here; the host has been told why.
    """
    loading = preload.Preloading(settings["packages"])
    trials.finish()
    zero_copy = shared.be_told(trials.zero_copy)
    for module in settings.get("early", ()):  # A shell other than Python's.
        importlib.import_module(f"{_PACKAGE}.{module}").prepare()
    try:
        found = layers.prepare(trials)
        parent_pid = host_pid
        if found.pid_namespace:
            parent_pid = _go_on_in_child(namespaces.fork_into_pid_namespace, parent_pid)
        if found.scratch:
            os.environ.update(TMPDIR=found.scratch, HOME=found.scratch)
        if not found.namespaces:
            preload.hide_others(settings["search_path"], [name for name, _ in settings["roots"]])
        loading.process_folder = found.process_folder
        if found.sealed or settings["packages"]:
            # Sessions of a sealed sandbox can't load anything themselves.
            with layers.place_to_write(found):
                loading.run()
        if loading.threads_started_by:
            parent_pid = _go_on_in_child(os.fork, parent_pid)  # Threads are not forked.
        if found.sealed:
            sealed.seal([(_PACKAGE, _FOLDER), *map(tuple, settings["roots"])])
    except layers.LayersMissing as error:
        _send(control, {"error": str(error)})
        return None
    found.zygote = os.getpid()
    os.dup2(0, 2)  # From here on, nobody reads stderr.
    _send(control, _report(found, loading, zero_copy))
    return Zygote(control, parent_pid, found, loading)


def _go_on_in_child(fork: Callable[[], int], parent_pid: int) -> int:
    """Continue in a new process, and return its parent's id as it sees it.

    The old process waits for the new one to end.
    """
    own_pid = os.getpid()
    zygote = fork()
    if zygote == 0:
        privileges.die_with_parent(lambda: True)  # If one of them ends, so does the other.
        return own_pid if os.getppid() else 0  # Parents outside the namespace have no id.
    wait = _waiting_for(zygote)
    while os.getppid() == parent_pid and os.waitpid(zygote, os.WNOHANG)[0] == 0:
        wait()
    os._exit(0)


def _waiting_for(child: int) -> Callable[[], object]:
    """Return a function that waits until the child ends, or a few seconds."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])  # Stays pending until the wait.
    try:
        ended = os.pidfd_open(child)
    except (AttributeError, OSError):  # Before Linux 5.3; a thread of a package may get the signal.
        return lambda: signal.sigtimedwait([signal.SIGCHLD], _PARENT_CHECK_SECONDS)
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    return lambda: poll.poll(1000 * _PARENT_CHECK_SECONDS)


class Zygote:
    """Forks sessions for the host at the other end of `control`, and supervises them."""

    def __init__(
        self,
        control: socket.socket,
        parent_pid: int,
        found: layers.Layers,
        loading: preload.Preloading,
    ) -> None:
        self._control = control
        self._parent_pid = parent_pid
        self._layers = found
        self._loading = loading
        self._worker = Worker(permits.fork if found.forks else None)
        self._waiting: list[tuple[int, int, int]] = []
        self._count = 0
        self._is_retired = False
        self._workers: dict[int, ForkedWorker] = {}
        self._watched: dict[int, ForkedWorker] = {}
        self._poll = select.poll()

    def serve(self) -> None:
        """Fork on request, supervise workers, and preload when idle."""
        deaths = _wake_on_deaths()
        self._settle()
        for fd in (self._control.fileno(), deaths):
            self._poll.register(fd, select.POLLIN)
        while os.getppid() == self._parent_pid and not self._is_over():
            ready = self._poll.poll(1000 * _PARENT_CHECK_SECONDS if self._loading.done else 0)
            for fd, events in ready:
                if fd == self._control.fileno():
                    if not self._take_request():
                        self._end_all()
                        return
                elif fd == deaths:
                    os.read(deaths, 4096)
                    self._reap()
                elif fd in self._watched:
                    self._serve_worker(fd, events)
            if not ready and not self._loading.done:
                self._load_more()

    def _is_over(self) -> bool:
        return self._is_retired and not self._workers and not self._waiting

    # Requests for sessions.

    def _take_request(self) -> bool:
        """Handle one request; return False once the host is gone."""
        data, ancillary, _, _ = self._control.recvmsg(9, socket.CMSG_SPACE(8))
        request, memory_bytes = data[:1], int.from_bytes(data[1:], "little")
        fds = array.array("i")
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
        if request and len(fds) == 2:
            if request == WARM and not self._loading.done:
                self._waiting.append((fds[0], fds[1], memory_bytes))
            else:
                self._fork(fds[0], fds[1], memory_bytes, warm_up=request == WARM)
        elif request == RETIRE:
            self._is_retired = True
        else:
            _close_all(fds)  # Some may have been cut off: too many files are open here.
        return bool(request)

    def _fork(self, connection_fd: int, monitor_fd: int, memory_bytes: int, warm_up: bool) -> None:
        self._count += 1
        opened = [connection_fd, monitor_fd]
        cgroup = None
        try:
            ours, theirs = socket.socketpair()
            opened += [ours.fileno(), theirs.fileno()]
            monitor = socket.socket(fileno=monitor_fd)
            cgroup = self._cgroup_for(memory_bytes)
            pid = namespaces.fork(0) if cgroup is None else namespaces.fork_into(cgroup.fd)
        except OSError as error:
            _tell(monitor_fd, {"error": f"no process could be created for it: {error}"})
            _close_all(opened)
            if cgroup is not None:
                cgroup.remove()
            return
        if pid == 0:
            self._parent_pid = 0  # Cells can reach this object.
            be_a_worker(
                self._worker,
                self._layers,
                self._count,
                connection_fd,
                theirs.fileno(),
                warm_up,
            )
        os.close(connection_fd)
        theirs.close()
        _set_group(pid)
        found = self._layers
        self._workers[pid] = worker = ForkedWorker(
            pid, monitor, ours, found.settings, found.process_folder, cgroup
        )
        self._watch(monitor.fileno(), worker)
        self._watch(ours.fileno(), worker)

    def _cgroup_for(self, memory_bytes: int) -> Cgroup | None:
        if self._layers.cgroups is None:
            return None
        settings = self._layers.settings
        return self._layers.cgroups.make(
            self._count, memory_bytes, settings.scratch_bytes, settings.max_processes
        )

    # Sessions that exist.

    def _serve_worker(self, fd: int, events: int) -> None:
        """Handle a descriptor of a session that is ready."""
        worker = self._watched[fd]
        if fd == worker.monitor.fileno():
            self._read_orders(worker)
        elif worker.permits is not None and fd == worker.permits.listener:
            if events & select.POLLIN:
                self._read_orders(worker)  # Its permit was written before the fork.
                if self._still_asks(fd):
                    worker.permits.decide()
            else:
                self._forget(fd)  # No process is left that could ask.
        else:
            self._read_set_up(fd, worker)

    def _read_orders(self, worker: ForkedWorker) -> None:
        monitor = worker.monitor.fileno()
        if monitor in self._watched and not worker.read_orders():
            self._forget(monitor)
            worker.end()

    def _still_asks(self, listener: int) -> bool:
        """Return whether a process still asks: an interrupt may have ended its wait."""
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        return any(events & select.POLLIN for _, events in poll.poll(0))

    def _read_set_up(self, set_up: int, worker: ForkedWorker) -> None:
        had_permits = worker.permits is not None
        worker.read_set_up()
        if worker.set_up is None:
            self._forget(set_up)
        if worker.permits is not None and not had_permits:
            self._watch(worker.permits.listener, worker)

    def _reap(self) -> None:
        """Report every death; a process that has just died still has its process group."""
        while True:
            try:
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if dead is None:
                return
            group = os.getpgid(dead.si_pid)
            _, status, used = os.wait4(dead.si_pid, 0)
            worker = self._workers.get(group)
            cpu_seconds = used.ru_utime + used.ru_stime
            if worker is not None and not worker.note_death(_exit_code(status), cpu_seconds):
                self._release(worker)

    def _release(self, worker: ForkedWorker) -> None:
        del self._workers[worker.group]
        for fd in [fd for fd, each in self._watched.items() if each is worker]:
            self._forget(fd)
        worker.close()

    def _watch(self, fd: int, worker: ForkedWorker) -> None:
        self._watched[fd] = worker
        self._poll.register(fd, select.POLLIN)

    def _forget(self, fd: int) -> None:
        self._poll.unregister(fd)
        del self._watched[fd]

    def _end_all(self) -> None:
        for worker in self._workers.values():
            worker.end()

    def clean_up(self) -> None:
        """Remove the control groups at the end; they must be empty."""
        if self._layers.cgroups is None:
            return
        self._end_all()
        while self._workers:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            self._reap()
        self._layers.cgroups.close()

    # When idle.

    def _load_more(self) -> None:
        self._loading.step()
        if self._loading.done:
            self._settle()
            waiting, self._waiting = self._waiting, []
            for fds in waiting:
                self._fork(*fds, warm_up=True)

    def _settle(self) -> None:
        """Keep the garbage collector away from what sessions share, and measure memory."""
        if self._loading.done:
            self._worker.warm_up()
            gc.collect()
        gc.freeze()
        memory.measure_base()


def _wake_on_deaths() -> int:
    """Return a descriptor that becomes readable when a child dies."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def _set_group(pid: int) -> None:
    """Set the process group; the worker does the same, so it is set whichever runs first."""
    try:
        os.setpgid(pid, pid)
    except OSError:
        return  # The worker has done it, or is gone.


def _tell(monitor_fd: int, fact: dict[str, Any]) -> None:
    try:
        os.write(monitor_fd, json.dumps(fact).encode("ascii") + b"\n")
    except OSError:
        return  # The host is gone.


def _close_all(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)


def _exit_code(status: int) -> int:
    """Return the exit status, or the negative number of the signal."""
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _report(found: layers.Layers, loading: preload.Preloading, zero_copy: bool) -> dict[str, Any]:
    return {
        **found.report(),
        "zero_copy": zero_copy,
        "python": sys.version.split()[0],
        "not_loaded": loading.failures,
        "without_threads": list(loading.threads_started_by),
    }


def _send(control: socket.socket, fact: dict[str, Any]) -> None:
    data = json.dumps(fact).encode("ascii")
    control.sendall(_LENGTH.pack(len(data)) + data)
