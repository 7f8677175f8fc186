"""Containers through the `docker` or `podman` command, which can reach every engine."""

import asyncio
import json
import os
import sys
from collections.abc import Sequence

from rlm._util.finding import on_path
from rlm.environments.docker.containers import LABEL, PLACE, Container
from rlm.errors import ConfigError, SessionDied

__all__ = ["CommandEngine", "RunningCommand", "found_command"]

_READ_BYTES = 1 << 16
_MAX_WORDS_BYTES = 2_000
_FAREWELL_SECONDS = 1.0
_REFUSED = 125
"""The exit status of `docker run` if the container could not be started."""
_KILLED = 137


def found_command() -> str | None:
    """Return the command to use, or None if there is none."""
    return next((path for name in ("docker", "podman") if (path := on_path(name))), None)


class CommandEngine:
    """An engine reached through a command; implements `Engine`."""

    def __init__(self, command: str) -> None:
        self._command = command
        address = os.environ.get("DOCKER_HOST") or os.environ.get("CONTAINER_HOST") or "unix://"
        self.is_local = sys.platform == "linux" and address.startswith("unix://")

    async def run(self, container: Container) -> "RunningCommand":
        """Start a container; the command runs as long as the container does."""
        line = asyncio.subprocess.PIPE if container.attached else asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            self._command,
            *_words(container),
            stdin=line,
            stdout=line,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the host to handle.
        )
        return RunningCommand(self, process, container)

    async def has_image(self, image: str) -> bool:
        """Return whether the engine already has the image."""
        if not await self.ask("version", "--format", "{{.Server.Version}}"):
            raise ConfigError(
                f"{self._command} can't reach an engine: start one, or set DOCKER_HOST"
            )
        return bool(await self.ask("image", "inspect", "--format", "{{.Id}}", image))

    async def owners(self) -> dict[str, str]:
        """Return our containers and the owner of each."""
        ids = await self.ask("ps", "--all", "--quiet", "--filter", f"label={LABEL}")
        if not ids.split():
            return {}
        shown = await self.ask(
            "inspect", "--format", "{{.Id}} {{json .Config.Labels}}", *ids.split()
        )
        pairs = (line.partition(" ")[::2] for line in shown.splitlines() if line)
        return {name: json.loads(labels).get(LABEL, "") for name, labels in pairs}

    async def remove(self, container_id: str) -> None:
        """End and remove a container, if it still exists."""
        await self.ask("rm", "--force", container_id)

    async def close(self) -> None:
        """Do nothing: every command has ended."""

    async def ask(self, *words: str) -> str:
        """Return the output of a short command, or an empty text if it fails."""
        process = await asyncio.create_subprocess_exec(
            self._command,
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        printed, _ = await process.communicate()
        return printed.decode("utf-8", "replace") if process.returncode == 0 else ""


def _words(container: Container) -> Sequence[str]:
    words = ["run", "--rm", "--name", container.name, "--log-driver", "none", "--read-only"]
    words += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--hostname", "rlm"]
    words += ["--network", container.network, "--user", container.user]
    words += ["--pids-limit", str(container.max_processes), "--cpus", str(container.cpus)]
    words += ["--memory", str(container.memory_bytes), "--memory-swap", str(container.memory_bytes)]
    words += ["--tmpfs", f"/tmp:{container.scratch_options}"]  # noqa: S108
    words += ["--entrypoint", container.command[0]]
    for name, value in container.labels.items():
        words += ["--label", f"{name}={value}"]
    for name, value in container.environment.items():
        words += ["--env", f"{name}={value}"]
    if container.folder is not None:
        words += ["--volume", f"{container.folder}:{PLACE}:ro"]
    if container.runtime is not None:
        words += ["--runtime", container.runtime]
    if container.attached:
        words += ["--interactive"]
    return [*words, container.image, *container.command[1:]]


class RunningCommand:
    """A `docker run` that lasts as long as its container; implements `Running`."""

    def __init__(
        self, engine: CommandEngine, process: asyncio.subprocess.Process, container: Container
    ) -> None:
        self._engine = engine
        self._process = process
        self._container = container
        self._ended = asyncio.get_running_loop().create_task(self._until_ended())

    async def send(self, data: bytes) -> None:
        """Write to its input."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except ConnectionError as error:
            raise SessionDied("the container no longer reads its input") from error

    async def receive(self) -> bytes:
        """Read from its output."""
        assert self._process.stdout is not None
        return await self._process.stdout.read(_READ_BYTES)

    async def ending(self) -> str:
        """Wait until it has ended; raise ConfigError if it never started."""
        status, said = await asyncio.shield(self._ended)
        if status == _REFUSED:
            raise ConfigError(f"no container of {self._container.image} could be started: {said}")
        if status == _KILLED:
            limit = self._container.memory_bytes
            return f"was killed, perhaps for using more than its {limit:,} bytes of memory"
        return f"ended with status {status}" + (f": {said}" if said else "")

    async def close(self) -> None:
        """End the container; most end on their own when their input is closed."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        await asyncio.wait([self._ended], timeout=_FAREWELL_SECONDS)
        if not self._ended.done():
            await self._engine.remove(self._container.name)
        await asyncio.shield(self._ended)
        if self._process.stdout is not None:
            while await self._process.stdout.read(_READ_BYTES):
                pass  # Discard the rest: asyncio releases a pipe only at end of file.

    async def _until_ended(self) -> tuple[int, str]:
        assert self._process.stderr is not None
        said = b""
        while data := await self._process.stderr.read(_READ_BYTES):
            said = (said + data)[-_MAX_WORDS_BYTES:]
        status = await self._process.wait()
        return status, " ".join(said.decode("utf-8", "replace").split())
