"""The base of environments with remote sandboxes: it does everything except make the sandbox.

A subclass starts a command in a sandbox and returns a pipe to it. The worker is sent through that
pipe, so nothing is installed or uploaded, and any image with Python 3.9 or newer will do.
"""

import asyncio
import json
import struct
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from rlm.environments._forked import ForkedSession
from rlm.environments._relay import Relay
from rlm.environments._session import greeting_of
from rlm.environments._shipping import archive, bootstrap_command
from rlm.environments.pipes import Pipe
from rlm.errors import ConfigError, SessionDied
from rlm.protocols import BaseEnvironment, Host

__all__ = ["RemoteEnvironment", "sandbox_settings"]


def sandbox_settings(
    *, hardened: bool, scratch: str, scratch_bytes: int = 64 << 20, max_threads: int = 128
) -> str:
    """Return the settings of a zygote that has a sandbox to itself, as JSON.

    With `hardened`, the zygote adds its own layers or refuses to run. Without it, only the sandbox
    around it isolates cells.
    """
    layers: dict[str, Any] = {
        "scratch": scratch,
        "scratch_bytes": scratch_bytes,
        "max_processes": max_threads,
    }
    if not hardened:
        layers.update(
            allow_unsafe=True, forbid=["namespaces", "landlock", "sealed", "seccomp", "uid"]
        )
    return json.dumps(
        {"packages": [], "search_path": [], "roots": [], "installed": True, "layers": layers}
    )


class RemoteEnvironment(BaseEnvironment):
    """Opens each session in its own sandbox, which subclasses start."""

    name: str
    is_paid = True
    is_sandbox = True
    carries: ClassVar[Literal["bytes", "lines"]]
    """What the pipe that `start` returns accepts: any bytes, or only lines of text."""
    start_seconds: ClassVar[float] = 180.0
    """How long opening a session may take; an image may have to be fetched first."""

    def __init__(
        self,
        *,
        python: str = "python3",
        hardened: bool = False,
        scratch: str = "/tmp",  # noqa: S108
    ) -> None:
        self._python = python
        self._settings = sandbox_settings(hardened=hardened, scratch=scratch)
        self._sessions: set[ForkedSession] = set()
        self._report: dict[str, Any] = {}

    @abstractmethod
    async def start(self, command: Sequence[str]) -> Pipe:
        """Make a sandbox and run the command, a list of words, in it."""

    async def open(self, host: Host, options: dict[str, Any]) -> ForkedSession:
        """Make a sandbox and wait until its worker is ready."""
        if (problem := self.obstacle()) is not None:
            raise ConfigError(problem)
        try:
            async with asyncio.timeout(self.start_seconds):
                return await self._open(host, options)
        except TimeoutError:
            raise SessionDied(
                f"no sandbox of {self.name} was ready within {self.start_seconds:g} s; "
                "check the provider's list of sandboxes"
            ) from None

    def obstacle(self) -> str | None:
        """Return why this environment, with its options, can't be used here."""
        return self.problem()

    async def describe(self) -> dict[str, Any]:
        """Return what the sandbox of the last session reported about itself."""
        return {"isolation": f"a sandbox at {self.name}", **self._report}

    async def close(self) -> None:
        """Close every session that is still open, and its sandbox."""
        await asyncio.gather(*(session.close() for session in list(self._sessions)))

    async def _open(self, host: Host, options: dict[str, Any]) -> ForkedSession:
        relay = Relay(await self.start(self._command()))
        try:
            self._report = await relay.set_up(self._archive(), self._settings)
            session = await ForkedSession(
                await relay.open(),
                host,
                options,
                report={
                    **self._report,
                    "forks": False,
                },  # Checkpoints need descriptors, which can't be sent.
                sends_fds=False,
                close_sandbox=relay.close,
            ).start(greeting_of(options))
        except BaseException:
            await asyncio.shield(relay.close())
            raise
        self._sessions.add(session)
        session.when_closed(self._sessions.discard)
        return session

    def _command(self) -> list[str]:
        return bootstrap_command(self._python, self.carries)

    def _archive(self) -> bytes:
        """Return the worker in the form that `rlm.worker.bootstrap` reads."""
        data = archive()
        return data if self.carries == "lines" else struct.pack("<I", len(data)) + data
