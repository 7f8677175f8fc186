"""A double of the part of `daytona` that is used: 0.226's signatures, and processes of here.

Input goes line by line through a named pipe that the shell has to make first; output is tailed
from a log in pieces of a kilobyte, the last one padded: so the daemon in its sandboxes does it.
"""

import codecs
from types import ModuleType
from typing import Any

from tests.environments.clouds.machine import (
    Answer,
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

CLIENT = "daytona:AsyncDaytona"
PROCESS = "daytona._async.process:AsyncProcess"
_PIECE_BYTES = 1_024
_TOO_EARLY = "Failed to send session command input: failed to open input pipe: no such file"


class DaytonaError(Exception):
    pass


class DaytonaAuthenticationError(DaytonaError):
    pass


class DaytonaForbiddenError(DaytonaError):
    pass


class DaytonaNotFoundError(DaytonaError):
    pass


class DaytonaInternalServerError(DaytonaError):
    pass


class DaytonaTimeoutError(DaytonaError):
    sandbox_id: str | None = None


class CreateSandboxFromSnapshotParams(Model):
    sdk_path = "daytona:CreateSandboxFromSnapshotParams"


class CreateSandboxFromImageParams(Model):
    sdk_path = "daytona:CreateSandboxFromImageParams"


class DaytonaConfig(Model):
    sdk_path = "daytona:DaytonaConfig"


class Resources(Model):
    sdk_path = "daytona:Resources"


class SessionExecuteRequest(Model):
    sdk_path = "daytona:SessionExecuteRequest"


class SessionExecuteResponse(Answer):
    sdk_path = "daytona:SessionExecuteResponse"


class Command(Answer):
    sdk_path = "daytona_toolbox_api_client_async:Command"


class AsyncDaytona(Watched):
    sdk_path = CLIENT

    def __init__(self, config: Any = None) -> None:
        self.machine.note(
            CLIENT, AsyncDaytona.__init__, (), {} if config is None else {"config": config}
        )
        self.machine.open_clients += 1
        self._is_open = True

    @sdk_call(f"{CLIENT}.create")
    async def create(
        self, params: Any = None, *, timeout: float = 60, on_snapshot_create_logs: Any = None
    ) -> Any:
        disk = self.machine.new_sandbox(**params._fields)
        if self.machine.faults.get("too slow"):
            error = self.machine.faults["too slow"].pop(0)
            setattr(error, "sandbox_id", disk.id)  # noqa: B010
            raise error
        return bound_to(self.machine, AsyncSandbox)[0](disk)

    @sdk_call(f"{CLIENT}.get")
    async def get(self, sandbox_id_or_name: str, request_timeout: float | None = None) -> Any:
        return bound_to(self.machine, AsyncSandbox)[0](self.machine.sandboxes[sandbox_id_or_name])

    @sdk_call(f"{CLIENT}.close")
    async def close(self) -> None:
        self.machine.open_clients -= self._is_open
        self._is_open = False


class AsyncSandbox(Watched):
    sdk_path = "daytona:AsyncSandbox"

    def __init__(self, disk: SandboxOnDisk) -> None:
        self._disk = disk
        self._process = bound_to(self.machine, AsyncProcess)[0](disk)

    @property
    def id(self) -> str:
        return self._disk.id

    @property
    def process(self) -> Any:
        return self._process

    @sdk_call("daytona:AsyncSandbox.delete")
    async def delete(self, timeout: float | None = 60, wait: bool = False) -> None:
        if not self._disk.is_running:
            raise DaytonaNotFoundError(f"Failed to remove sandbox: {self._disk.id} not found")
        await self._disk.end()


class AsyncProcess(Watched):
    sdk_path = PROCESS

    def __init__(self, disk: SandboxOnDisk) -> None:
        self._disk = disk
        self._sessions: dict[str, Program | None] = {}
        self._too_early = 2

    @sdk_call(f"{PROCESS}.create_session")
    async def create_session(self, session_id: str, request_timeout: float | None = None) -> None:
        self._sessions[session_id] = None

    @sdk_call(f"{PROCESS}.execute_session_command")
    async def execute_session_command(
        self, session_id: str, req: Any, timeout: int | None = None
    ) -> Any:
        assert session_id in self._sessions
        wishes = req._fields
        assert wishes["run_async"], "or it would wait for the end"
        assert wishes["suppress_input_echo"], "or all input would be output"
        self._sessions[session_id] = await self._disk.run(["/bin/sh", "-c", wishes["command"]])
        return bound_to(self.machine, SessionExecuteResponse)[0](cmd_id="c1")

    @sdk_call(f"{PROCESS}.send_session_command_input")
    async def send_session_command_input(
        self, session_id: str, command_id: str, data: str, request_timeout: float | None = None
    ) -> None:
        if not self._disk.is_running:
            raise DaytonaNotFoundError("Failed to send session command input: no such sandbox")
        if self._too_early:
            self._too_early -= 1
            raise DaytonaInternalServerError(_TOO_EARLY)
        program = self._sessions[session_id]
        assert program is not None
        await program.write(data.encode() if data.endswith("\n") else f"{data}\n".encode())

    @sdk_call(f"{PROCESS}.get_session_command_logs_async")
    async def get_session_command_logs_async(
        self, session_id: str, command_id: str, on_stdout: Any, on_stderr: Any
    ) -> None:
        program = self._sessions[session_id]
        assert program is not None
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        async for data in program.output():
            for at in range(0, len(data), _PIECE_BYTES):
                piece = data[at : at + _PIECE_BYTES]
                await on_stdout(decoder.decode(piece.ljust(_PIECE_BYTES, b"\0")))
        if not self._disk.is_running:
            raise DaytonaError("WebSocket closed unexpectedly (close code 1006)")
        if self.machine.faults.get("output"):
            raise self.machine.faults["output"].pop(0)

    @sdk_call(f"{PROCESS}.get_session_command")
    async def get_session_command(
        self, session_id: str, command_id: str, request_timeout: float | None = None
    ) -> Any:
        if not self._disk.is_running:
            raise DaytonaNotFoundError(f"Failed to get session command: {self._disk.id} not found")
        program = self._sessions[session_id]
        assert program is not None
        return bound_to(self.machine, Command)[0](exit_code=await program.status())


def modules(machine: Machine) -> dict[str, ModuleType]:
    """What `import daytona` finds."""
    kinds = (
        AsyncDaytona,
        CreateSandboxFromImageParams,
        CreateSandboxFromSnapshotParams,
        DaytonaConfig,
        Resources,
        SessionExecuteRequest,
    )
    contents = {each.__name__: each for each in bound_to(machine, *kinds)}
    return {"daytona": fake_module("daytona", **contents)}
