"""Control groups (version 2): limits on all processes of a session together.

Limits of a process count neither kernel memory nor other processes; those of a group count both.
They need a folder of groups that this process may divide: the root, one that was delegated (systemd
marks those), or one that is named. A group with processes can't be divided, so this process must be
in a group below that folder, not in the folder itself.
"""

from __future__ import annotations

import os

from .orders import GROWTH_BYTES

__all__ = ["Cgroup", "Cgroups", "delegated_folder", "find"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_PREFIX = "rlm-"
_NEEDED = ("memory", "pids")
_WELCOME = ("cpu",)
_BASE_BYTES = 128 << 20
"""Memory for the worker itself, its sockets and page tables."""
_COPIES = 2
"""Variables may exist twice: in the worker and, in an older state, in its checkpoint."""
_PROCESSES = 3
_CPU_WEIGHT = "50"
_DELEGATED = ("user.delegate", "trusted.delegate")


class Cgroup:
    """The group of one session."""

    def __init__(self, fd: int, remove: Callable[[], None]) -> None:
        self.fd = fd
        self._remove = remove
        self._memory_bytes = 0

    def limit(self, memory_bytes: int, tasks: int) -> None:
        """Set the limits; 0 bytes for no memory limit."""
        _write(self.fd, "pids.max", str(tasks))
        self._memory_bytes = memory_bytes
        if memory_bytes:
            _write(self.fd, "memory.max", str(memory_bytes))
            _try_to_write(self.fd, "memory.swap.max", "0")
        _try_to_write(self.fd, "cpu.weight", _CPU_WEIGHT)

    def grow(self) -> None:
        """Raise the memory limit for a context, which does not count."""
        if self._memory_bytes:
            self._memory_bytes += GROWTH_BYTES
            _try_to_write(self.fd, "memory.max", str(self._memory_bytes))

    def remove(self) -> None:
        """Remove the group; its processes must have ended."""
        os.close(self.fd)
        self._remove()


class Cgroups:
    """A folder in which every session gets a group; `fd` is the folder around it."""

    def __init__(self, fd: int) -> None:
        self._around = fd
        self._name = f"{_PREFIX}{os.getpid()}"
        os.mkdir(self._name, dir_fd=fd)
        try:
            self._fd = _open(fd, self._name)
            _divide(self._fd)
        except OSError:
            os.rmdir(self._name, dir_fd=fd)
            raise

    def make(self, slot: int, allowance_bytes: int, scratch_bytes: int, tasks: int) -> Cgroup:
        """Make a group for the session in this slot."""
        name = str(slot)
        os.mkdir(name, dir_fd=self._fd)
        group = Cgroup(_open(self._fd, name), lambda: _remove(self._fd, name))
        memory = _BASE_BYTES + scratch_bytes + _COPIES * allowance_bytes if allowance_bytes else 0
        try:
            group.limit(memory, _PROCESSES * tasks)
        except OSError:
            group.remove()
            raise
        return group

    def close(self) -> None:
        """Remove the folder and its groups, whose processes must have ended."""
        for name in _names(self._fd):
            _remove(self._fd, name)
        os.close(self._fd)
        _remove(self._around, self._name)
        os.close(self._around)


def find(named: str = "") -> Cgroups:
    """Return groups in the folder `named`, or wherever possible; raise OSError if nowhere."""
    folder = named or delegated_folder()
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _divide(fd)
        _sweep(fd)
        return Cgroups(fd)
    except OSError:
        os.close(fd)
        raise


def delegated_folder() -> str:
    """Return the nearest delegated folder above this process's group, or the root."""
    mounted, root = _mount()
    own = _own_group()
    if root != "/" and (own + "/").startswith(root.rstrip("/") + "/"):
        own = own[len(root) :] or "/"
    path = os.path.normpath(mounted + own)
    if not os.path.exists(os.path.join(path, "cgroup.type")):
        return path  # The root may have processes and still be divided.
    while path != mounted:
        path = os.path.dirname(path)
        if any(_attribute(path, name) == b"1" for name in _DELEGATED):
            return path
    raise OSError(
        "no control group was delegated to this process; run it as a systemd service with "
        "Delegate=yes and DelegateSubgroup=, or name a folder that it may divide"
    )


def _mount() -> tuple[str, str]:
    """Return where groups of version 2 are mounted, and the group at the top."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            before, _, after = line.partition(" - ")
            if after.startswith("cgroup2 "):
                fields = before.split()
                return fields[4], fields[3]
    raise OSError("version 2 is not mounted")


def _own_group() -> str:
    with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            if line.startswith("0::"):
                return line[3:].rstrip("\n")
    raise OSError("this process is not in a version 2 group")


def _divide(fd: int) -> None:
    """Enable the memory and process controllers for the groups in a folder."""
    offered, divided = _read(fd, "cgroup.controllers"), _read(fd, "cgroup.subtree_control")
    missing = [name for name in _NEEDED if name not in offered]
    if missing:
        raise OSError(f"no controller for {' and '.join(missing)} is available there")
    wanted = [name for name in (*_NEEDED, *_WELCOME) if name in offered and name not in divided]
    if wanted:
        _write(fd, "cgroup.subtree_control", " ".join(f"+{name}" for name in wanted))


def _sweep(fd: int) -> None:
    """Remove groups left by zygotes that were killed."""
    for name in _names(fd):
        process = name[len(_PREFIX) :]
        if (
            name.startswith(_PREFIX)
            and process.isdigit()
            and not os.path.exists(f"/proc/{process}")
        ):
            try:
                left = _open(fd, name)
            except OSError:
                continue
            for inner in _names(left):
                _remove(left, inner)
            os.close(left)
            _remove(fd, name)


def _names(fd: int) -> list[str]:
    with os.scandir(fd) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


def _attribute(path: str, name: str) -> bytes:
    try:
        return os.getxattr(path, name)
    except OSError:
        return b""


def _open(fd: int, name: str) -> int:
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)


def _remove(fd: int, name: str) -> None:
    try:
        os.rmdir(name, dir_fd=fd)
    except OSError:
        return  # It is not empty; the next zygote will remove it.


def _read(fd: int, name: str) -> list[str]:
    file = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=fd)
    try:
        return os.read(file, 4096).decode("ascii").split()
    finally:
        os.close(file)


def _write(fd: int, name: str, text: str) -> None:
    file = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=fd)
    try:
        os.write(file, text.encode("ascii"))
    finally:
        os.close(file)


def _try_to_write(fd: int, name: str, text: str) -> None:
    try:
        _write(fd, name, text)
    except OSError:
        return  # There is no swap, or no such controller.
