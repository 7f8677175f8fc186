"""Failures of clouds: every one is reported, and no sandbox remains, because those cost money."""

import asyncio
import importlib.util
import logging
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from rlm.environments._clouds import Cloud
from rlm.errors import ConfigError, SessionDied, SessionError
from rlm.protocols import Session
from rlm.testing.conformance.bench import Bench, SuiteHost
from tests.environments.clouds.clouds import CLOUDS, KEY, NAMES, on_double
from tests.environments.clouds.test_clouds_conform import nothing_is_left

FIRST, *OTHERS = NAMES
each_cloud = pytest.mark.parametrize(
    "name", [FIRST, *(pytest.param(each, marks=pytest.mark.heavy) for each in OTHERS)]
)

REFUSALS = {
    "modal": "AuthError",
    "prime": "UnauthorizedError",
    "e2b": "AuthenticationException",
    "daytona": "DaytonaAuthenticationError",
}
QUOTAS = {
    "modal": "ResourceExhaustedError",
    "prime": "APIError",
    "e2b": "RateLimitException",
    "daytona": "DaytonaError",
}
INPUTS = {
    "modal": "StreamWriter.drain.aio",
    "prime": "AsyncSandboxProcess.write_stdin",
    "e2b": "AsyncCommandHandle.send_stdin",
    "daytona": "AsyncProcess.send_session_command_input",
}


def error_of(name: str, kind: dict[str, str], words: str) -> Exception:
    made: Exception = getattr(CLOUDS[name].double, kind[name])(words)
    return made


async def opened(environment: Cloud) -> Session:
    return await environment.open(SuiteHost(), {"seed": 0})


# -- keys and packages -----------------------------------------------------------------------------


@each_cloud
async def test_without_the_sdk_it_says_what_to_install(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: module == "pip" or None)
    environment = CLOUDS[name].environment()
    assert environment.problem() == (
        f"environment={name!r} needs an SDK: pip install 'recursivelm[{name}]'"
    )
    with pytest.raises(ConfigError, match="pip install"):
        await opened(environment)


