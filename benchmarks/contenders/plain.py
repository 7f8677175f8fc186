"""The worker as an ordinary child process, alone or under a program such as bubblewrap.

It has only a clean environment, a private folder and a process group: this is the cost of a session
without any protection of the machine.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.processes import descendants
from rlm import worker
from rlm.environments._session import WorkerSession, greeting_of
from rlm.protocols import Host

__all__ = ["PlainEnvironment", "bubblewrap"]

_WORKER_FOLDER = str(Path(worker.__file__).parent)

# Loads the worker's folder as a package of its own, so that no other file of rlm can be imported.
_BOOT = """
import sys
sys.path[:] = [entry for entry in sys.path if entry]
import importlib.util
spec = importlib.util.spec_from_file_location(
    "rlm_worker", sys.argv[1] + "/__init__.py", submodule_search_locations=[sys.argv[1]]
)
sys.modules["rlm_worker"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["rlm_worker"])
from rlm_worker.main import main
main(int(sys.argv[2]))
"""


def bubblewrap() -> list[str] | None:
    """Return the command that wraps a worker's; None if `bwrap` is missing or not allowed."""
    program = shutil.which("bwrap")
    if program is None:
        return None
    command = [program, "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    command += ["--tmpfs", "/tmp"]  # noqa: S108 - a file system of its own
    for path in {_WORKER_FOLDER, sys.prefix, sys.base_prefix}:
        if path.startswith("/tmp/"):  # noqa: S108 - which the line above has hidden
            command += ["--ro-bind", path, path]
    command += ["--chdir", "/tmp", "--die-with-parent"]  # noqa: S108
    trial = [*command, sys.executable, "-S", "-c", ""]
    try:
        subprocess.run(trial, check=True, capture_output=True, timeout=10)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    return command


class PlainEnvironment:
    """An environment of child processes; `wrapper` is a command that runs the worker's command."""

    def __init__(self, name: str = "plain", wrapper: Sequence[str] = ()) -> None:
        self.name = name
        self._wrapper = wrapper
        self._sessions: weakref.WeakSet[WorkerSession] = weakref.WeakSet()

    async def open(self, host: Host, options: dict[str, Any]) -> WorkerSession:
        """Start a worker and wait until it is ready."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = _ChildProcess(self._wrapper, theirs)
        except BaseException:
            ours.close()
            raise
        session = await WorkerSession.connect(ours, host, process, greeting_of(options))
        self._sessions.add(session)
        process.find_worker()
        return session

    async def close(self) -> None:
        """Close every session that is still open."""
        await asyncio.gather(*(session.close() for session in list(self._sessions)))


class _ChildProcess:
    """A worker process, its process group and its folder; implements `WorkerProcess`."""

    def __init__(self, wrapper: Sequence[str], connection: socket.socket) -> None:
        self._folder = tempfile.mkdtemp(prefix="rlm-benchmark-")
        self._wrapped = bool(wrapper)
        fd = connection.fileno()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and boot code
                [*wrapper, sys.executable, "-S", "-s", "-c", _BOOT, _WORKER_FOLDER, str(fd)],
                env={
                    "PYTHONHASHSEED": "0",
                    "MALLOC_ARENA_MAX": "2",
                    "TMPDIR": "/tmp" if wrapper else self._folder,  # noqa: S108 - its own
                },
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[fd],
                start_new_session=True,
            )
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._worker_pid = self._process.pid
        self._ended = asyncio.get_running_loop().create_task(self._reap())

    def find_worker(self) -> None:
        """Find the interpreter: under a wrapper, it is the youngest descendant."""
        if self._wrapped:
            self._worker_pid = max(descendants(self._process.pid), default=self._process.pid)

    def interrupt(self) -> None:
        """Send SIGINT to the worker itself."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._worker_pid, signal.SIGINT)

    def kill(self) -> None:
        """Kill the worker's process group."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def state(self) -> None:
        """Return None: its state is unknown, so real time counts when a cell is stopped."""

    async def signals_sent(self) -> None:
        """Do nothing: a signal is delivered when `kill` returns."""

    def stream_ended(self) -> None:
        """End a worker that does not end by itself."""
        asyncio.get_running_loop().call_later(0.5, self.kill)

    async def wait(self) -> str:
        """Wait until the worker has ended and say how."""
        return f"ended with status {await asyncio.shield(self._ended)}"

    async def clean_up(self) -> None:
        """Remove the private folder."""
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _reap(self) -> int:
        """Wait on a pidfd for the process to end; if cancelled, end it now."""
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        fd = os.pidfd_open(self._process.pid)
        loop.add_reader(fd, over.set)
        try:
            await over.wait()
        finally:
            loop.remove_reader(fd)
            os.close(fd)
            self.kill()
            status = self._process.wait()
        return status
