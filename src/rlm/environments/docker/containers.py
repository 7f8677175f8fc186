"""Containers: their configuration, the interface of an engine, and their owners.

A container ends when the host closes its connection, and its engine removes it. `reap` removes
those that did not end, because the engine was restarted or because code in them prevented it.
"""

import contextlib
import logging
import os
import secrets
import sys
import uuid
from pathlib import Path
from typing import Protocol

from msgspec import Struct

__all__ = [
    "LABEL",
    "PLACE",
    "Container",
    "Engine",
    "Running",
    "is_gone",
    "new_name",
    "owner",
    "reap",
]

_MAX_FILES = 4_096

PLACE = "/run/rlm"
"""The folder with the host's socket, inside a container."""


class Container(Struct, frozen=True, kw_only=True):
    """What to run, and its limits. All other settings are the strictest that the engine has.

    `folder` is mounted read-only at PLACE. `attached`: connect to its input and output.
    """

    name: str
    image: str
    command: tuple[str, ...]
    labels: dict[str, str]
    environment: dict[str, str]
    user: str
    memory_bytes: int
    cpus: float
    max_processes: int
    scratch_bytes: int
    network: str = "none"
    runtime: str | None = None
    folder: str | None = None
    attached: bool = False

    @property
    def scratch_options(self) -> str:
        """The options of the memory file system at /tmp, the only writable folder."""
        return f"rw,noexec,nosuid,nodev,size={self.scratch_bytes},nr_inodes={_MAX_FILES},mode=1777"


class Running(Protocol):
    """A started container. `send` and `receive` are for attached ones."""

    async def send(self, data: bytes) -> None: ...

    async def receive(self) -> bytes: ...

    async def ending(self) -> str:
        """Wait until it has ended and say how; the text follows `the container`."""

    async def close(self) -> None:
        """End it and wait until it is removed; may be called twice."""


class Engine(Protocol):
    """Docker or Podman, reached in either way. If it refuses, methods raise ConfigError."""

    is_local: bool
    """Whether it seems to run on this kernel and to see this machine's files."""

    async def run(self, container: Container) -> Running: ...

    async def has_image(self, image: str) -> bool:
        """Return whether the engine has the image; raise ConfigError if no engine answers."""

    async def owners(self) -> dict[str, str]:
        """Return the owner of each of our containers, by id."""

    async def remove(self, container_id: str) -> None: ...

    async def close(self) -> None:
        """Close the connection to the engine; containers keep running."""


def new_name() -> str:
    """Return a unique name."""
    return f"rlm-{secrets.token_hex(8)}"


# -- owners --

LABEL = "rlm.owner"

_log = logging.getLogger(__name__)


def owner() -> str:
    """Return a text that identifies this process across machines and restarts."""
    return f"{_machine()} {_boot()} {os.getpid()} {_started(os.getpid())}"


def is_gone(text: str) -> bool:
    """Return whether a label names a process on this machine that has ended."""
    words = text.split()
    if len(words) != 4 or words[0] != _machine() or not words[2].isdecimal():
        return False
    boot, pid, started = words[1], int(words[2]), words[3]
    return boot != _boot() or _started(pid) != started


async def reap(engine: Engine) -> int:
    """Remove the containers of processes that have ended; return how many."""
    gone = [name for name, text in (await engine.owners()).items() if is_gone(text)]
    for name in gone:
        await engine.remove(name)
        _log.warning(
            "removed the container %s, which a process that has ended left behind", name[:12]
        )
    return len(gone)


def _machine() -> str:
    """Identify the machine or container that this process runs in: each has its own pids."""
    numbering = ""
    with contextlib.suppress(OSError):
        numbering = str(Path("/proc/self/ns/pid").readlink())
    return f"{_read('/etc/machine-id') or f'{uuid.getnode():x}'}{numbering}"


def _boot() -> str:
    return _read("/proc/sys/kernel/random/boot_id") or "-"


def _started(pid: int) -> str:
    """Return when a process started, which tells it apart from later ones; "" if it is gone."""
    if sys.platform == "win32":
        return "-"
    if sys.platform == "linux":
        fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        return fields[19] if len(fields) > 19 else ""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass  # It exists, and belongs to another user.
    return "-"


def _read(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text("ascii", "replace").strip()
    return ""
