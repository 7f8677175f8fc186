"""A container as this environment wants it, and what an engine has to offer to run one."""

import secrets
from typing import Protocol

from msgspec import Struct

__all__ = ["PLACE", "Container", "Engine", "Running", "new_name"]

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
