"""The docker environment with a real engine: both suites, and what happens to containers."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from rlm import RLM
from rlm.environments.docker import DockerEnvironment
from rlm.environments.docker import containers as owned
from rlm.environments.docker.cli import CommandEngine, found_command
from rlm.errors import ConfigError, SessionDied, SessionError
from rlm.logger import RLMLogger
from rlm.testing.attacks import attack
from rlm.testing.conformance import CHECKS, check
from rlm.testing.fake_server import FakeServer
from tests.docker.conftest import IMAGE, containers, docker
from tests.environments.conftest import FakeHost, StoredContext

Maker = Callable[..., DockerEnvironment]
GROUPS = list(dict.fromkeys(each.group for each in CHECKS))
OPTIONS: dict[str, Any] = {"seed": 0, "tools": [], "cell_memory_bytes": 256 << 20}
WAYS = [
    pytest.param({"engine": "cli", "stream": "socket"}, id="cli-socket"),
    pytest.param({"engine": "api", "stream": "stdio"}, id="api-stdio"),
]
MORE_WAYS = [
    pytest.param({"engine": "cli", "stream": "stdio"}, id="cli-stdio"),
    pytest.param({"engine": "api", "stream": "socket"}, id="api-socket"),
]
COPIED = {"a context does not count against a cell's memory"}
"""What is not kept where contexts are copied into the worker."""


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("way", WAYS)
async def test_docker_conforms(made: Maker, way: dict[str, Any], group: str) -> None:
    report = await check(made(**way), only=f"{group}: ")
    bad = [f"{row.name}: {row.detail}" for row in report.bad if row.name not in COPIED]
    assert report.rows
    assert not bad
    assert not [row.name for row in report.rows if row.verdict == "not offered"]


@pytest.mark.parametrize("group", ["calls", "contexts", "recovery"])
@pytest.mark.parametrize("way", MORE_WAYS)
async def test_docker_conforms_in_the_other_ways(
    made: Maker, way: dict[str, Any], group: str
) -> None:
    report = await check(made(**way), only=f"{group}: ")
    assert not [f"{row.name}: {row.detail}" for row in report.bad if row.name not in COPIED]


async def test_no_attack_succeeds(made: Maker) -> None:
    report = await attack(made())
    assert not [f"{row.name}: {row.detail}" for row in report.bad]
    assert report.counts["stopped"] > 150


async def test_without_inner_layers_attacks_stay_inside_the_container(made: Maker) -> None:
    """What the container alone stops; programs and child processes are the cells' own affair."""
    report = await attack(made(hardened=False), only="secrets: ")
    socket_options = {
        "see who writes to the socket (SO_PASSCRED)",
        "get a handle on the host (SO_PEERPIDFD)",
    }
    assert {row.name for row in report.bad} == socket_options, "the layers inside refuse them"


async def test_a_container_has_the_requested_limits(made: Maker) -> None:
    environment = made(cpus=0.5, max_threads=50, memory_bytes=700 << 20)
    await environment.open(FakeHost(), OPTIONS)
    form = (
        "{{.HostConfig.ReadonlyRootfs}} {{.HostConfig.NetworkMode}} {{.HostConfig.CapDrop}} "
        "{{.HostConfig.SecurityOpt}} {{.HostConfig.Memory}} {{.HostConfig.MemorySwap}} "
        "{{.HostConfig.NanoCpus}} {{.HostConfig.PidsLimit}} {{.Config.User}} "
        "{{.HostConfig.Privileged}}"
    )
    shown = docker("inspect", "--format", form, *containers()).strip()
    limits = f"{700 << 20} {700 << 20} 500000000 58 65534:65534 false"
    assert shown == f"true none [ALL] [no-new-privileges] {limits}"


@pytest.mark.parametrize("way", [*WAYS, *MORE_WAYS])
async def test_a_killed_container_is_reported_and_the_next_one_works(
    made: Maker, way: dict[str, Any]
) -> None:
    environment = made(**way)
    session = await environment.open(FakeHost(), OPTIONS)
    cell = asyncio.create_task(session.execute("import time; time.sleep(60)", timeout_seconds=90))
    await asyncio.sleep(0.2)
    docker("kill", *containers())
    with pytest.raises(SessionDied, match=r"was lost: the (container|sandbox)"):
        await cell
    await session.close()
    other = await environment.open(FakeHost(), OPTIONS)
    assert (await other.execute("1 + 1", timeout_seconds=30)).stdout == "2\n"


async def test_a_cell_stuck_in_c_loses_no_variables(made: Maker) -> None:
    """Checkpoints work in a container too."""
    session = await made().open(FakeHost(), OPTIONS)
    await session.execute("kept = 1", timeout_seconds=30)
    await asyncio.sleep(0.5)
    with pytest.raises(SessionError):
        await session.execute("sum(range(10**12))", timeout_seconds=1)
    assert (await session.execute("kept", timeout_seconds=30)).stdout == "1\n"


