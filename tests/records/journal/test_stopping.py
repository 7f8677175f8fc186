"""A run in progress ends when a file beside its journal asks for it, and only then."""

import asyncio
from pathlib import Path

import pytest

from rlm import RLM, ScriptedClient
from rlm.errors import ConfigError
from rlm.messages import Reply, Request
from rlm.records.journal import Archive, Places, request_stop
from rlm.results import RunResult
from tests.fakes import PlanEnvironment, cell


async def stopped(state: Path, archive: Archive) -> RunResult:
    """The result of a run that is stopped while its model keeps it waiting."""
    waiting, asked = asyncio.Event(), asyncio.Event()

    class Slow(ScriptedClient):
        async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
            asked.set()
            await waiting.wait()
            raise AssertionError("nobody lets it go on")

    client = Slow([cell(["final", "done"])])
    async with RLM(client, environment=PlanEnvironment(), journal=state) as rlm:
        task = asyncio.create_task(rlm.aask("Why?", "text"))
        async with asyncio.timeout(60):
            await asked.wait()
        (run,) = archive.places.listed()
        request_stop(run)
        return await task


async def test_a_run_in_progress_is_stopped_by_another_process(tmp_path: Path) -> None:
    archive = Archive(Places(tmp_path / "state"))
    result = await stopped(tmp_path / "state", archive)
    assert result.stop_reason == "cancelled"
    (run,) = archive.places.listed()
    assert archive.summary(run).status == "cancelled"
    assert not run.path.with_suffix(".stop").exists()


async def test_an_old_stop_request_does_not_stop_the_next_execution(tmp_path: Path) -> None:
    state = tmp_path / "state"
    archive = Archive(Places(state))
    result = await stopped(state, archive)
    (run,) = archive.places.listed()
    run.path.with_suffix(".stop").touch()
    client = ScriptedClient([cell(["final", "done"])])
    async with RLM(client, environment=PlanEnvironment(), journal=state) as rlm:
        again = await rlm.aask("Why?", "text", run_id=result.run_id)
    assert again.answer == "done"
    assert not run.path.with_suffix(".stop").exists()


async def test_only_a_run_in_progress_can_be_stopped(tmp_path: Path) -> None:
    state = tmp_path / "state"
    archive = Archive(Places(state))
    await stopped(state, archive)
    (run,) = archive.places.listed()
    with pytest.raises(ConfigError, match="not in progress"):
        request_stop(run)
    run.path.with_suffix(".stop").touch()
    archive.remove(run)
    assert list(archive.places.runs.iterdir()) == []
