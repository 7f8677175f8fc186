"""A double of the part of `prime_sandboxes` that is used: 0.5's signatures, processes of here."""

from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any

from tests.environments.clouds.machine import (
    Machine,
    Model,
    Program,
    SandboxOnDisk,
    Watched,
    bound_to,
    fake_module,
    sdk_call,
)

__all__ = ["modules"]

CLIENT = "prime_sandboxes:AsyncSandboxClient"
PROCESS = "prime_sandboxes:AsyncSandboxProcess"


class APIError(Exception):
    pass


class UnauthorizedError(APIError):
    pass


class PaymentRequiredError(APIError):
    pass


class SandboxNotRunningError(RuntimeError):
    pass


class CreateSandboxRequest(Model):
    sdk_path = "prime_sandboxes:CreateSandboxRequest"


class Sandbox(Watched):
    sdk_path = "prime_sandboxes:Sandbox"

    def __init__(self, number: str, status: str) -> None:
        self._id = number
        self._status = status

    @property
    def id(self) -> str:
        return self._id

    @property
    def status(self) -> str:
        return self._status

    @property
    def termination_reason(self) -> str | None:
        return None

    @property
    def error_message(self) -> str | None:
        return "out of credit" if self._status != "RUNNING" else None


class AsyncSandboxClient(Watched):
    sdk_path = CLIENT

    def __init__(self, api_key: str | None = None) -> None:
        self.machine.note(CLIENT, type(self), () if api_key is None else (api_key,), {})
        self.machine.open_clients += 1
        self._is_open = True

    @sdk_call(f"{CLIENT}.create")
    async def create(self, request: Any) -> Any:
        disk = self.machine.new_sandbox(**request._fields)
        return bound_to(self.machine, Sandbox)[0](disk.id, "PENDING")

    @sdk_call(f"{CLIENT}.wait_for_creation")
    async def wait_for_creation(
        self,
        sandbox_id: str,
        max_attempts: int = 60,
        stability_checks: int = 1,
        image_build_timeout_seconds: int = 3000,
    ) -> None:
        return None

    @sdk_call(f"{CLIENT}.open_process")
    async def open_process(
        self,
        sandbox_id: str,
        command: str,
        working_dir: str | None = None,
        env: Any = None,
        user: str | None = None,
    ) -> Any:
        disk = self.machine.sandboxes[sandbox_id]
        program = await disk.run(["/bin/bash", "-c", command])
        kinds = bound_to(self.machine, AsyncSandboxProcess, _AsyncProcessStream)
        return kinds[0](disk, program, kinds[1])

    @sdk_call(f"{CLIENT}.get")
    async def get(self, sandbox_id: str) -> Any:
        status = "RUNNING" if sandbox_id in self.machine.sandboxes else "TERMINATED"
        return bound_to(self.machine, Sandbox)[0](sandbox_id, status)

    @sdk_call(f"{CLIENT}.delete")
    async def delete(self, sandbox_id: str) -> Any:
        assert self._is_open, "a closed client can't do anything"
        if sandbox_id in self.machine.sandboxes:
            await self.machine.sandboxes[sandbox_id].end()
        elif self.machine.count("AsyncSandboxClient.delete") > len(self.machine.made):
            raise APIError("HTTP 404: Sandbox not found")
        return {}

    @sdk_call(f"{CLIENT}.aclose")
    async def aclose(self) -> None:
        self.machine.open_clients -= self._is_open
        self._is_open = False


class AsyncSandboxProcess(Watched):
    sdk_path = PROCESS

    def __init__(self, disk: SandboxOnDisk, program: Program, stream: Any) -> None:
        self._disk = disk
        self._program = program
        self._stdout = stream(disk, program)

    @property
    def stdout(self) -> Any:
        return self._stdout

    @sdk_call(f"{PROCESS}.write_stdin")
    async def write_stdin(self, data: bytes) -> None:
        if not self._disk.is_running:
            raise BrokenPipeError("process has exited")
        await self._program.write(data)

    @sdk_call(f"{PROCESS}.wait")
    async def wait(self) -> int:
        return await self._program.status()


class _AsyncProcessStream(Watched):
    sdk_path = "prime_sandboxes.process:_AsyncProcessStream"

    def __init__(self, disk: SandboxOnDisk, program: Program) -> None:
        self._disk = disk
        self._program = program

    def __aiter__(self) -> AsyncIterator[bytes]:
        self.machine.reads.add((self.sdk_path, "__aiter__"))
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[bytes]:
        async for data in self._program.output():
            yield data
        if self.machine.faults.get("output"):
            raise self.machine.faults["output"].pop(0)


def modules(machine: Machine) -> dict[str, ModuleType]:
    """What `import prime_sandboxes` finds."""
    client, request = bound_to(machine, AsyncSandboxClient, CreateSandboxRequest)
    contents = {"AsyncSandboxClient": client, "CreateSandboxRequest": request}
    return {"prime_sandboxes": fake_module("prime_sandboxes", **contents)}
