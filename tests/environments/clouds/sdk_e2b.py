"""A double of the part of `e2b` that is used: 2.63's signatures, and processes of this machine."""

import asyncio
import codecs
import inspect
from types import ModuleType
from typing import Any

from tests.environments.clouds.machine import (
    Machine,
    Program,
    SandboxOnDisk,
    Watched,
    bound_to,
    fake_module,
    sdk_call,
)

__all__ = ["modules"]


class SandboxException(Exception):
    pass


class RateLimitException(SandboxException):
    pass


class SandboxNotRunningException(SandboxException):
    pass


class CommandExitException(SandboxException):
    def __init__(self, exit_code: int) -> None:
        super().__init__(f"Command exited with code {exit_code}")
        self.exit_code = exit_code


class AuthenticationException(Exception):
    pass


class AsyncSandbox(Watched):
    sdk_path = "e2b:AsyncSandbox"

    def __init__(self, disk: SandboxOnDisk) -> None:
        self._disk = disk
        self._commands = bound_to(self.machine, Commands)[0](disk)

    @property
    def sandbox_id(self) -> str:
        return self._disk.id

    @property
    def commands(self) -> Any:
        return self._commands

    @classmethod
    @sdk_call("e2b:AsyncSandbox.create")
    async def create(
        cls,
        template: str | None = None,
        timeout: int | None = None,
        metadata: Any = None,
        envs: Any = None,
        secure: bool | None = None,
        allow_internet_access: bool | None = None,
        mcp: Any = None,
        network: Any = None,
        iam: Any = None,
        lifecycle: Any = None,
        volume_mounts: Any = None,
        logger: Any = None,
        idempotency_key: str | None = None,
        **opts: Any,
    ) -> Any:
        wishes = {"timeout": timeout, "allow_internet_access": allow_internet_access}
        return cls(cls.machine.new_sandbox(**wishes, lifecycle=lifecycle, metadata=metadata))

    @sdk_call("e2b:AsyncSandbox.kill")
    async def kill(self, **opts: Any) -> bool:
        was_running = self._disk.is_running
        await self._disk.end()
        return was_running


class Commands(Watched):
    sdk_path = "e2b.sandbox_async.commands.command:Commands"

    def __init__(self, disk: SandboxOnDisk) -> None:
        self._disk = disk

    @sdk_call("e2b.sandbox_async.commands.command:Commands.run")
    async def run(
        self,
        cmd: str,
        background: bool | None = None,
        envs: Any = None,
        user: Any = None,
        cwd: str | None = None,
        on_stdout: Any = None,
        on_stderr: Any = None,
        stdin: bool | None = None,
        timeout: float | None = 60,
        request_timeout: float | None = None,
        *,
        retain_output: bool = True,
    ) -> Any:
        assert background, "or nobody could send anything"
        assert stdin, "or there would be no input"
        assert timeout == 0, "or it would end after a minute"
        program = await self._disk.run(["/bin/bash", "-l", "-c", cmd])
        return bound_to(self.machine, AsyncCommandHandle)[0](self._disk, program, on_stdout)


class AsyncCommandHandle(Watched):
    sdk_path = "e2b.sandbox_async.commands.command_handle:AsyncCommandHandle"

    def __init__(self, disk: SandboxOnDisk, program: Program, on_stdout: Any) -> None:
        self._disk = disk
        self._program = program
        self._on_stdout = on_stdout
        self._events = asyncio.create_task(self._handle_events())

    async def _handle_events(self) -> int:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        async for data in self._program.output():
            if text := decoder.decode(data):
                told = self._on_stdout(text)
                if inspect.isawaitable(told):
                    await told
        if not self._disk.is_running:
            raise SandboxNotRunningException(
                f"The sandbox was not found: {self._disk.id} was killed or reached its timeout"
            )
        if self.machine.faults.get("output"):
            raise self.machine.faults["output"].pop(0)
        return await self._program.status()

    @sdk_call("e2b.sandbox_async.commands.command_handle:AsyncCommandHandle.wait")
    async def wait(self) -> Any:
        if (status := await self._events) != 0:
            raise CommandExitException(status)
        return None

    @sdk_call("e2b.sandbox_async.commands.command_handle:AsyncCommandHandle.send_stdin")
    async def send_stdin(self, data: Any, request_timeout: float | None = None) -> None:
        if not self._disk.is_running:
            raise SandboxNotRunningException("The sandbox was not found")
        await self._program.write(data.encode() if isinstance(data, str) else data)


def modules(machine: Machine) -> dict[str, ModuleType]:
    """What `import e2b` finds."""
    (sandbox,) = bound_to(machine, AsyncSandbox)
    return {"e2b": fake_module("e2b", AsyncSandbox=sandbox)}
