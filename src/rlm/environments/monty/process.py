"""The process of a monty worker: how it is ended, and what the kernel is asked to hold.

A worker that spins does not notice the death of its host. So where the system allows it, a worker
has processor time on a lease: its host renews it while a feed runs, and a worker whose host is gone
is killed by the kernel some seconds later.
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

__all__ = ["WorkerProcess"]

_LEASE_SECONDS = 10
_RENEWAL_SECONDS = 2.0


class WorkerProcess:
    """Use it as a context manager around whatever lets the worker run."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._handle: int | None = None
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self._handle = os.pidfd_open(pid)
        self._renewal: asyncio.TimerHandle | None = None
        self._renewed_at = -_RENEWAL_SECONDS
        self._is_closed = False
        self._confine()

    def kill(self) -> None:
        """End it at once, if it still runs."""
        if self._is_closed:
            return
        with contextlib.suppress(OSError):
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            else:
                os.kill(self._pid, getattr(signal, "SIGKILL", signal.SIGTERM))

    def close(self) -> None:
        """End it for good."""
        self.kill()
        self._is_closed = True
        self.__exit__()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> None:
        if sys.platform == "linux":
            since = time.monotonic() - self._renewed_at
            if since < _RENEWAL_SECONDS:
                self._wait(_RENEWAL_SECONDS - since)
            else:
                self._renew()

    def __exit__(self, *_: object) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None

    def _confine(self) -> None:
        """No files and no core dumps: a bug in the interpreter has a little less to use then."""
        if sys.platform == "linux":
            import resource

            for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE):
                with contextlib.suppress(OSError, ValueError):
                    resource.prlimit(self._pid, limit, (0, 0))

    def _renew(self) -> None:
        """Allow some more processor time; if nobody does so again, that is all there was."""
        if self._is_closed:
            return
        import resource

        with contextlib.suppress(OSError, ValueError):
            _, most = resource.prlimit(self._pid, resource.RLIMIT_CPU)
            until = int(_used_seconds(self._pid)) + _LEASE_SECONDS
            resource.prlimit(self._pid, resource.RLIMIT_CPU, (until, most))
        self._renewed_at = time.monotonic()
        self._wait(_RENEWAL_SECONDS)

    def _wait(self, seconds: float) -> None:
        self._renewal = asyncio.get_running_loop().call_later(seconds, self._renew)


def _used_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
