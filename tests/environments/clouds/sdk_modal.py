"""A double of the part of `modal` that is used: 1.6's signatures, and processes of this machine."""

from collections.abc import AsyncIterator, Callable
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

_MAX_BUFFERED_BYTES = 16 << 20
_MAX_ARGUMENT_BYTES = 1 << 16


class Error(Exception):
    pass


class AuthError(Error):
    pass


class InvalidError(Error):
    pass


class NotFoundError(Error):
    pass


class PermissionDeniedError(Error):
    pass


class ResourceExhaustedError(Error):
    pass


class _Aio:
    """A function of Modal's: what is called here is its `aio`."""

    def __init__(self, function: Callable[..., Any], *, static: bool = False) -> None:
        self._function = function
        self._static = static

    def __get__(self, instance: Any, owner: Any) -> Any:
        subject = owner if self._static else instance

        class Bound:
            aio = staticmethod(lambda *args, **kwargs: self._function(subject, *args, **kwargs))

        return Bound


@sdk_call("modal:App.lookup.aio")
async def _lookup(
    kind: Any,
    name: str,
    *,
    client: Any = None,
    environment_name: str | None = None,
    create_if_missing: bool = False,
) -> Any:
    return kind()


class App(Watched):
    sdk_path = "modal:App"

    lookup = _Aio(_lookup, static=True)


class Image(Watched):
    sdk_path = "modal:Image"

    @classmethod
    @sdk_call("modal:Image.from_registry")
    def from_registry(
        cls,
        tag: str,
        secret: Any = None,
        *,
        setup_dockerfile_commands: list[str] = [],  # noqa: B006 - as there
        force_build: bool = False,
        add_python: str | None = None,
        **kwargs: Any,
    ) -> Any:
        return cls()


@sdk_call("modal:Sandbox.create.aio")
async def _create(
    kind: Any,
    *args: str,
    app: Any = None,
    name: str | None = None,
    tags: Any = None,
    image: Any = None,
    env: Any = None,
    secrets: Any = None,
    network_file_systems: Any = {},  # noqa: B006
    timeout: int | None = 300,
    idle_timeout: int | None = None,
    workdir: str | None = None,
    gpu: str | None = None,
    cloud: str | None = None,
    region: Any = None,
    cpu: Any = None,
    memory: Any = None,
    runtime: Any = None,
    block_network: bool = False,
    outbound_cidr_allowlist: Any = None,
    outbound_domain_allowlist: Any = None,
    _experimental_outbound_policy: Any = None,
    inbound_cidr_allowlist: Any = None,
    volumes: Any = {},  # noqa: B006
    pty: bool = False,
    encrypted_ports: Any = [],  # noqa: B006
    h2_ports: Any = [],  # noqa: B006
    unencrypted_ports: Any = [],  # noqa: B006
    custom_domain: str | None = None,
    proxy: Any = None,
    include_oidc_identity_token: bool = False,
    readiness_probe: Any = None,
    verbose: bool = False,
    experimental_options: Any = None,
    _experimental_enable_snapshot: bool = False,
    _experimental_persistent: bool = False,
    client: Any = None,
    environment_name: str | None = None,
    pty_info: Any = None,
    cidr_allowlist: Any = None,
) -> Any:
    if memory is not None and not isinstance(memory, int | tuple):
        raise TypeError("memory must be a number")
    wishes = {"timeout": timeout, "block_network": block_network, "cpu": cpu, "memory": memory}
    return kind(kind.machine.new_sandbox(**wishes))


class Sandbox(Watched):
    sdk_path = "modal:Sandbox"

    def __init__(self, disk: SandboxOnDisk) -> None:
        self._disk = disk

    @property
    def object_id(self) -> str:
        return self._disk.id

    create = _Aio(_create, static=True)

    @sdk_call("modal:Sandbox.exec.aio")
    async def _exec(
        self,
        *args: str,
        stdout: Any = "PIPE",
        stderr: Any = "PIPE",
        timeout: int | None = None,
        workdir: str | None = None,
        env: Any = None,
        secrets: Any = None,
        text: bool = True,
        bufsize: Any = -1,
        pty: bool = False,
        _pty_info: Any = None,
        pty_info: Any = None,
    ) -> Any:
        assert not text, "text would be decoded strictly"
        if sum(map(len, args)) > _MAX_ARGUMENT_BYTES:
            raise InvalidError("Total length of CMD arguments cannot exceed 65536 bytes")
        kinds = bound_to(self.machine, ContainerProcess, StreamReader, StreamWriter)
        return kinds[0](self._disk, await self._disk.run(args), *kinds[1:])

    exec = _Aio(_exec)

    @sdk_call("modal:Sandbox.poll.aio")
    async def _poll(self) -> int | None:
        return None if self._disk.is_running else 137

    poll = _Aio(_poll)

    @sdk_call("modal:Sandbox.terminate.aio")
    async def _terminate(self, *, wait: bool = False) -> int | None:
        await self._disk.end()
        return None

    terminate = _Aio(_terminate)

    @sdk_call("modal:Sandbox.detach.aio")
    async def _detach(self) -> None:
        return None

    detach = _Aio(_detach)


class ContainerProcess(Watched):
    sdk_path = "modal.container_process:ContainerProcess"

    def __init__(self, disk: SandboxOnDisk, program: Program, reader: Any, writer: Any) -> None:
        self._program = program
        self._stdin = writer(disk, program)
        self._stdout = reader(disk, program)

    @property
    def stdin(self) -> Any:
        return self._stdin

    @property
    def stdout(self) -> Any:
        return self._stdout

    @sdk_call("modal.container_process:ContainerProcess.wait.aio")
    async def _wait(self) -> int:
        return await self._program.status()

    wait = _Aio(_wait)


class StreamWriter(Watched):
    sdk_path = "modal.io_streams:StreamWriter"

    def __init__(self, disk: SandboxOnDisk, program: Program) -> None:
        self._disk = disk
        self._program = program
        self._buffer = bytearray()

    @sdk_call("modal.io_streams:StreamWriter.write")
    def write(self, data: Any) -> None:
        if len(self._buffer) + len(data) > _MAX_BUFFERED_BYTES:
            raise BufferError("Buffer size exceed limit. Call drain to flush the buffer.")
        self._buffer += data

    @sdk_call("modal.io_streams:StreamWriter.drain.aio")
    async def _drain(self) -> None:
        if not self._disk.is_running:
            raise NotFoundError("Task not found")
        data, self._buffer = bytes(self._buffer), bytearray()
        await self._program.write(data)

    drain = _Aio(_drain)


class StreamReader(Watched):
    sdk_path = "modal.io_streams:StreamReader"

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
    """What `import modal` finds."""
    app, image, sandbox = bound_to(machine, App, Image, Sandbox)
    return {"modal": fake_module("modal", App=app, Image=image, Sandbox=sandbox)}
