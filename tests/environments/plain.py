"""The unprotected control: a worker as a plain child process, as `local` once was.

Nothing but a clean environment, a private folder, a process group and a memory limit holds it. The
conformance suite must pass on it, and the attack list must succeed on it: an attack that fails
here proves nothing anywhere else.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlm import worker
from rlm.environments._clock import ProcessState
from rlm.environments._frames import SessionBounds
from rlm.environments._session import WorkerSession, greeting_of
from rlm.protocols import Host
from rlm.worker.sandbox import process_state

__all__ = ["PlainEnvironment"]

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
main(int(sys.argv[2]), int(sys.argv[3]))
"""


class PlainEnvironment:
    """Opens sessions as child processes. `python` is the interpreter to run, by default ours."""

    name = "plain"

    def __init__(self, *, python: str = sys.executable) -> None:
        self._python = python
        self._sessions: weakref.WeakSet[WorkerSession] = weakref.WeakSet()

    async def open(self, host: Host, options: dict[str, Any]) -> WorkerSession:
        """Start a worker and wait until it is ready.

        `options`: seed, tools ([{"name", "description"}]), kept_output_chars, cell_memory_bytes.
        Call it from a thread that outlives the session: Linux ends the worker with that thread.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = _ChildProcess(self._python, theirs)
        except BaseException:
            ours.close()
            raise
        session = await WorkerSession.connect(
            ours, host, process, greeting_of(options), bounds=SessionBounds.of(options)
        )
        self._sessions.add(session)
        return session

    async def close(self) -> None:
        """Close every session that is still open."""
        await asyncio.gather(*(session.close() for session in list(self._sessions)))


class _ChildProcess:
    """A worker process, its process group and its folder; implements `WorkerProcess`."""

    def __init__(self, python: str, connection: socket.socket) -> None:
        self._folder = tempfile.mkdtemp(prefix="rlm-")
        fd = connection.fileno()
        try:
            self._process = subprocess.Popen(
                [python, "-S", "-s", "-c", _BOOT, _WORKER_FOLDER, str(fd), str(os.getpid())],
                env={"PYTHONHASHSEED": "0", "MALLOC_ARENA_MAX": "2", "TMPDIR": self._folder},
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
        self._ended = asyncio.get_running_loop().create_task(self._reap())

    def interrupt(self) -> None:
        """Send SIGINT to the worker itself, not to what it started."""
        self._signal(os.kill, signal.SIGINT)

    def kill(self) -> None:
        """Kill the worker and whatever else is in its process group."""
        self._signal(os.killpg, signal.SIGKILL)

    def _signal(self, send: Callable[[int, int], None], number: signal.Signals) -> None:
        """Send a signal; safe until the worker is reaped, since its id can't be reused before."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                send(self._process.pid, number)

    async def signals_sent(self) -> None:
        """A signal has arrived when `kill` returns."""

    async def state(self) -> ProcessState | None:
        """How the worker fares."""
        found = process_state.of_processes([self._process.pid])
        return None if found is None else ProcessState(**found)

    def stream_ended(self) -> None:
        """End a worker that does not end by itself now."""
        asyncio.get_running_loop().call_later(0.5, self.kill)

    async def wait(self) -> str:
        """Wait for the worker's end and return its reason."""
        status = await asyncio.shield(self._ended)
        if status >= 0:
            return f"exited with status {status}"
        names = {each.value: each.name for each in signal.Signals}
        return f"was killed by {names.get(-status, f'signal {-status}')}"

    async def clean_up(self) -> None:
        """Remove the private folder."""
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _reap(self) -> int:
        pid = self._process.pid
        try:
            fd = os.pidfd_open(pid)
        except (AttributeError, OSError):  # Not every system has them.
            if not hasattr(os, "waitid"):  # macOS before Python 3.13.
                return await asyncio.to_thread(self._process.wait)
            await asyncio.to_thread(os.waitid, os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        else:
            await _until_readable(fd)
        self.kill()
        return self._process.wait()


async def _until_readable(fd: int) -> None:
    """Wait for a pidfd, which becomes readable when its process ends, and close it."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(fd, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)
