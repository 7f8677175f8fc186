"""Read facts about processes from /proc: descendants, memory, CPU time."""

import asyncio
import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

__all__ = [
    "context_files",
    "cpu_seconds",
    "descendants",
    "described",
    "peak_bytes",
    "private_bytes",
    "reset_peak",
    "share_of_memory",
    "until_quiet",
]

_PROC = Path("/proc")
_QUIET_POLLS = 4
_POLL_SECONDS = 0.005


def _stat(pid: int) -> tuple[str, int]:
    """Return state and parent of a process."""
    fields = (_PROC / str(pid) / "stat").read_text("utf-8").rpartition(")")[2].split()
    return fields[0], int(fields[1])


def descendants(pid: int | None = None) -> set[int]:
    """Return all descendants of a process, by default of this one."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                each = int(entry.name)
                children.setdefault(_stat(each)[1], []).append(each)
    found: set[int] = set()
    ahead = [os.getpid() if pid is None else pid]
    while ahead:
        born = children.get(ahead.pop(), [])
        found.update(born)
        ahead += born
    return found


def described(pids: Iterable[int]) -> list[str]:
    """Return state, parent and command of each process that still exists."""
    words = []
    for pid in pids:
        with contextlib.suppress(OSError):
            command = (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ")
            state, parent = _stat(pid)
            words.append(f"{state} of {parent}: {command[:60].decode('utf-8', 'replace')}")
    return words


async def until_quiet(timeout_seconds: float = 3.0) -> None:
    """Wait until no descendant has run, started or ended for a moment."""
    loop = asyncio.get_running_loop()
    until, quiet, before = loop.time() + timeout_seconds, 0, set[int]()
    while quiet < _QUIET_POLLS and loop.time() < until:
        await asyncio.sleep(_POLL_SECONDS)
        now = descendants()
        quiet = quiet + 1 if now == before and all(map(_sleeps, now)) else 0
        before = now


def _sleeps(pid: int) -> bool:
    try:
        return _stat(pid)[0] in "SI"
    except OSError:
        return False


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the CPU time of processes so far; 0 if the kernel does not report it."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += int((_PROC / str(pid) / "schedstat").read_text("utf-8").split()[0])
    return total / 1e9


def _field(pid: int | str, file: str, name: str) -> int:
    """Return a figure of a file in /proc that is given in kB, in bytes."""
    for line in (_PROC / str(pid) / file).read_text("utf-8").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def private_bytes(pids: Iterable[int]) -> int:
    """Return the size of pages that only this process maps and that were written to."""
    return sum(_memory(pid, "Private_Dirty") for pid in pids)


def share_of_memory(pids: Iterable[int]) -> int:
    """Return anonymous memory, with shared pages divided among their processes.

    Forked copies share pages that belong to neither alone; this way they are not lost.
    """
    return sum(_memory(pid, "Pss_Anon") for pid in pids)


def _memory(pid: int, name: str) -> int:
    try:
        return _field(pid, "smaps_rollup", name)
    except OSError:
        return 0  # It has just ended.


def reset_peak() -> int:
    """Reset the peak memory use of this process; return its current use in bytes."""
    with contextlib.suppress(OSError):
        (_PROC / "self" / "clear_refs").write_text("5", "utf-8")
    return _field("self", "status", "VmHWM")


def peak_bytes(pid: int | str = "self") -> int:
    """Return the peak memory use of a process; of this one, since `reset_peak`."""
    return _field(pid, "status", "VmHWM")


def context_files() -> int:
    """Return the number of files of shared contexts that this process holds open."""
    count = 0
    for link in (_PROC / "self" / "fd").iterdir():
        with contextlib.suppress(OSError):
            count += "memfd:rlm-context" in str(link.readlink())
    return count
