"""Containers through the Engine API. The package `docker` blocks, so it is called in threads."""

import asyncio
import contextlib
import importlib
import socket
import sys
from typing import Any

from rlm.environments.docker.containers import LABEL, PLACE, Container
from rlm.errors import ConfigError, SessionDied

__all__ = ["ApiEngine", "RunningContainer"]

_READ_BYTES = 1 << 16
_HEADER_BYTES = 8
_OUTPUT = 1
_LOOK_SECONDS = 0.05
_FAREWELL_SECONDS = 1.0
_STOPPED = ("created", "exited", "dead")


class ApiEngine:
    """An engine reached through its API; implements `Engine`."""

    def __init__(self) -> None:
        docker: Any = importlib.import_module("docker")
        self.errors: Any = importlib.import_module("docker.errors")
        try:
            self.client: Any = docker.from_env().api
        except self.errors.DockerException as error:
            raise ConfigError(f"no Docker engine answers: {error}") from error
        is_socket = self.client.base_url.startswith("http+docker://")  # Not TCP, not SSH.
        self.is_local = sys.platform == "linux" and is_socket

    async def run(self, container: Container) -> "RunningContainer":
        """Create and start a container; fetch the image first if it is missing."""
        try:
            try:
                made = await asyncio.to_thread(self._create, container)
            except self.errors.ImageNotFound:
                await asyncio.to_thread(self.client.pull, container.image)
                made = await asyncio.to_thread(self._create, container)
            running = RunningContainer(self, made["Id"])
            if container.attached:
                await asyncio.to_thread(running.attach)
            await asyncio.to_thread(self.client.start, made["Id"])
        except (self.errors.DockerException, OSError) as error:
            reason = getattr(error, "explanation", None) or error
            raise ConfigError(
                f"no container of {container.image} could be started: {reason}"
            ) from error
        return running

    def _create(self, container: Container) -> Any:
        limits = self.client.create_host_config(
            auto_remove=True,
            binds=None if container.folder is None else [f"{container.folder}:{PLACE}:ro"],
            cap_drop=["ALL"],
            log_config={"Type": "none"},
            mem_limit=container.memory_bytes,
            memswap_limit=container.memory_bytes,
            nano_cpus=int(container.cpus * 1e9),
            network_mode=container.network,
            pids_limit=container.max_processes,
            read_only=True,
            runtime=container.runtime,
            security_opt=["no-new-privileges"],
            tmpfs={"/tmp": container.scratch_options},  # noqa: S108 - inside
        )
        return self.client.create_container(
            container.image,
            entrypoint=[container.command[0]],
            command=list(container.command[1:]),
            name=container.name,
            hostname="rlm",
            user=container.user,
            environment=container.environment,
            labels=container.labels,
            stdin_open=container.attached,
            host_config=limits,
            use_config_proxy=False,
        )

    async def has_image(self, image: str) -> bool:
        """Return whether the engine already has the image."""
        try:
            await asyncio.to_thread(self.client.inspect_image, image)
        except self.errors.ImageNotFound:
            return False
        return True

    async def owners(self) -> dict[str, str]:
        """Return our containers and the owner of each."""
        listed = await asyncio.to_thread(self.client.containers, all=True, filters={"label": LABEL})
        return {each["Id"]: each["Labels"].get(LABEL, "") for each in listed}

    async def remove(self, container_id: str) -> None:
        """End and remove a container, if it still exists."""
        try:
            await asyncio.to_thread(self.client.remove_container, container_id, force=True)
        except (self.errors.DockerException, OSError):
            return  # It is gone, or is already being removed.

    async def close(self) -> None:
        """Close the connections to the engine."""
        await asyncio.to_thread(self.client.close)

    async def state_of(self, container_id: str) -> dict[str, Any] | None:
        """Return the state of a container, or None when it is gone."""
        try:
            found = await asyncio.to_thread(self.client.inspect_container, container_id)
        except (self.errors.DockerException, OSError):
            return None
        state: dict[str, Any] = found["State"]
        return state


class RunningContainer:
    """A container that was started through the API; implements `Running`."""

    def __init__(self, engine: ApiEngine, container_id: str) -> None:
        self._engine = engine
        self._id = container_id
        self._line: socket.socket | None = None
        self._keeps_open: Any = None
        self._held = bytearray()
        self._how = "was removed"

    def attach(self) -> None:
        """Attach to its input and output, which are multiplexed."""
        wanted = {"stdin": 1, "stdout": 1, "stream": 1}
        self._keeps_open = self._engine.client.attach_socket(self._id, params=wanted)
        self._line = getattr(self._keeps_open, "_sock", self._keeps_open)
        self._line.setblocking(False)

    def _detach(self) -> None:
        """Close its input. The response to the request holds the socket too."""
        line, self._keeps_open = self._keeps_open, None
        for each in (getattr(line, "_response", None), line):
            if each is not None:
                with contextlib.suppress(OSError, ValueError):  # The other may have closed it.
                    each.close()

    async def send(self, data: bytes) -> None:
        """Write to its input."""
        assert self._line is not None
        try:
            await asyncio.get_running_loop().sock_sendall(self._line, data)
        except OSError as error:
            raise SessionDied("the container no longer reads its input") from error

    async def receive(self) -> bytes:
        """Read from its output; the engine puts a header before every piece."""
        assert self._line is not None
        while True:
            if len(self._held) >= _HEADER_BYTES:
                end = _HEADER_BYTES + int.from_bytes(self._held[4:_HEADER_BYTES], "big")
                if len(self._held) >= end:
                    stream, piece = self._held[0], bytes(self._held[_HEADER_BYTES:end])
                    del self._held[:end]
                    if stream == _OUTPUT and piece:
                        return piece
                    continue
            data = await asyncio.get_running_loop().sock_recv(self._line, _READ_BYTES)
            if not data:
                return b""
            self._held += data

    async def ending(self) -> str:
        """Wait until it has ended."""
        while (state := await self._engine.state_of(self._id)) is not None:
            if state["OOMKilled"]:
                self._how = "ran out of memory"
            elif state["Status"] in _STOPPED and state["FinishedAt"][:4] != "0001":
                self._how = f"ended with status {state['ExitCode']}"
            await asyncio.sleep(_LOOK_SECONDS)
        return self._how

    async def close(self) -> None:
        """End the container; most end on their own when their input is closed."""
        self._detach()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await self.ending()
                return
        await self._engine.remove(self._id)
        await self.ending()
