"""What the host sends to a zygote: the settings of the sandbox, and one-byte orders."""

from __future__ import annotations

import os

__all__ = [
    "GROW",
    "GROWTH_BYTES",
    "INTERRUPT",
    "MACHINES",
    "NOW",
    "PERMIT_FORK",
    "RETIRE",
    "STATE",
    "TERMINATE",
    "UNUSED_CHECKPOINT",
    "WARM",
    "Settings",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MACHINES = ("x86_64", "aarch64")
"""The machines whose system calls the filter knows, as `os.uname` names them."""

# On the control socket, with two descriptors: a session for a waiting run, or one to keep ready,
# which may wait for the preloading. The memory limit of its cells may follow, in 8 bytes.
NOW = b"N"
WARM = b"W"

# On the control socket, without descriptors: there is a successor, so end after the last session.
RETIRE = b"R"

# On the monitor of a session. Closing it ends the session.
INTERRUPT = b"I"
STATE = b"L"
TERMINATE = b"T"
PERMIT_FORK = b"P"
GROW = b"G"

GROWTH_BYTES = 64 << 20
"""Each order to grow raises the memory limit of a session's control group by this much."""

UNUSED_CHECKPOINT = 75
"""The exit status of a checkpoint that was not needed."""


class Settings:
    """The settings of a sandbox, as they come over the wire: `Settings(**data)`.

    `readable`: what sessions may read besides the interpreter. `listable`: folders whose names they
    may list. `max_processes` counts threads too. `forbid`: layers not to use.
    None leaves a limit unchanged. `scratch`: a folder that sessions may write to if they have no
    mount namespace; only for machines that nobody else uses. `cgroup`: a folder of control groups
    to use; "" to search for one.
    """

    def __init__(
        self,
        *,
        readable: Iterable[str] = (),
        listable: Iterable[str] = (),
        scratch: str = "",
        scratch_bytes: int = 64 << 20,
        max_processes: int = 128,
        max_file_bytes: int | None = None,
        max_open_files: int | None = 256,
        cpu_seconds: int | None = None,
        checkpoints: bool = True,
        allow_unsafe: bool = False,
        forbid: Iterable[str] = (),
        cgroup: str = "",
    ) -> None:
        self.readable = [os.path.abspath(path) for path in readable]
        self.listable = [os.path.abspath(path) for path in listable]
        self.scratch = scratch
        self.scratch_bytes = scratch_bytes
        self.max_processes = max_processes
        self.max_file_bytes = max_file_bytes
        self.max_open_files = max_open_files
        self.cpu_seconds = cpu_seconds
        self.checkpoints = checkpoints
        self.allow_unsafe = allow_unsafe
        self.forbid = tuple(forbid)
        self.cgroup = cgroup

    def forbidden(self, layer: str) -> str:
        """Return why a layer must not be used, or "" if it may be."""
        return "forbidden by the settings" if layer in self.forbid else ""
