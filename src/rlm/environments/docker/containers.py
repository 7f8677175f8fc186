"""Containers: what they are to be like, what an engine has to offer, and who owns them.

A container ends when the host closes its connection, and its engine removes it. `reap` removes
those that were kept from ending, by an engine that was restarted or by code that ran in them.
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

_MOST_FILES = 4_096

PLACE = "/run/rlm"
"""Where the folder with the host's socket is, inside a container."""


class Container(Struct, frozen=True, kw_only=True):
    """What to run, and what holds it. Everything that is not here is the engine's strictest.

    `folder` is mounted at PLACE, read-only. `attached`: its input and output are wanted.
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
        """Of the file system in memory that is mounted at /tmp, the only place to write to."""
        return f"rw,noexec,nosuid,nodev,size={self.scratch_bytes},nr_inodes={_MOST_FILES},mode=1777"


class Running(Protocol):
    """A container that was started. `send` and `receive` are for attached ones."""

    async def send(self, data: bytes) -> None: ...

    async def receive(self) -> bytes: ...

    async def ending(self) -> str:
        """Wait until it has ended; how, in words that follow `the container`."""

    async def close(self) -> None:
        """End it and see it removed; may be called twice."""


class Engine(Protocol):
    """Docker or Podman, however it is reached. What it refuses is a ConfigError."""

    is_local: bool
    """Whether it runs on this kernel and sees this machine's files, as far as one can tell."""

    async def run(self, container: Container) -> Running: ...

    async def has_image(self, image: str) -> bool:
        """Whether it is there already; ConfigError if no engine answers."""

    async def owners(self) -> dict[str, str]:
        """Our containers, of whichever process, by id: who owns each."""

    async def remove(self, container_id: str) -> None: ...

    async def close(self) -> None:
        """Let go of the engine, not of its containers."""


def new_name() -> str:
    """A name that no other container has."""
    return f"rlm-{secrets.token_hex(8)}"


# -- owners --

LABEL = "rlm.owner"

_log = logging.getLogger(__name__)


def owner() -> str:
    """This process, so that no other one, nor another machine's, can be taken for it."""
    return f"{_machine()} {_boot()} {os.getpid()} {_started(os.getpid())}"


def is_gone(text: str) -> bool:
    """Whether the owner that a label names was a process of this machine, and is no more."""
    words = text.split()
    if len(words) != 4 or words[0] != _machine() or not words[2].isdecimal():
        return False
    boot, pid, started = words[1], int(words[2]), words[3]
    return boot != _boot() or _started(pid) != started


async def reap(engine: Engine) -> int:
    """Remove the containers of processes that are gone; how many they were."""
    gone = [name for name, text in (await engine.owners()).items() if is_gone(text)]
    for name in gone:
        await engine.remove(name)
        _log.warning("removed the container %s, which a process that is gone had left", name[:12])
    return len(gone)


def _machine() -> str:
    """Processes are numbered anew in each container, so hosts in two of them are two machines."""
    numbering = ""
    with contextlib.suppress(OSError):
        numbering = str(Path("/proc/self/ns/pid").readlink())
    return f"{_read('/etc/machine-id') or f'{uuid.getnode():x}'}{numbering}"


def _boot() -> str:
    return _read("/proc/sys/kernel/random/boot_id") or "-"


def _started(pid: int) -> str:
    """When a process began; another one with its number began later. Empty if there is none."""
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
        pass  # It is somebody else's, and lives.
    return "-"


def _read(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text("ascii", "replace").strip()
    return ""
