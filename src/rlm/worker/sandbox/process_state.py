"""Reads the processor time of processes, and whether they are asleep, from the kernel.

Unlike a process's own report, this can't be forged by code in a sandbox.
"""

from __future__ import annotations

import os

__all__ = ["of_group", "of_processes"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_ASLEEP = b"SITtZX"  # Waiting for something other than a processor or a disk; stopped; ended.
_USER_TICKS, _SYSTEM_TICKS = 11, 12  # Counted from the state, which follows the name in `stat`.
_MAX_BYTES = 1 << 16


def of_group(process_folder: int | None, group: int) -> dict[str, Any] | None:
    """Return the state of a process group of the caller's children, or None if it is unknown.

    `process_folder` is /proc, opened; it may belong to a pid namespace other than the caller's.
    """
    if process_folder is None:
        return None
    try:
        return of_processes(list(_members(process_folder, group)), process_folder)
    except (OSError, ValueError, IndexError):
        return None


def of_processes(
    pids: Iterable[int | str], process_folder: int | str = "/proc"
) -> dict[str, Any] | None:
    """Return the combined state of some processes, or None if none is visible."""
    folder = process_folder if isinstance(process_folder, int) else None
    prefix = "" if isinstance(process_folder, int) else f"{process_folder}/"
    ticks, asleep, seen = 0, True, False
    for pid in pids:
        try:
            fields = _stat(f"{prefix}{pid}/stat", folder)
            states = [
                _stat(f"{prefix}{pid}/task/{thread}/stat", folder)[0]
                for thread in _listed(f"{prefix}{pid}/task", folder)
            ]
        except (OSError, IndexError):
            continue  # It, or one of its threads, has just ended.
        seen = True
        ticks += int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])
        asleep = asleep and all(state in _ASLEEP for state in states)
    return {"cpu_seconds": ticks / _TICKS_PER_SECOND, "asleep": asleep} if seen else None


def _members(folder: int, group: int) -> Iterator[str]:
    """Yield the processes of a group, as `folder` names them."""
    for pid in _children(folder):
        try:
            status = _read(f"{pid}/status", folder)
        except OSError:
            continue
        for line in status.splitlines():
            # The last number is the one in the innermost namespace, which is the caller's.
            if line.startswith(b"NSpgid:") and int(line.split()[-1]) == group:
                yield pid


def _children(folder: int) -> list[str]:
    try:
        own = os.readlink("self", dir_fd=folder)
        return _read(f"{own}/task/{own}/children", folder).decode("ascii").split()
    except OSError:  # Not every kernel lists them.
        return [name for name in os.listdir(folder) if name.isdigit()]


def _stat(path: str, folder: int | None) -> list[bytes]:
    """Return the fields after the name in a `stat` file; a name may contain anything."""
    return _read(path, folder).rpartition(b")")[2].split()


def _listed(path: str, folder: int | None) -> list[str]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return os.listdir(fd)
    finally:
        os.close(fd)


def _read(path: str, folder: int | None) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return os.read(fd, _MAX_BYTES)
    finally:
        os.close(fd)
