"""Runs in progress while the viewer shows them."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rlm.logger import encoded
from rlm.records.trajectories import open_trajectory
from rlm.viewer import live
from tests.records.trajectories.samples import (
    REFERENCE_LOG,
    ended,
    one_run,
    replied,
    started,
    written,
)
from tests.viewer.serving import log_shelf, serving


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(live, "LIST_SECONDS", 0.01)


def append(path: Path, *events: Any) -> None:
    with path.open("ab") as file:
        for event in events:
            file.write(encoded(event) + b"\n")


async def until_end(messages: AsyncIterator[dict[str, str]]) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    async for message in messages:
        if message["event"] == "end":
            return found
        found.append(message)
    raise AssertionError("the stream ended without saying so")


async def test_new_events_come_as_they_are_written(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", [started("r"), replied("r", 1, "one")])
    async with serving(log_shelf(path), tmp_path) as client:
        async with client.stream("/api/runs/r/live") as messages:
            first = json.loads((await anext(messages))["data"])
            assert (first["text"], first["index"]) == ("one", 1)  # the newest there was
            append(path, replied("r", 2, "two"))
            second = json.loads((await anext(messages))["data"])
            assert (second["text"], second["index"]) == ("two", 2)
            append(path, *one_run("r-c", 1, parent_id="r", depth=1), ended("r"))
            rest = await until_end(messages)
            kinds = [json.loads(each["data"])["type"] for each in rest]
            assert kinds[0] == "run_started"
            assert kinds[-1] == "run_ended"
            assert len(kinds) == 7
        assert (await client.get("/api/runs/r"))["run"]["status"] == "ended"


async def test_two_pages_receive_the_same_events(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", [started("r")])
    async with (
        serving(log_shelf(path), tmp_path) as client,
        client.stream("/api/runs/r/live") as one,
        client.stream("/api/runs/r/live") as two,
    ):
        await anext(one), await anext(two)
        append(path, replied("r", 1), ended("r"))
        assert await until_end(one) == await until_end(two)


async def test_an_interrupted_stream_continues_where_it_stopped(tmp_path: Path) -> None:
    events = one_run("r", 5)
    path = written(tmp_path / "a.jsonl", events)
    async with serving(log_shelf(path), tmp_path) as client:
        async with client.stream("/api/runs/r/live?after=-") as messages:
            everything = await until_end(messages)
        assert len(everything) == len(events)
        for at in range(0, len(everything), 3):
            position = everything[at]["id"]
            async with client.stream("/api/runs/r/live", **{"Last-Event-ID": position}) as messages:
                assert await until_end(messages) == everything[at + 1 :]
            async with client.stream(f"/api/runs/r/live?after={position}") as messages:
                assert await until_end(messages) == everything[at + 1 :]


async def test_large_logs_are_streamed_completely_in_portions(tmp_path: Path) -> None:
    events: list[Any] = [
        started("r"),
        *(replied("r", n, "x" * 100) for n in range(1, 1_000)),
        ended("r"),
    ]
    path = written(tmp_path / "a.jsonl", events)
    async with (
        serving(log_shelf(path), tmp_path) as client,
        client.stream("/api/runs/r/live?after=-") as messages,
    ):
        found = await until_end(messages)
    assert [json.loads(each["data"])["index"] for each in found] == list(range(1_001))


async def test_a_reference_log_can_be_streamed_too(tmp_path: Path) -> None:
    trajectory = open_trajectory(REFERENCE_LOG)
    root = trajectory.runs()[0].run_id
    family = [run.run_id for run in trajectory.runs() if run.run_id.startswith(root)]
    total = sum(len(list(trajectory.run_events(run_id))) for run_id in family)
    async with (
        serving(log_shelf(REFERENCE_LOG), tmp_path) as client,
        client.stream(f"/api/runs/{root}/live?after=-") as messages,
    ):
        found = await until_end(messages)
    assert len({each["id"] for each in found}) == len(found) <= total


async def test_an_incomplete_line_is_streamed_once_complete(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", [started("r")])
    whole = encoded(replied("r", 1, "late")) + b"\n"
    async with serving(log_shelf(path), tmp_path) as client:
        async with client.stream("/api/runs/r/live") as messages:
            await anext(messages)
            with path.open("ab", buffering=0) as file:
                file.write(whole[:40])
                await client.get("/api/runs/r")
                file.write(whole[40:])
            assert json.loads((await anext(messages))["data"])["text"] == "late"
        assert (await client.get("/api/runs"))["skipped"]["count"] == 0


async def test_a_restarted_run_is_streamed_from_its_start(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", one_run("r", 2)[:-1])
    async with (
        serving(log_shelf(path), tmp_path) as client,
        client.stream("/api/runs/r/live") as messages,
    ):
        await anext(messages)
        append(path, *one_run("r", 1))
        found = [json.loads(each["data"]) for each in await until_end(messages)]
    assert [each["index"] for each in found] == list(range(6))
    assert found[0]["type"] == "run_started"


async def test_a_replaced_file_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", one_run("r", 5))
    async with serving(log_shelf(path), tmp_path) as client:
        assert len((await client.get("/api/runs/r"))["steps"]) == 6
        written(path, one_run("r", 1))
        assert len((await client.get("/api/runs/r"))["steps"]) == 2


async def test_changes_of_the_list_are_streamed(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    written(logs / "a.jsonl", one_run("a"))
    async with serving(log_shelf(logs), tmp_path) as client:
        await client.get("/api/runs")
        async with client.stream("/api/live") as messages:
            await asyncio.sleep(0.1)
            written(logs / "b.jsonl", one_run("b"))
            assert (await anext(messages))["event"] == "runs"
        assert len((await client.get("/api/runs"))["runs"]) == 2


async def test_files_are_not_checked_while_nobody_watches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "a.jsonl", one_run("r"))
    async with serving(log_shelf(path), tmp_path) as client:
        async with client.stream("/api/live"):
            await client.get("/api/runs")
        looks: list[object] = []
        for _ in range(50):  # The server needs a moment to see that the page is gone.
            monkeypatch.setattr("rlm.viewer.library.stamp_of", looks.append)
            before = len(looks)
            await asyncio.sleep(0.1)
            if len(looks) == before:
                return
    raise AssertionError("the file is still looked at")
