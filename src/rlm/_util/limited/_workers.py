"""The host's side of a job's process, which a fork server forked, or which was newly started.

Both take and return frames, and one thread can kill them while another waits for them.
"""

import array
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Protocol

from rlm.worker.sandbox.preload import SINGLE_THREADED

__all__ = ["ForkServer", "Worker", "spawned"]

_PACKAGES = str(Path(__file__).resolve().parents[2])
_BOOT = """
import json, sys
given = json.loads(sys.argv[1])
sys.path[:] = given + [each for each in sys.path if each not in given]
"""
_FORK_SERVER = _BOOT + (
    "from rlm._util.limited._forkserver import main\nmain(int(sys.argv[2]), sys.argv[3])"
)
_SPAWNED = _BOOT + "from rlm._util.limited._spawned import main\nmain(sys.argv[3])"
_END_SECONDS = 5.0
_STATUS_BYTES = 4


class Worker(Protocol):
    """A process that does one job."""

    def send(self, data: bytes | memoryview, deadline: float) -> None:
        """Send the job; raise TimeoutError if it is not accepted by the deadline."""
        ...

    def receive(self, size: int, deadline: float) -> bytes:
        """Return at most `size` bytes; empty once the process has ended.

        Raise TimeoutError at the deadline.
        """
        ...

    def kill(self) -> None:
        """Kill it now; may be called from any thread."""
        ...

    def rest(self) -> None:
        """Note that an answer has arrived: no deadline applies until the next call."""
        ...

    def close(self) -> None:
        """Release a process that has done its job."""
        ...

    def finish(self) -> int | None:
        """Kill it, wait for it, and return its exit status, negative for a signal."""
        ...


class ForkServer:
    """A running fork server; it and its workers end with this process."""

    def __init__(self, module: str) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = _start(
                _FORK_SERVER, theirs.fileno(), module, pass_fds=[theirs.fileno()]
            )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def worker(self) -> Worker:
        """Return a process that waits for its job; raise OSError if none can be started."""
        stream, workers_end = socket.socketpair()
        lifeline, servers_end = socket.socketpair()
        with workers_end, servers_end:
            fds = array.array("i", [workers_end.fileno(), servers_end.fileno()])
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)
            try:
                self._control.sendmsg([b"w"], [rights])
            except OSError:
                stream.close()
                lifeline.close()
                raise
        return _Forked(stream, lifeline)

    def close(self) -> None:
        """End it and all its workers."""
        self._control.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def forget(self) -> None:
        """Leave it to the process that this one was forked from."""
        self._control.close()
        self._process.returncode = 0  # Not a child of this process, so it can't be waited for.


class _Forked:
    def __init__(self, stream: socket.socket, lifeline: socket.socket) -> None:
        self._stream = stream
        self._lifeline = lifeline

    def send(self, data: bytes | memoryview, deadline: float) -> None:
        self._wait_until(deadline)
        self._stream.sendall(data)

    def receive(self, size: int, deadline: float) -> bytes:
        self._wait_until(deadline)
        return self._stream.recv(size)

    def _wait_until(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._stream.settimeout(left)

    def kill(self) -> None:
        """Wake the waiting thread; the server sees that the lifeline is closed, and kills."""
        with contextlib.suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            self._lifeline.shutdown(socket.SHUT_WR)

    def rest(self) -> None:
        """Do nothing: deadlines belong to single reads."""

    def close(self) -> None:
        self._stream.close()
        self._lifeline.close()

    def finish(self) -> int | None:
        self.kill()
        with self._stream, self._lifeline:
            self._lifeline.settimeout(_END_SECONDS)
            with contextlib.suppress(OSError):
                status = self._lifeline.recv(_STATUS_BYTES)
                if len(status) == _STATUS_BYTES:
                    return int.from_bytes(status, "little", signed=True)
        return None


# -- where processes can't be forked --------------------------------------------------------------


def spawned(module: str) -> Worker:
    """Start a new interpreter: slower, but otherwise the same."""
    return _Spawned(_start(_SPAWNED, -1, module, stdin=subprocess.PIPE, stdout=subprocess.PIPE))


class _Spawned:
    """Kills its process after a time, because not every system has deadlines for reading pipes."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._timer: threading.Timer | None = None
        self._deadline = 0.0
        self._is_late = False

    def send(self, data: bytes | memoryview, deadline: float) -> None:
        assert self._process.stdin is not None
        self._set_timer(deadline)
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def receive(self, size: int, deadline: float) -> bytes:
        assert self._process.stdout is not None
        self._set_timer(deadline)
        data = os.read(self._process.stdout.fileno(), size)
        if not data and self._is_late:
            raise TimeoutError
        return data

    def kill(self) -> None:
        self._process.kill()

    def rest(self) -> None:
        self._end_timer()
        self._timer = None

    def close(self) -> None:
        self.finish()

    def finish(self) -> int | None:
        self._end_timer()
        self.kill()
        status = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        return status

    def _set_timer(self, deadline: float) -> None:
        if self._timer is not None and self._deadline == deadline:
            return
        self._end_timer()
        self._deadline = deadline
        self._timer = threading.Timer(max(0.0, deadline - time.monotonic()), self._expire)
        self._timer.daemon = True
        self._timer.start()

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self) -> None:
        self._is_late = True
        self.kill()


def _start(
    code: str,
    fd: int,
    module: str,
    *,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.DEVNULL,
    pass_fds: "list[int] | tuple[int, ...]" = (),
) -> "subprocess.Popen[bytes]":
    path = [
        _PACKAGES,
        *(each for each in sys.path if Path(each).is_absolute() and each != _PACKAGES),
    ]
    return subprocess.Popen(  # noqa: S603 - our own interpreter and boot code
        [sys.executable, "-I", "-c", code, json.dumps(path), str(fd), module],
        env={**SINGLE_THREADED, **_kept_environment()},
        cwd=Path(sys.executable).anchor,
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        pass_fds=pass_fds,
        start_new_session=True,
        creationflags=getattr(subprocess, "BELOW_NORMAL_PRIORITY_CLASS", 0),  # on Windows only
    )


def _kept_environment() -> dict[str, str]:
    """Return the variables that a program needs to start on Windows; keys and tokens stay here."""
    return {name: os.environ[name] for name in ("SYSTEMROOT", "TEMP") if name in os.environ}
