"""Resource limits of one process. Address space is not here: `memory.py` moves it around cells."""

from __future__ import annotations

import math
import os
import resource

__all__ = ["apply", "be_nice", "lower", "spend_cpu"]

_SECONDS_BETWEEN_SIGXCPU_AND_SIGKILL = 5
_NICENESS = 5

_cpu_seconds: int | None = None
"""The processor time of the session that this process belongs to; None for no limit."""


def apply(
    *,
    max_file_bytes: int | None = None,
    max_open_files: int | None = None,
    max_processes: int | None = None,
    cpu_seconds: int | None = None,
) -> None:
    """Limit this process and what it forks; None leaves a limit as it is."""
    lower(resource.RLIMIT_CORE, 0)
    lower(resource.RLIMIT_MEMLOCK, 0)
    lower(resource.RLIMIT_MSGQUEUE, 0)
    # Queued signals count for the user, who may be the host's: nothing of a session is queued.
    # Signals that are not real-time ones arrive all the same.
    lower(resource.RLIMIT_SIGPENDING, 0)
    for which, limit in (
        (resource.RLIMIT_FSIZE, max_file_bytes),
        (resource.RLIMIT_NOFILE, max_open_files),
        (resource.RLIMIT_NPROC, max_processes),
    ):
        if limit is not None:
            lower(which, limit)
    global _cpu_seconds
    _cpu_seconds = cpu_seconds
    spend_cpu(0)


def spend_cpu(seconds: float) -> None:
    """Take what earlier processes of this session have used off the limit of this one.

    The kernel counts anew for every process, so a checkpoint that goes on has to be told.
    """
    if _cpu_seconds is not None:
        left = max(1, _cpu_seconds - math.ceil(seconds))
        lower(resource.RLIMIT_CPU, left, left + _SECONDS_BETWEEN_SIGXCPU_AND_SIGKILL)


def be_nice() -> None:
    """Let the host's own work go first."""
    os.nice(_NICENESS)


def lower(which: int, soft: int, hard: int | None = None) -> None:
    """Set a limit where it is not lower already; `hard` is `soft` if not given."""
    old_soft, old_hard = resource.getrlimit(which)
    resource.setrlimit(
        which, (_lower(old_soft, soft), _lower(old_hard, soft if hard is None else hard))
    )


def _lower(old: int, new: int) -> int:
    return new if old == resource.RLIM_INFINITY else min(old, new)
