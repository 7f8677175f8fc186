"""The agent and its tools with an environment of Harbor that runs commands in a folder here."""

import asyncio
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, override

import pytest
from harbor.agents.factory import AgentFactory
from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.models.agent.context import AgentContext
from harbor.models.task.config import EnvironmentConfig
from harbor.models.trajectories import Trajectory
from harbor.models.trial.paths import TrialPaths
from recursivelm_harbor import ContainerTools, RlmAgent
from tasks import cell

from rlm.errors import ConfigError, ModelError, ToolError
from rlm.testing.fake_server import FakeServer


class FolderEnvironment(BaseEnvironment):
    """Commands run in a folder; paths in a container are real paths here."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.before_download: list[Callable[[Path], object]] = []
        paths = TrialPaths(trial_dir=folder / "trial")
        super().__init__(folder, "here", "here", paths, EnvironmentConfig())

    @staticmethod
    @override
    def type() -> str:
        return "folder"

    @override
    def _validate_definition(self) -> None:
        pass

    @override
    async def start(self, force_build: bool) -> None: ...

    @override
    async def stop(self, delete: bool) -> None: ...

    @override
    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        pipe: Any = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *("bash", "-c", command), stdout=pipe, stderr=pipe, cwd=cwd or self.folder
        )
        try:
            async with asyncio.timeout(timeout_sec):
                out, err = await process.communicate()
        except BaseException:
            process.kill()
            await process.wait()
            raise
        code = process.returncode or 0
        return ExecResult(stdout=out.decode(), stderr=err.decode(), return_code=code)

    @override
    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        shutil.copy(source_path, target_path)

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None: ...

    @override
    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """As `docker cp` does it: a link stays a link, and a pipe a pipe."""
        for change in self.before_download:
            change(Path(source_path))
        done = await self.exec(f"cp -a {source_path} {target_path}")
        if done.return_code != 0:
            raise RuntimeError(done.stderr)

    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None: ...


@pytest.fixture
def environment(tmp_path: Path) -> FolderEnvironment:
    folder = tmp_path / "container"
    folder.mkdir()
    return FolderEnvironment(folder)


def agent(server: FakeServer, logs: Path, **options: Any) -> RlmAgent:
    logs.mkdir(exist_ok=True)
    variables = {"OPENAI_API_KEY": "fake", "OPENAI_BASE_URL": server.openai_url}
    return RlmAgent(logs, "openai/gpt-5-mini", extra_env=variables, **options)


async def test_tools_run_commands_and_move_files(environment: FolderEnvironment) -> None:
    tools = ContainerTools(environment)
    copies: list[Path] = []
    environment.before_download = [copies.append]
    await tools.write_file("a folder/it's $HOME.txt", "line 'one'\n\ud800")
    assert await tools.read_file("a folder/it's $HOME.txt") == "line 'one'\n?"
    done = await tools.shell("ls; echo no >&2; exit 3")
    assert done == {"stdout": "a folder\n", "stderr": "no\n", "exit_code": 3}
    assert tools.commands == 1
    assert len(copies) == 1
    assert (await tools.shell(f"ls {copies[0]}"))["exit_code"] != 0, "no copy stays"


async def test_a_link_is_resolved_inside_the_container(environment: FolderEnvironment) -> None:
    (environment.folder / "target.txt").write_text("in the container")
    (environment.folder / "link").symlink_to("target.txt")
    tools = ContainerTools(environment)
    assert await tools.read_file("link") == "in the container"
    await tools.write_file("link", "changed")
    assert (environment.folder / "link").is_symlink()
    assert (environment.folder / "target.txt").read_text() == "changed"


def _swap_for_link(copy: Path) -> None:
    copy.unlink()
    copy.symlink_to("/proc/self/environ")


def _swap_for_pipe(copy: Path) -> None:
    copy.unlink()
    os.mkfifo(copy)


def _swap_for_folder(copy: Path) -> None:
    copy.unlink()
    copy.mkdir()


@pytest.mark.parametrize("swap", [_swap_for_link, _swap_for_pipe, _swap_for_folder])
async def test_a_file_swapped_by_the_container_is_not_followed_on_the_host(
    environment: FolderEnvironment, swap: Callable[[Path], object]
) -> None:
    (environment.folder / "a.txt").write_text("text")
    copies: list[Path] = []
    environment.before_download = [swap, copies.append]
    with pytest.raises(ToolError, match=r"a.txt can't be read: "):
        await ContainerTools(environment).read_file("a.txt")
    for copy in copies:
        if copy.is_dir():
            copy.rmdir()


async def test_folders_and_pipes_are_refused_as_files(environment: FolderEnvironment) -> None:
    os.mkfifo(environment.folder / "pipe")
    tools = ContainerTools(environment)
    for path in ("pipe", "/", "."):
        with pytest.raises(ToolError, match="it is not a file"):
            await tools.read_file(path)
    (environment.folder / "trial").mkdir(exist_ok=True)
    with pytest.raises(ToolError, match="trial can't be written"):
        await tools.write_file("trial", "text")


async def test_both_ends_of_a_huge_file_are_read(
    environment: FolderEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recursivelm_harbor.tools.MAX_BYTES", 10)
    (environment.folder / "a").write_text("0123456789")
    (environment.folder / "b").write_text("begin" + "x" * 90 + "e n d")
    tools = ContainerTools(environment)
    assert await tools.read_file("a") == "0123456789"
    with pytest.raises(ToolError, match="changed in the meantime"):
        await tools.read_file("b")  # The line about what is left out is longer than the rest here.
    monkeypatch.setattr("recursivelm_harbor.tools.MAX_BYTES", 40)
    assert await tools.read_file("b") == (
        "begin" + "x" * 15 + "\n… (60 bytes are left out) …\n" + "x" * 15 + "e n d"
    )


async def test_a_program_stays_executable(environment: FolderEnvironment) -> None:
    program = environment.folder / "run.sh"
    program.write_text("exit 1")
    program.chmod(0o755)
    tools = ContainerTools(environment)
    await tools.write_file("run.sh", "exit 7")
    assert (await tools.shell("./run.sh"))["exit_code"] == 7


async def test_a_container_without_a_known_working_folder(environment: FolderEnvironment) -> None:
    (environment.folder / "a.txt").write_text("text")
    tools, real = ContainerTools(environment), environment.exec

    async def broken(*_: Any, **__: Any) -> ExecResult:
        return ExecResult(stdout=None, stderr="gone", return_code=1)

    environment.exec = broken  # type: ignore[method-assign]
    with pytest.raises(ToolError, match="use an absolute path"):
        await tools.read_file("a.txt")
    environment.exec = real  # type: ignore[method-assign]
    assert await tools.read_file("a.txt") == "text"


async def test_wrong_types_are_errors_for_the_model(environment: FolderEnvironment) -> None:
    tools: Any = ContainerTools(environment)
    for wrong, given in (
        (tools.shell, ("true", "5")),
        (tools.shell, (7,)),
        (tools.write_file, ("a", b"bytes")),
        (tools.read_file, (7,)),
    ):
        with pytest.raises(ToolError):
            await wrong(*given)


async def test_lone_surrogates_do_not_fail_a_trial(
    tmp_path: Path, environment: FolderEnvironment
) -> None:
    with FakeServer([cell("print('\\ud800')\nFINAL('done \\ud800')")]) as server:
        context = AgentContext()
        await agent(server, tmp_path / "logs").run("Do \ud800.", environment, context)
    assert "done ?" in context.model_dump_json()
    assert "Do ?" in (tmp_path / "logs" / "trajectory.json").read_text()


async def test_the_trajectory_includes_calls_made_by_cells(
    tmp_path: Path, environment: FolderEnvironment
) -> None:
    with FakeServer([cell("FINAL(llm_query('a') + llm_query('b'))"), "x", "y"]) as server:
        context = AgentContext()
        await agent(server, tmp_path / "logs").run("Ask.", environment, context)
    text = (tmp_path / "logs" / "trajectory.json").read_text()
    totals = Trajectory.model_validate_json(text).final_metrics
    assert totals is not None
    assert totals.total_prompt_tokens == context.n_input_tokens
    assert totals.total_completion_tokens == context.n_output_tokens
    assert totals.total_cost_usd == context.cost_usd


@pytest.mark.parametrize("path", ["missing.txt", "", "a\0b", "/proc/nothing"])
async def test_an_unreadable_file_is_an_error_for_the_model(
    environment: FolderEnvironment, path: str
) -> None:
    with pytest.raises(ToolError):
        await ContainerTools(environment).read_file(path)


async def test_a_command_that_takes_too_long_is_ended(environment: FolderEnvironment) -> None:
    tools = ContainerTools(environment)
    with pytest.raises(ToolError, match="took too long"):
        await tools.shell("sleep 60", timeout_seconds=1)
    with pytest.raises(ToolError, match="1 to 3,600"):
        await tools.shell("true", timeout_seconds=0)


async def test_a_large_file_is_a_variable_and_not_a_prompt(
    tmp_path: Path, environment: FolderEnvironment
) -> None:
    (environment.folder / "big.log").write_text("filler\n" * 200_000 + "needle\n")
    code = "log = read_file('big.log')\nFINAL(str(len(log)) + llm_query('Say ok'))"
    with FakeServer([cell(code), "ok"]) as server:
        context = AgentContext()
        await agent(server, tmp_path / "logs").run("How long is big.log?", environment, context)
    assert context.metadata is not None
    assert context.metadata["answer"] == "1400007ok"
    assert context.metadata["requests"] == server.count == 2
    assert context.n_input_tokens is not None
    assert context.n_input_tokens < 5_000
    assert context.model_usage is not None
    assert list(context.model_usage) == ["openai/gpt-5-mini"]


async def test_usage_is_known_when_the_agent_is_cancelled(
    tmp_path: Path, environment: FolderEnvironment
) -> None:
    replies: list[Any] = [cell("print(shell('echo hi')['stdout'])"), {"behaviour": "never"}]
    with FakeServer(replies) as server:
        context = AgentContext()
        running = asyncio.create_task(
            agent(server, tmp_path / "logs").run("Wait.", environment, context)
        )
        while server.count < 2:
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert context.n_output_tokens
    saved = (tmp_path / "logs" / "trajectory.json").read_text()
    steps = Trajectory.model_validate_json(saved).steps
    assert [step.source for step in steps] == ["user", "agent"]
    assert steps[1].observation is not None
    assert steps[1].observation.results[0].content == "hi\n\n"


async def test_options_set_the_limits(tmp_path: Path, environment: FolderEnvironment) -> None:
    with FakeServer([cell("print(1)"), "I could not."]) as server:
        context = AgentContext()
        await agent(server, tmp_path / "logs", max_steps=1).run("Do it.", environment, context)
    assert context.metadata is not None
    assert context.metadata["limit"] == "steps"
    with pytest.raises(ValueError, match="Unknown option 'max_step'"):
        agent(server, tmp_path / "logs", max_step=1)


async def test_a_failing_model_fails_the_trial(
    tmp_path: Path, environment: FolderEnvironment
) -> None:
    failing = FakeServer([{"status": 401, "error": "no such key"}] * 9)
    with failing as server, pytest.raises(ModelError, match="no such key"):
        await agent(server, tmp_path / "logs").run("Do it.", environment, AgentContext())
    with pytest.raises(ConfigError, match="--model provider/model"):
        await RlmAgent(tmp_path / "logs").run("Do it.", environment, AgentContext())


def test_harbor_can_import_the_agent_by_its_path(tmp_path: Path) -> None:
    found = AgentFactory.create_agent_from_import_path(
        "recursivelm_harbor:RlmAgent", logs_dir=tmp_path, model_name="openai/gpt-5-mini"
    )
    assert isinstance(found, RlmAgent)
    told = found.to_agent_info()
    assert (told.name, told.model_info.name if told.model_info else "") == ("rlm", "gpt-5-mini")
    assert "max_steps" in json.dumps(RlmAgent.options_schema())
