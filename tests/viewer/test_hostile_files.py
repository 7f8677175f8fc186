"""Files that a stranger made: databases without end, numbers without end, and what is no file."""

import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlm.batch import BatchFolder
from rlm.batch.viewing import BatchRuns
from rlm.bench.results import RESULTS, SETTINGS
from rlm.bench.trial_runs import TrialRuns
from rlm.errors import ConfigError
from rlm.records.journal import Journal, database
from tests.records.trajectories.samples import started, tree, written
from tests.viewer.serving import log_shelf, serving

ENDLESS = "with recursive n(x) as (select 1 union all select x + 1 from n)"
COMPUTED = {
    "an endless view": f"create view events as {ENDLESS} select x as number, '' as lines from n",
    "a large view": "create view events as select 1 as number, zeroblob(900000000) as lines",
    "a computed column": """
        create table events (number integer primary key, attempt integer,
            lines blob generated always as (zeroblob(900000000)));
        insert into events (number) values (1)""",
    "another table that is a view": f"alter table old rename to events; create view v as {ENDLESS} "
    "select x from n",
    "a virtual table": "create virtual table events using fts5(number, lines)",
}


def journal_with(path: Path, script: str) -> Path:
    """A journal whose table of events was replaced."""
    journal = Journal(path)
    journal.record(started("r"))
    journal.close()
    connection = sqlite3.connect(path)
    connection.executescript(f"alter table events rename to old; {script}")
    connection.close()
    return path


@pytest.mark.parametrize("script", COMPUTED.values(), ids=COMPUTED.keys())
def test_a_journal_with_computed_events_is_refused(tmp_path: Path, script: str) -> None:
    path = journal_with(tmp_path / "1.sqlite", script)
    with pytest.raises(ConfigError, match="did not write"), database.reading(path):
        pass


async def test_a_hostile_journal_does_not_affect_the_viewer(tmp_path: Path) -> None:
    journal_with(tmp_path / "hostile.sqlite", COMPUTED["an endless view"])
    written(tmp_path / "a.jsonl", tree())
    async with serving(log_shelf(tmp_path), tmp_path) as client:
        found = await client.get("/api/runs")
        assert [row["run_id"] for row in found["runs"]] == ["r"]
        assert "did not write" in found["skipped"]["reasons"][0]
        for _ in range(5):  # More than there are threads.
            assert (await client.ask("/api/runs/unknown")).status == 404


@pytest.mark.parametrize(
    "script",
    [
        f"create view rows as {ENDLESS} select x as number, '' as outcome from n",
        "create table rows (number integer primary key, outcome as (zeroblob(900000000)))",
    ],
)
async def test_an_endless_batch_table_is_refused(tmp_path: Path, script: str) -> None:
    out = tmp_path / "answers.jsonl"
    out.write_text("", "utf-8")
    table = BatchFolder(out).path / "rows.sqlite"
    table.parent.mkdir(parents=True)
    connection = sqlite3.connect(table)
    connection.executescript(f"create table facts (name text, value blob); {script}")
    connection.close()
    async with serving(BatchRuns(out), tmp_path) as client:
        answer = await client.ask("/api/results")
        assert answer.status == 400
        assert "did not write" in answer.json["error"]


@pytest.mark.parametrize("number", ["9" * 400, "9" * 5_000, "-1", "1e308", "1e400"])
async def test_numbers_in_a_batch_are_bounded(tmp_path: Path, number: str) -> None:
    out = tmp_path / "answers.jsonl"
    hostile = f'{{"row": 2, "stop_reason": "answer", "tokens": {number}}}'
    out.write_text(f'{{"row": 1, "stop_reason": "answer"}}\n{hostile}\n', "utf-8")
    async with serving(BatchRuns(out), tmp_path) as client:
        found = await client.get("/api/results")
        assert [each["name"] for each in found["samples"]] == ["row 2"]


def trials(folder: Path, **facts: Any) -> TrialRuns:
    line = {"task": "t", "size": 1, "seed": 0, "method": "rlm", "status": "scored", "score": 1.0}
    (folder / RESULTS).write_text(json.dumps({**line, **facts}) + "\n", "utf-8")
    (folder / SETTINGS).write_text('{"tasks": [], "model": "m", "sub_model": "m"}', "utf-8")
    written(folder / "runs" / "good.jsonl", tree())
    return TrialRuns(folder)


@pytest.mark.parametrize("name", ["input_tokens", "calls", "steps"])
async def test_numbers_in_a_benchmark_are_bounded(tmp_path: Path, name: str) -> None:
    (tmp_path / "runs").mkdir()
    async with serving(trials(tmp_path, **{name: 10**400}), tmp_path) as client:
        answer = await client.ask("/api/results")
        assert answer.status == 400
        assert "is not a result" in answer.json["error"]
        assert len((await client.get("/api/runs"))["runs"]) == 1


def link_to_nothing(path: Path) -> None:
    path.symlink_to("nowhere.jsonl")


def link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


NO_FILES = [link_to_nothing, link_to_itself, os.mkfifo, Path.mkdir]


@pytest.mark.parametrize("make", NO_FILES)
async def test_special_files_in_a_folder_are_not_read_as_logs(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    written(folder / "good.jsonl", tree())
    make(folder / "x.jsonl")
    async with serving(log_shelf(folder), tmp_path) as client:
        assert [row["run_id"] for row in (await client.get("/api/runs"))["runs"]] == ["r"]


@pytest.mark.parametrize("make", NO_FILES)
async def test_special_files_in_a_benchmark_are_not_read_as_logs(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    (tmp_path / "runs").mkdir()
    shelf = trials(tmp_path)
    make(tmp_path / "runs" / "x.jsonl")
    assert [path.name for path in shelf.paths()] == ["good.jsonl"]
    async with serving(shelf, tmp_path) as client:
        assert [row["run_id"] for row in (await client.get("/api/runs"))["runs"]] == ["r"]
        assert (await client.ask("/api/runs/unknown")).status == 404


async def test_a_log_replaced_by_a_pipe_does_not_block(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    path = written(folder / "a.jsonl", tree())
    async with serving(log_shelf(folder), tmp_path) as client:
        assert len((await client.get("/api/runs"))["runs"]) == 1
        path.unlink()
        os.mkfifo(path)
        for _ in range(5):  # More than there are threads.
            assert (await client.ask("/api/runs/r/timeline")).status in {400, 404}
        assert (await client.get("/api/viewer"))["live"] is True
