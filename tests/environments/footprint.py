"""What a process has of the machine: processes, open files, mounts, temporary files, tasks."""

import asyncio
import gc
import os
import time
from pathlib import Path
from typing import NamedTuple

__all__ = ["Alive", "Footprint", "alive", "children", "descendants", "until_gone"]


class Alive(NamedTuple):
    """A process that can't be taken for a later one with the same number."""

    pid: int
    started: str


class Footprint(NamedTuple):
    """All of it as numbers and names that can be compared; zombies count as processes."""

    processes: int
    open_files: int
    open_files_of_zygote: int
    mounts: int
    temporary_files: list[str]
    tasks: int

    @classmethod
    def now(cls, zygote: int, temporary: Path) -> "Footprint":
        gc.collect()
        return cls(
            len(descendants(os.getpid())),
            len(list(Path("/proc/self/fd").iterdir())),
            len(list(Path(f"/proc/{zygote}/fd").iterdir())),
            len(Path("/proc/self/mountinfo").read_text().splitlines()),
            sorted(each.name for each in temporary.iterdir()),
            len(asyncio.all_tasks()),
        )


def _parents() -> dict[int, int]:
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue  # It has just ended.
            found[int(folder.name)] = int(fields[1])
    return found


def children(pid: int) -> set[int]:
    return {child for child, parent in _parents().items() if parent == pid}


def descendants(pid: int) -> set[int]:
    parents = _parents()
    found: set[int] = set()
    new = {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return found


def alive(pid: int) -> Alive | None:
    """The process with that number, unless there is none or it is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else Alive(pid, fields[19])


def until_gone(processes: set[Alive], max_seconds: float = 30) -> set[Alive]:
    """Wait until the processes have ended; return those still alive when the time is over."""
    deadline = time.monotonic() + max_seconds
    left = processes
    while left and time.monotonic() < deadline:
        left = {each for each in left if alive(each.pid) == each}
        time.sleep(0.02)
    return left
