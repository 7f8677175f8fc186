"""Resource limits of one process. Address space is not here: `memory.py` moves it around cells."""

from __future__ import annotations

import os
import resource

__all__ = ["apply", "be_nice", "lower"]

_SECONDS_BETWEEN_SIGXCPU_AND_SIGKILL = 5
_NICENESS = 5


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
    for which, limit in (
        (resource.RLIMIT_FSIZE, max_file_bytes),
        (resource.RLIMIT_NOFILE, max_open_files),
        (resource.RLIMIT_NPROC, max_processes),
    ):
        if limit is not None:
            lower(which, limit)
    if cpu_seconds is not None:
        hard = cpu_seconds + _SECONDS_BETWEEN_SIGXCPU_AND_SIGKILL
        lower(resource.RLIMIT_CPU, cpu_seconds, hard)


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