async def test_a_large_context_is_in_shared_memory(made: Maker) -> None:
    session = await made(memory_bytes=200 << 20).open(FakeHost(), OPTIONS)
    text = "0123456789" * 30_000_000  # More than the container may use.
    await session.load("context", StoredContext("text", text.encode()))
    result = await session.execute("len(context), context[-5:]", timeout_seconds=60)
    assert result.stdout == "(300000000, '56789')\n"


@pytest.mark.parametrize("way", [*WAYS, *MORE_WAYS])
def test_a_killed_host_leaves_no_container(way: dict[str, Any]) -> None:
    program = f"""
import asyncio, os
from rlm.environments.docker import DockerEnvironment
from tests.environments.conftest import FakeHost
async def main():
    python = os.environ["TEST_DOCKER_PYTHON"]
    environment = DockerEnvironment(image={IMAGE!r}, python=python, **{way!r})
    session = await environment.open(FakeHost(), {OPTIONS!r})
    print("open", flush=True)
    await session.execute("while True: pass", timeout_seconds=600)
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == b"open\n"
        assert len(containers()) == 1
        host.send_signal(signal.SIGKILL)
    for _ in range(600):
        if not containers():
            return
        subprocess.run(["sleep", "0.1"], check=True)
    pytest.fail("the container is still there")


async def test_the_reaper_removes_only_containers_of_dead_processes(made: Maker) -> None:
    me = owned.owner()
    machine, boot, pid, started = me.split()
    dead = f"{machine} {boot} {pid} {int(started) - 1}"
    owners = {"dead": dead, "mine": me, "elsewhere": f"other {boot} 1 1"}
    for name, owner in owners.items():
        label = f"rlm.owner={owner}"
        docker("create", "--name", f"rlm-reaped-{name}", "--label", label, IMAGE, "x")
    try:
        command = found_command()
        assert command is not None
        assert await owned.reap(CommandEngine(command)) == 1
        assert containers("name=rlm-reaped-dead") == []
        assert len(containers("name=rlm-reaped")) == 2
    finally:
        for name in owners:
            docker("rm", "--force", f"rlm-reaped-{name}", check=False)


@pytest.mark.skipif(
    not os.environ.get("TEST_DOCKER_OLD_IMAGE"), reason="there is no python3.9 or python3.10 here"
)
async def test_an_older_python_in_the_image_works(made: Maker) -> None:
    environment = made(
        image=os.environ["TEST_DOCKER_OLD_IMAGE"], python=os.environ["TEST_DOCKER_OLD_PYTHON"]
    )
    report = await check(environment, only="calls: ")
    assert not report.bad
    assert (await environment.describe())["python"].startswith(("3.9", "3.10"))


@pytest.mark.parametrize("engine", ["cli", "api"])
async def test_a_missing_image_and_one_without_python_are_reported(
    made: Maker, engine: str
) -> None:
    with pytest.raises((ConfigError, SessionDied), match=r"could not be started|container"):
        await made(engine=engine, python="/no/python").open(FakeHost(), OPTIONS)
    missing = made(engine=engine, image="rlm-test-no-such-image:none")
    assert "is not here yet" in (await missing.not_ready() or "")


def test_a_whole_run_in_docker() -> None:
    options = {"image": IMAGE, "python": os.environ["TEST_DOCKER_PYTHON"]}
    context = "x\n" * 5000 + "The secret number is 42.\n"
    with RLM("offline/extractive", environment="docker", environment_kwargs=options) as rlm:
        result = rlm.ask("What is the secret number?", context)
    assert "42" in str(result.answer)


def test_a_program_for_the_reference_runs_in_containers() -> None:
    """Setup code, tools, calls, a second turn with its variables, and metadata."""
    script = [
        "```repl\nkept = llm_query('Which? ' + context[:5])\nprint(kept, START, add(2, 3))\n```",
        "a note",
        '```repl\nanswer["content"] = kept\nanswer["ready"] = True\n```',
        '```repl\nanswer["content"] = kept + context_1\nanswer["ready"] = True\n```',
    ]
    options = {"image": IMAGE, "python": os.environ["TEST_DOCKER_PYTHON"], "setup_code": "START=7"}
    with (
        FakeServer(script) as server,
        RLM(
            backend="openai",
            backend_kwargs={"model_name": "gpt-4o", "base_url": server.openai_url, "api_key": "x"},
            environment="docker",
            environment_kwargs=options,
            custom_tools={"add": lambda a, b: a + b},
            max_iterations=5,
            persistent=True,
            logger=RLMLogger(),
        ) as rlm,
    ):
        first = rlm.completion("apples and pears", root_prompt="What is it?")
        second = rlm.completion(" again")
        assert (first.response, second.response) == ("a note", "a note again")
        assert rlm.environment_type == "docker"
    assert first.metadata is not None
    rows = first.metadata["iterations"]
    (block,) = rows[0]["code_blocks"]
    assert block["result"]["stdout"] == "a note 7 5\n"
    assert [call["response"] for call in block["result"]["rlm_calls"]] == ["a note"]
    assert block["result"]["locals"]["kept"] == "a note"
    assert containers() == []
