"""Which processes there are, according to /proc."""

import contextlib
import os
from pathlib import Path

__all__ = ["descendants", "is_running", "running_below"]


def descendants(pid: int) -> set[int]:
    """The living processes below one; a zombie that was not reaped yet does not count."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                parents[int(stat.parent.name)] = int(parent)
    found = {pid}
    while more := {each for each, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def running_below(words: str) -> set[int]:
    """The processes below this one with these words in their command.

    This distinguishes what a test started from sessions that the pool prepares meanwhile.
    """
    found = set()
    for pid in descendants(os.getpid()):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if words.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.add(pid)
    return found


def is_running(pid: int) -> bool:
    """Whether a process lives."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
