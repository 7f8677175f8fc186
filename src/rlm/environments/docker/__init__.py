"""`environment="docker"`: each session in its own container, with the local sandbox inside it.

No port is opened, there is no network, and nothing is installed in the image: the worker is sent
over the same connection as everything else. `sessions.py` describes the two kinds.
"""

import asyncio
import importlib.util
import logging
from typing import Any, Literal

from msgspec.structs import replace

from rlm._util.distribution import install_command
from rlm.environments._forked import ForkedSession
from rlm.environments.docker import sessions
from rlm.environments.docker.api import ApiEngine
from rlm.environments.docker.cli import CommandEngine, found_command
from rlm.environments.docker.containers import LABEL, Container, Engine, new_name, owner, reap
from rlm.environments.remote import sandbox_settings
from rlm.errors import ConfigError, SessionDied
from rlm.protocols import BaseEnvironment, Host

__all__ = ["DockerEnvironment"]

_ENVIRONMENT = {"PYTHONHASHSEED": "0", "MALLOC_ARENA_MAX": "2", "HOME": "/tmp"}  # noqa: S108
_BESIDE_CELLS_BYTES = 512 << 20
_WITHOUT_A_LIMIT_BYTES = 4 << 30
_OUR_OWN_PROCESSES = 8
_START_SECONDS = 600.0
"""Long, because an image may have to be fetched."""

_log = logging.getLogger(__name__)


class DockerEnvironment(BaseEnvironment):
    """Opens sessions in Docker or Podman containers.

    `image`: any with Python 3.9 or newer; `python` is its interpreter, and cells may import what is
    installed there. `engine`: "api" (the package `docker`), "cli" (the command `docker` or
    `podman`) or "auto" for the first that is available. `stream`: "socket" if the engine is on this
    machine, "stdio" anywhere. `hardened`: add the layers of `local` inside the container; without
    them, cells may start programs. `memory_bytes`: a limit for the container, by default a little
    over twice what a cell may use. `network`: a network of the engine that cells may use.
    `runtime`: "runsc", for example, for gVisor.
    """

    name = "docker"
    is_sandbox = True

    def __init__(
        self,
        *,
        image: str = "python:3.13-slim",
        python: str = "python3",
        engine: Literal["auto", "api", "cli"] = "auto",
        stream: Literal["auto", "socket", "stdio"] = "auto",
        hardened: bool = True,
        memory_bytes: int | None = None,
        cpus: float = 1.0,
        max_threads: int = 128,
        scratch_bytes: int = 64 << 20,
        user: str = "65534:65534",
        network: str = "none",
        runtime: str | None = None,
    ) -> None:
        self._settings = sandbox_settings(
            hardened=hardened,
            scratch="/tmp",  # noqa: S108 - inside
            scratch_bytes=scratch_bytes,
            max_threads=max_threads,
        )
        self._python = python
        self._engine_kind = engine
        self._stream = stream
        self._memory_bytes = memory_bytes
        self._container = Container(
            name="",
            image=image,
            command=(),
            labels={},
            environment=_ENVIRONMENT,
            user=user,
            memory_bytes=0,
            cpus=cpus,
            max_processes=max_threads + _OUR_OWN_PROCESSES,
            scratch_bytes=scratch_bytes,
            network=network,
            runtime=runtime,
        )
        self._engine: Engine | None = None
        self._has_image = False
        self._starting = asyncio.Lock()
        self._sessions: set[ForkedSession] = set()
        self._report: dict[str, Any] = {}

    @classmethod
    def problem(cls) -> str | None:
        """Return why it can't be used here, without asking an engine."""
        if not _has_package() and found_command() is None:
            return (
                "no docker or podman command found; install Docker or Podman, or, to use an "
                f"engine through its API, {install_command('docker')}"
            )
        return None

    async def not_ready(self) -> str | None:
        """Return what the first session has to wait for; fetch nothing."""
        engine = await self._reached()
        image = self._container.image
        if await engine.has_image(image):
            return None
        return f"the image {image} is not here yet: the first run pulls it, or choose another image"

    async def open(self, host: Host, options: dict[str, Any]) -> ForkedSession:
        """Start a container and wait until its worker is ready."""
        try:
            async with asyncio.timeout(_START_SECONDS):
                engine = await self._reached()
                await self._tell_if_fetching(engine)
                session, self._report = await self._open(engine, host, options)
        except TimeoutError:
            raise SessionDied(f"no container was ready within {_START_SECONDS:g} s") from None
        self._sessions.add(session)
        session.when_closed(self._sessions.discard)
        return session

    async def _tell_if_fetching(self, engine: Engine) -> None:
        """Log once that the image is being fetched, which may take minutes."""
        if not self._has_image:
            self._has_image = True
            if not await engine.has_image(self._container.image):
                _log.warning("pulling the image %s first", self._container.image)

    async def describe(self) -> dict[str, Any]:
        """Return what protects this machine."""
        return {"isolation": f"a container of {self._container.image}", **self._report}

    async def close(self) -> None:
        """Close every session that is still open, and its container."""
        await asyncio.gather(*(session.close() for session in list(self._sessions)))
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.close()

    async def _reached(self) -> Engine:
        """Return the engine, after removing containers left behind by dead processes."""
        async with self._starting:
            if self._engine is None:
                engine = await asyncio.to_thread(_engine_of, self._engine_kind)
                await reap(engine)
                self._engine = engine
            return self._engine

    async def _open(
        self, engine: Engine, host: Host, options: dict[str, Any]
    ) -> tuple[ForkedSession, dict[str, Any]]:
        request = sessions.SessionRequest(
            engine=engine,
            container=self._limited(options),
            python=self._python,
            settings=self._settings,
            host=host,
            options=options,
        )
        if self._stream == "stdio" or (self._stream == "auto" and not engine.is_local):
            return await sessions.open_by_stdio(request)
        try:
            return await sessions.open_by_socket(request)
        except sessions.NotReached as error:
            if self._stream == "socket":
                raise SessionDied(f"the container could not reach this process: {error}") from None
            _log.info(
                "the container can't reach a socket of this process (%s): using stdio instead",
                error,
            )
            self._stream = "stdio"
        return await sessions.open_by_stdio(request)

    def _limited(self, options: dict[str, Any]) -> Container:
        """Return the container of one session."""
        for_cells = options.get("cell_memory_bytes") or _WITHOUT_A_LIMIT_BYTES // 2
        memory_bytes = self._memory_bytes or 2 * for_cells + _BESIDE_CELLS_BYTES
        labels = {LABEL: owner()}
        return replace(self._container, name=new_name(), labels=labels, memory_bytes=memory_bytes)


def _engine_of(kind: str) -> Engine:
    """Return an engine of that kind; "auto" prefers the API, which is a little faster."""
    if kind == "api" or (kind == "auto" and _has_package()):
        return ApiEngine()
    command = found_command()
    if command is None:
        raise ConfigError(DockerEnvironment.problem() or "no docker or podman command found")
    return CommandEngine(command)


def _has_package() -> bool:
    return importlib.util.find_spec("docker") is not None
