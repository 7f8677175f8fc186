"""Who owns a container, and removing those whose owner is gone.

A container ends when the host lets go of it, and is removed by its engine. What is left for this is
the container that was kept from ending, by an engine that was restarted or by code that ran in it.
"""

import contextlib
import logging
import os
import sys
import uuid
from pathlib import Path

from rlm.environments.docker.containers import Engine

__all__ = ["LABEL", "is_gone", "owner", "reap"]

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
