"""The process that forks a process for each job; it has loaded the module of the jobs.

It has one thread and only forks, kills and reaps. For every process the host sends two sockets: the
stream for the job, and a lifeline. When the host closes the lifeline, or dies, the process is
killed; when the process has ended, its status is written there. Linux only.
"""

import array
import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import struct
import sys
from types import ModuleType

from rlm._util.limited._process import do_job, rehearse
from rlm.worker.sandbox import kernel, landlock, privileges, seccomp

__all__ = ["STATUS", "main"]

STATUS = struct.Struct("<i")
_STREAM = 3


def main(control_fd: int, module_name: str) -> None:
    """Load the module, then fork on request until the host closes its end."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the starting thread may block some
    privileges.make_session_nice()
    privileges.be_nice()
    sys.dont_write_bytecode = True
    module = importlib.import_module(module_name)
    preload = getattr(module, "preload", None)
    if preload is not None:
        preload()
    gc.collect()
    gc.freeze()
    _ForkServer(socket.socket(fileno=control_fd), module).serve()


class _ForkServer:
    def __init__(self, control: socket.socket, module: ModuleType) -> None:
        self._control = control
        self._module = module
        self._confinement = _Confinement()
        self._lifelines: dict[int, socket.socket] = {}
        self._children: dict[int, socket.socket] = {}
        self._poll = select.poll()

    def serve(self) -> None:
        deaths, wakeup = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        self._poll.register(self._control, select.POLLIN)
        self._poll.register(deaths, select.POLLIN)
        while True:
            for fd, _ in self._poll.poll():
                if fd == self._control.fileno():
                    if not self._take_request():
                        return  # The children die with this process.
                elif fd == deaths:
                    with contextlib.suppress(BlockingIOError):
                        os.read(deaths, 4096)
                    self._reap()
                elif fd in self._lifelines:
                    self._kill(fd)

    def _take_request(self) -> bool:
        """Fork for one request; return False once the host is gone."""
        request, ancillary, _, _ = self._control.recvmsg(1, socket.CMSG_SPACE(8))
        fds = array.array("i")
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
        if request and len(fds) == 2:
            self._fork(fds[0], socket.socket(fileno=fds[1]))
        else:
            for fd in fds:
                os.close(fd)
        return bool(request)

    def _fork(self, stream: int, lifeline: socket.socket) -> None:
        parent = os.getpid()
        try:
            child = os.fork()
        except OSError:
            lifeline.close()
        else:
            if child == 0:
                _be_a_child(parent, stream, self._module, self._confinement)
            self._children[child] = lifeline
            self._lifelines[lifeline.fileno()] = lifeline
            self._poll.register(lifeline, select.POLLIN)
        os.close(stream)

    def _kill(self, fd: int) -> None:
        """Kill the process of a closed lifeline.

        It is alive or a zombie until it is reaped here, so no other process can have its id.
        """
        self._poll.unregister(fd)
        lifeline = self._lifelines.pop(fd)
        for child, its in self._children.items():
            if its is lifeline:
                os.kill(child, signal.SIGKILL)

    def _reap(self) -> None:
        while self._children:
            child, status = os.waitpid(-1, os.WNOHANG)
            if child == 0:
                return
            lifeline = self._children.pop(child)
            if self._lifelines.pop(lifeline.fileno(), None) is not None:
                self._poll.unregister(lifeline)
            with contextlib.suppress(OSError):
                lifeline.send(STATUS.pack(os.waitstatus_to_exitcode(status)))
            lifeline.close()


class _Confinement:
    """Forbid network access, other processes and writing files, as far as the kernel allows."""

    def __init__(self) -> None:
        self._rules: int | None = None
        self._program: bytes | None = None
        with contextlib.suppress(OSError):
            self._rules = landlock.ruleset(readable=["/"])
        with contextlib.suppress(KeyError):
            self._program = seccomp.build(kernel.MACHINE, scratch=False)

    def apply(self) -> None:
        with contextlib.suppress(OSError):
            privileges.forbid_new_privileges()
            if self._rules is not None:
                landlock.restrict_with(self._rules)
        with contextlib.suppress(OSError):
            if self._program is not None:
                seccomp.install(seccomp.bind_to_process(self._program, os.getpid()))


def _be_a_child(parent: int, stream: int, module: ModuleType, confinement: _Confinement) -> None:
    """Do one job and end; this never returns into the loop of the server."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        privileges.die_with_parent(lambda: os.getppid() == parent)
        confinement.apply()
        if stream != _STREAM:
            os.dup2(stream, _STREAM, inheritable=False)
        os.closerange(_STREAM + 1, 1 << 16)
        connection = socket.socket(fileno=_STREAM)
        rehearse()
        do_job(module, connection.recv, connection.sendall)
        os._exit(0)
    finally:
        os._exit(1)