@each_cloud
async def test_without_a_key_it_says_which_to_set(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with on_double(name) as (environment, machine):
        assert environment.problem() is None
        variable = environment.key_names[0]
        with monkeypatch.context() as patch:
            patch.delenv(variable)
            problem = environment.problem()
            assert problem is not None
            assert variable in problem
            with pytest.raises(ConfigError, match=variable):
                await opened(environment)
        assert not machine.calls, "nothing was started to find that out"


@pytest.mark.parametrize(
    ("name", "file"),
    [("modal", ".modal.toml"), ("prime", ".prime/config.json"), ("daytona", ".env")],
)
def test_a_key_in_the_sdks_own_file_is_accepted(
    name: str, file: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with on_double(name) as (environment, _), monkeypatch.context() as patch:
        patch.delenv(environment.key_names[0])
        assert environment.problem() is not None
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("DAYTONA_API_KEY=x", "utf-8")
        assert environment.problem() is None


@each_cloud
async def test_a_wrong_key_is_a_config_error_that_does_not_tell_it(name: str) -> None:
    with on_double(name) as (environment, machine):
        words = f"key {KEY} is\nnot valid"
        machine.faults[CLOUDS[name].create] = [error_of(name, REFUSALS, words)]
        with pytest.raises(ConfigError) as caught:
            await opened(environment)
        told = str(caught.value)
        assert KEY not in told
        assert f"${environment.key_names[0]} is not valid" in told
        assert environment.key_help in told
        assert caught.value.__suppress_context__
        assert machine.open_clients == 0


CLIENTS = {
    "daytona": "AsyncDaytona",
    "e2b": "AsyncSandbox.create",
    "prime": "AsyncSandboxClient",
}


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_key_may_be_an_option_and_is_not_shown(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    mine = "mine-9876543210"
    with on_double(name, api_key=mine) as (environment, machine), monkeypatch.context() as patch:
        for variable in environment.key_names:
            patch.delenv(variable, raising=False)
        assert environment.problem() is not None
        session = await opened(environment)
        await session.close()
        (made,) = [call for call in machine.calls if call[0].endswith(f":{CLIENTS[name]}")]
        assert mine in repr(
            [getattr(each, "_fields", each) for each in (*made[2], *made[3].values())]
        )
        machine.faults[CLOUDS[name].create] = [
            error_of(name, REFUSALS, f"key {mine} is\nnot valid")
        ]
        with pytest.raises(ConfigError, match="key api_key is not valid") as caught:
            await opened(environment)
        assert mine not in str(caught.value)
        await nothing_is_left(machine)


# -- making and starting ---------------------------------------------------------------------------


@each_cloud
async def test_a_quota_error_is_reported_in_the_providers_words(name: str) -> None:
    with on_double(name) as (environment, machine):
        machine.faults[CLOUDS[name].create] = [error_of(name, QUOTAS, "20 of 20 " * 100)]
        with pytest.raises(
            SessionDied, match=f"{name}: no sandbox could be created: 20 of 20"
        ) as it:
            await opened(environment)
        assert len(str(it.value)) < 600
        assert machine.open_clients == 0
        session = await opened(environment)
        await session.close()
        await nothing_is_left(machine)


@pytest.mark.parametrize(
    ("name", "options"), [("modal", {"memory": "much"}), ("daytona", {"memory": 4})]
)
async def test_impossible_options_are_config_errors(name: str, options: dict[str, Any]) -> None:
    with on_double(name, **options) as (environment, machine):
        with pytest.raises(ConfigError, match=r"does not accept these options: .*memory"):
            await opened(environment)
        assert not machine.made


@each_cloud
async def test_a_sandbox_that_cannot_run_its_worker_is_ended(name: str) -> None:
    with on_double(name) as (environment, machine):
        machine.faults[CLOUDS[name].start] = [RuntimeError("no such runtime")]
        with pytest.raises(SessionDied, match="sb0000 could not run its worker: no such runtime"):
            await opened(environment)
        await nothing_is_left(machine)


@each_cloud
async def test_a_missing_python_is_reported(name: str) -> None:
    with on_double(name) as (environment, machine):
        environment._python = "/bin/sh" if name == "modal" else "/no/python"
        with pytest.raises(SessionDied, match="the sandbox sb0000 exists, but its worker ended"):
            await opened(environment)
        await nothing_is_left(machine)


@each_cloud
async def test_cancelling_while_a_sandbox_is_created_leaves_nothing(name: str) -> None:
    with on_double(name) as (environment, machine):
        create = CLOUDS[name].create
        go_on = machine.hold[create] = asyncio.Event()
        machine.reached[create] = asyncio.Event()
        opening = asyncio.create_task(opened(environment))
        await machine.reached[create].wait()
        opening.cancel()
        await asyncio.sleep(0)
        go_on.set()
        await is_cancelled(opening)
        await nothing_is_left(machine)


@each_cloud
async def test_cancelling_while_a_sandbox_starts_leaves_nothing(name: str) -> None:
    with on_double(name) as (environment, machine):
        start = CLOUDS[name].start
        machine.hold[start] = asyncio.Event()
        machine.reached[start] = asyncio.Event()
        opening = asyncio.create_task(opened(environment))
        await machine.reached[start].wait()
        opening.cancel()
        await is_cancelled(opening)
        await nothing_is_left(machine)


async def is_cancelled(task: Awaitable[object]) -> None:
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_daytona_sandbox_that_times_out_is_ended() -> None:
    with on_double("daytona") as (environment, machine):
        machine.faults["too slow"] = [CLOUDS["daytona"].double.DaytonaTimeoutError("timed out")]
        with pytest.raises(SessionDied, match="timed out"):
            await opened(environment)
        await nothing_is_left(machine)


async def test_a_prime_sandbox_that_never_runs_is_ended() -> None:
    with on_double("prime") as (environment, machine):
        error = CLOUDS["prime"].double.SandboxNotRunningError("did not reach RUNNING")
        machine.faults["AsyncSandboxClient.wait_for_creation"] = [error]
        with pytest.raises(SessionDied, match="did not reach RUNNING"):
            await opened(environment)
        await nothing_is_left(machine)


# -- while a cell runs -----------------------------------------------------------------------------


@each_cloud
async def test_a_sandbox_ended_by_its_provider_is_named_and_the_next_one_works(name: str) -> None:
    with on_double(name) as (environment, machine):
        bench = Bench(environment)
        repl = await bench.open()
        repl.host.hold_until = 2
        cell = asyncio.create_task(repl.run("llm_query('pending')"))
        await repl.host.was_asked.wait()
        await machine.sandboxes["sb0000"].end()
        with pytest.raises(SessionDied, match=r"sandbox.* sb0000") as caught:
            await cell
        assert KEY not in str(caught.value)
        async with bench.opened() as fresh:
            await fresh.lives()
        await environment.close()
        await nothing_is_left(machine)


@each_cloud
async def test_the_death_of_a_worker_is_distinguished_from_that_of_a_sandbox(name: str) -> None:
    with on_double(name) as (environment, machine):
        repl = await Bench(environment).open()
        code = "import os, signal; os.kill(os.getppid(), signal.SIGKILL); os._exit(1)"
        with pytest.raises(SessionError):
            await repl.run(code)
        await environment.close()
        await nothing_is_left(machine)


@each_cloud
async def test_a_lost_output_stream_ends_the_session(name: str) -> None:
    with on_double(name) as (environment, machine):
        session = await opened(environment)
        machine.faults["output"] = [ConnectionResetError("stream reset")]
        for program in machine.sandboxes["sb0000"].programs:
            await program.kill()
        with pytest.raises(SessionDied):
            await session.execute("1", timeout_seconds=30)
        await session.close()
        await nothing_is_left(machine)


@each_cloud
async def test_an_input_failure_ends_the_session_before_the_cell_times_out(name: str) -> None:
    with on_double(name) as (environment, machine):
        session = await opened(environment)
        machine.faults[INPUTS[name]] = [RuntimeError("no route")]
        with pytest.raises(
            SessionDied, match=r"can't be reached: .*sb0000 does not accept input: no route"
        ):
            async with asyncio.timeout(100):
                await session.execute("1", timeout_seconds=10_000)
        await session.close()
        await nothing_is_left(machine)


@each_cloud
async def test_characters_of_every_width_arrive_in_both_directions(name: str) -> None:
    with on_double(name) as (environment, machine):
        machine.cuts_anywhere = True
        repl = await Bench(environment).open()
        text = "aé漢🦊\0\r\n" * 40_000
        await repl.load(text)
        repl.host.reply = lambda prompt: prompt[::-1]
        await repl.shows("context == llm_query(context)[::-1]", "True")
        assert repl.host.asked[0][2] == [text]
        await environment.close()
        await nothing_is_left(machine)


# -- ending ----------------------------------------------------------------------------------------


@each_cloud
async def test_ending_a_sandbox_is_retried_after_a_failure(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with on_double(name) as (environment, machine):
        session = await opened(environment)
        machine.faults[CLOUDS[name].end] = [RuntimeError("502")]
        await asyncio.gather(session.close(), session.close())
        assert machine.count(CLOUDS[name].end) == 2
        assert not caplog.records
        await nothing_is_left(machine)


@each_cloud
async def test_a_sandbox_that_cannot_be_ended_is_named(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with on_double(name) as (environment, machine):
        session = await opened(environment)
        machine.faults[CLOUDS[name].end] = [RuntimeError(f"502 {KEY}"), RuntimeError(f"502 {KEY}")]
        with caplog.at_level(logging.WARNING):
            await session.close()
        (record,) = caplog.records
        assert f"sandbox sb0000 of {name} could not be ended (502 $" in record.getMessage()
        assert KEY not in record.getMessage()
        assert machine.open_clients == 0
        await machine.sandboxes["sb0000"].end()


@each_cloud
async def test_closing_a_pipe_twice_ends_its_sandbox_once(name: str) -> None:
    with on_double(name) as (environment, machine):
        pipe = await environment.start(["sleep", "100"])
        await asyncio.gather(pipe.close(), pipe.close())
        await pipe.close()
        assert machine.count(CLOUDS[name].end) == 1
        await nothing_is_left(machine)


@each_cloud
async def test_closing_the_environment_ends_every_sandbox(name: str) -> None:
    with on_double(name) as (environment, machine):
        await asyncio.gather(opened(environment), opened(environment))
        assert len(machine.sandboxes) == 2
        await environment.close()
        await environment.close()
        assert not machine.sandboxes
        await nothing_is_left(machine)


# -- options ---------------------------------------------------------------------------------------

ASKED_FOR: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "modal": ({"timeout": 3_600, "block_network": True}, {"block_network": False}),
    "prime": ({"timeout_minutes": 60, "network_allowlist": []}, {"network_allowlist": None}),
    "e2b": (
        {
            "timeout": 3_600,
            "allow_internet_access": False,
            "lifecycle": {"on_timeout": "kill"},
        },
        {"allow_internet_access": True},
    ),
    "daytona": (
        {"ttl_minutes": 60, "auto_stop_interval": 30, "ephemeral": True, "network_block_all": True},
        {"network_block_all": False},
    ),
}


@each_cloud
async def test_sandboxes_have_a_lifetime_and_no_network_by_default(name: str) -> None:
    usual, connected = ASKED_FOR[name]
    for options, expected in (({}, usual), ({"network_access": True}, {**usual, **connected})):
        with on_double(name, **options) as (environment, machine):
            await (await opened(environment)).close()
            (made,) = machine.made
            assert {key: made[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("modal", {"app_name": "mine", "timeout": 600, "cpu": 2.0}, {"timeout": 600, "cpu": 2.0}),
        (
            "prime",
            {"name": "mine", "docker_image": "python:3.12", "timeout_minutes": 5},
            {"docker_image": "python:3.12", "timeout_minutes": 5},
        ),
        ("e2b", {"timeout": 300, "metadata": {"team": "a"}}, {"timeout": 300}),
        (
            "daytona",
            {"image": "python:3.12", "cpu": 2, "memory": 4, "disk": 5, "timeout": 600},
            {"image": "python:3.12", "ttl_minutes": 10},
        ),
        ("daytona", {"snapshot": "mine", "target": "eu"}, {"snapshot": "mine", "target": "eu"}),
    ],
)
async def test_options_are_sent_under_the_providers_own_names(
    name: str, options: dict[str, Any], expected: dict[str, Any]
) -> None:
    with on_double(name, **options) as (environment, machine):
        first, second = await asyncio.gather(opened(environment), opened(environment))
        await asyncio.gather(first.close(), second.close())
        one, other = machine.made
        assert {key: one[key] for key in expected} == expected
        if "name" in one:
            assert one["name"] != other["name"]
            assert one["name"].startswith(options.get("name", "rlm-sandbox"))


@each_cloud
async def test_a_sandbox_does_not_see_its_providers_variables(name: str) -> None:
    with on_double(name) as (environment, _):
        repl = await Bench(environment).open()
        await repl.shows("import os\n'PROVIDERS_SECRET' in os.environ", "False")
        await environment.close()
