"""The docker environment without an engine: what it asks for, and which containers it removes.

A process stands for the container, so everything but the engine itself is real.
"""

import asyncio
import sys
from typing import Any

import pytest

from rlm.environments.docker import DockerEnvironment, cli, containers
from rlm.environments.docker.containers import PLACE, Container
from rlm.errors import ConfigError, SessionDied
from rlm.testing.conformance import check
from tests.environments.conftest import FakeHost
from tests.environments.remote_sandbox import Program

OPTIONS: dict[str, Any] = {"seed": 0, "tools": [], "cell_memory_bytes": 100 << 20}


class ProcessEngine:
    """Runs "containers" as processes of this machine; implements `Engine`."""

    is_local = True

    def __init__(self) -> None:
        self.asked_for: list[Container] = []
        self.running: list[Program] = []
        self.left: dict[str, str] = {}
        self.removed: list[str] = []
        self.mounts = True

    async def run(self, container: Container) -> Program:
        self.asked_for.append(container)
        folder = container.folder if self.mounts else "/nowhere"
        words = [word.replace(PLACE, str(folder)) for word in container.command]
        program = await Program.started(words, "/")
        self.running.append(program)
        return program

    async def has_image(self, image: str) -> bool:
        return False

    async def owners(self) -> dict[str, str]:
        return self.left

    async def remove(self, container_id: str) -> None:
        self.removed.append(container_id)

    async def close(self) -> None:
        return None


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> ProcessEngine:
    made = ProcessEngine()
    monkeypatch.setattr("rlm.environments.docker._engine_of", lambda kind: made)
    return made


@pytest.mark.heavy
@pytest.mark.parametrize("stream", ["socket", "stdio"])
async def test_both_ways_conform(engine: ProcessEngine, stream: Any) -> None:
    environment = DockerEnvironment(python=sys.executable, stream=stream)
    report = await check(environment, only="calls: ")
    await environment.close()
    assert report.rows
    assert not report.bad
    assert all(each.process.returncode is not None for each in engine.running)


async def test_a_container_is_started_with_every_restriction(engine: ProcessEngine) -> None:
    environment = DockerEnvironment(python=sys.executable, image="an-image", max_threads=100)
    await environment.open(FakeHost(), OPTIONS)
    await environment.close()
    (container,) = engine.asked_for
    words = " ".join(cli._words(container))
    for wanted in (
        "--rm",
        "--read-only",
        "--network none",
        "--cap-drop ALL",
        "--security-opt no-new-privileges",
        "--user 65534:65534",
        "--pids-limit 108",
        f"--memory {712 << 20} --memory-swap {712 << 20}",
        "--cpus 1.0",
        "noexec,nosuid,nodev",
        "--log-driver none",
        "an-image",
    ):
        assert wanted in words
    assert "--publish" not in words
    assert "--privileged" not in words


async def test_without_a_shared_socket_a_container_is_reached_through_its_streams(
    engine: ProcessEngine,
) -> None:
    engine.mounts = False
    environment = DockerEnvironment(python=sys.executable)
    for _ in range(2):
        session = await environment.open(FakeHost(), OPTIONS)
        assert (await session.execute("1 + 1", timeout_seconds=30)).stdout == "2\n"
    await environment.close()
    ways = [container.attached for container in engine.asked_for]
    assert ways == [False, True, True]  # The second session knows.


async def test_an_unavailable_socket_is_reported(engine: ProcessEngine) -> None:
    engine.mounts = False
    environment = DockerEnvironment(python=sys.executable, stream="socket")
    with pytest.raises(SessionDied, match="could not reach this process"):
        await environment.open(FakeHost(), OPTIONS)


async def test_a_container_that_ends_is_reported_in_the_engines_words(
    engine: ProcessEngine,
) -> None:
    environment = DockerEnvironment(python=sys.executable)
    session = await environment.open(FakeHost(), OPTIONS)
    cell = asyncio.create_task(session.execute("import time; time.sleep(60)", timeout_seconds=90))
    await asyncio.sleep(0.1)
    engine.running[0].process.kill()
    with pytest.raises(SessionDied, match="the container ended with status -9"):
        await cell
    await environment.close()


async def test_a_missing_image_is_announced_before_it_is_fetched(engine: ProcessEngine) -> None:
    assert "not here yet" in (await DockerEnvironment().not_ready() or "")
    assert engine.asked_for == []


async def test_the_reaper_identifies_owners_by_more_than_the_process_id(
    engine: ProcessEngine,
) -> None:
    me = containers.owner()
    machine, boot, pid, started = me.split()
    engine.left = {
        "mine": me,
        "another with my number": f"{machine} {boot} {pid} {int(started) - 1}",
        "before the last boot": f"{machine} another-boot {pid} {started}",
        "of another machine": f"another {boot} {pid} 1",
        "nonsense": "a b c",
        "empty": "",
    }
    environment = DockerEnvironment(python=sys.executable)
    await environment.open(FakeHost(), OPTIONS)
    await environment.close()
    assert sorted(engine.removed) == ["another with my number", "before the last boot"]


def test_without_docker_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("rlm.environments.docker._has_package", lambda: False)
    assert "install Docker or Podman" in (DockerEnvironment.problem() or "")
    assert cli.found_command() is None


async def test_an_engine_that_refuses_is_a_config_error(tmp_path: Any) -> None:
    command = tmp_path / "docker"
    command.write_text("#!/bin/sh\necho 'the daemon says no' >&2\nexit 125\n")
    command.chmod(0o755)
    running = await cli.CommandEngine(str(command)).run(
        Container(
            name="x",
            image="an-image",
            command=("python3",),
            labels={},
            environment={},
            user="1",
            memory_bytes=1,
            cpus=1,
            max_processes=1,
            scratch_bytes=1,
        )
    )
    with pytest.raises(ConfigError, match="of an-image could be started: the daemon says no"):
        await running.ending()
    await running.close()
