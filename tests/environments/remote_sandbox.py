"""Remote sandboxes for tests: the worker is sent to a process of this machine.

Two of them, one for each kind of pipe that providers offer.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from typing import Any, ClassVar, Literal

from rlm.environments.pipes import LinesPipe, Pipe
from rlm.environments.remote import RemoteEnvironment
from rlm.errors import SessionDied

__all__ = ["Program", "RemoteBytes", "RemoteLines"]

_READ_BYTES = 1 << 16


class Program:
    """A process with pipes for its input and output; implements `Pipe`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def started(cls, command: Sequence[str], folder: str) -> "Program":
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=folder,
            env={**os.environ, "PROVIDERS_KEY": "a-key-of-the-provider"},
        )
        return cls(process)

    async def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(data)
            await self.process.stdin.drain()
        except ConnectionError as error:
            raise SessionDied(f"it does not read: {error}") from error

    async def receive(self) -> bytes:
        assert self.process.stdout is not None
        return await self.process.stdout.read(_READ_BYTES)

    async def close(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
        while await self.receive():
            pass

    async def ending(self) -> str:
        return f"ended with status {await self.process.wait()}"


class _Remote(RemoteEnvironment):
    name = "remote"
    is_paid = False

    def __init__(self, *, python: str = sys.executable, **options: Any) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="rlm-remote-")
        super().__init__(python=python, scratch=self.folder.name, **options)
        self.programs: list[Program] = []

    async def close(self) -> None:
        await super().close()
        self.folder.cleanup()

    async def _program(self, command: Sequence[str]) -> Program:
        program = await Program.started(command, self.folder.name)
        self.programs.append(program)
        return program


class RemoteBytes(_Remote):
    carries: ClassVar[Literal["bytes", "lines"]] = "bytes"

    async def start(self, command: Sequence[str]) -> Pipe:
        return await self._program(command)


class RemoteLines(_Remote):
    carries: ClassVar[Literal["bytes", "lines"]] = "lines"

    async def start(self, command: Sequence[str]) -> Pipe:
        program = await self._program(command)

        async def texts() -> AsyncIterator[str]:
            yield "a banner that the provider prints\n"
            while data := await program.receive():
                yield data.decode("ascii")

        async def write(text: str) -> None:
            await program.send(text.encode("ascii"))

        return LinesPipe(write, texts(), program.close, program.ending)
