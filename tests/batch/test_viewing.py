"""The rows of a batch for the viewer: from its table while it runs, or from its answers."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from rlm.batch import BatchFolder
from rlm.batch.outcomes import RowTable
from rlm.batch.viewing import BatchRuns
from rlm.cli._viewing import shelf_of
from rlm.errors import ConfigError
from rlm.testing.scripted import ScriptedClient
from rlm.viewer.library import Library, OneFile
from rlm.viewer.results import Results
from tests.batch.desk import Desk
from tests.viewer.serving import serving


def rows(count: int) -> list[dict[str, Any]]:
    return [
        {"query": f"row {number} ?", "id": f"r{number}", "meta": {"gold": " YES "}}
        for number in range(count)
    ]


async def answered(folder: Path, reply: str = "FINAL(yes)") -> Path:
    desk = Desk(folder, ScriptedClient(rules=[("row ", reply)]))
    desk.write(rows(3))
    await desk.run()
    return desk.out


async def test_answers_are_shown_beside_gold(tmp_path: Path) -> None:
    out = await answered(tmp_path)
    shelf, page = shelf_of(str(out))
    assert isinstance(shelf, BatchRuns)
    assert page == "#/results"
    found = shelf.results()
    assert [each["name"] for each in found["samples"]] == ["r0", "r1", "r2"]
    assert {(each["answer"], each["gold"], each["score"]) for each in found["samples"]} == {
        ("yes", " YES ", 1.0)
    }
    assert found["folders"][0]["live"] is False
    assert (found["figures"][0]["samples"], found["figures"][0]["score"]) == (3, 100.0)


async def test_the_answers_file_is_enough_without_the_state_folder(tmp_path: Path) -> None:
    out = await answered(tmp_path)
    alone = tmp_path / "alone.jsonl"
    alone.write_bytes(out.read_bytes() + b'{"row": 3, "stop_reas')
    assert BatchRuns.is_at(alone)
    assert len(BatchRuns(alone).results()["samples"]) == 3


async def test_a_batch_in_progress_shows_the_answers_so_far(tmp_path: Path) -> None:
    out = tmp_path / "answers.jsonl"
    folder = BatchFolder(out)
    with folder.opened() as table:
        table.put(5, entry({"row": 5, "answer": "later", "stop_reason": "answer"}))
        found = BatchRuns(out).results()
        assert [each["answer"] for each in found["samples"]] == ["later"]
        assert found["folders"][0]["live"] is True
        results = Results(Library(BatchRuns(out)))
        assert len(results.plain()["samples"]) == 1
        assert results.plain() is results.plain(), "it is read again only after a change"


def entry(line: dict[str, Any]) -> Any:
    from rlm.batch.outcomes import Entry
    from rlm.limits import Amount

    return Entry("d", "answered", 1, Amount(), json.dumps(line))


async def test_two_batches_can_be_compared(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    one = await answered(tmp_path / "one")
    other = await answered(tmp_path / "other", "FINAL(no)")
    shelf, page = shelf_of(str(one), str(other))
    assert isinstance(shelf, BatchRuns)
    assert page == "#/results"
    found = shelf.results()
    assert [each["score"] for each in found["figures"]] == [100.0, 0.0]
    assert {each["folder"] for each in found["samples"]} == {0, 1}
    with pytest.raises(ConfigError, match="can't be compared"):
        shelf_of(str(one), str(tmp_path))


def test_rows_that_share_an_id_are_all_shown(tmp_path: Path) -> None:
    out = tmp_path / "answers.jsonl"
    lines = [
        {"row": at, "id": "same", "stop_reason": "answer", "answer": "x" * 5_000} for at in (0, 1)
    ]
    out.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    samples = BatchRuns(out).results()["samples"]
    assert [each["key"] for each in samples] == ["same 1", "same 2"]
    assert len(samples[0]["answer"]) == 1_001


HOSTILE = [
    b"",
    b"[]",
    b"null",
    b"[" * 9_000,
    b'{"row": "x", "stop_reason": "answer"}',
    b'{"row": 1e999, "stop_reason": "answer"}',
    b'{"row": 1, "stop_reason": 7}',
    b'{"row": 1, "stop_reason": "answer", "cost_usd": "free"}',
    b"\xff\xfe\x00",
]


def test_rows_without_an_id_are_named_by_their_line(tmp_path: Path) -> None:
    out = tmp_path / "answers.jsonl"
    lines: list[dict[str, Any]] = [
        {"row": 0, "line": 3},
        {"row": 1, "line": 5, "id": "b"},
        {"row": 2},
    ]
    done = [{**line, "stop_reason": "answer"} for line in lines]
    out.write_text("".join(json.dumps(line) + "\n" for line in done), "utf-8")
    found = BatchRuns(out).results()["samples"]
    assert [each["name"] for each in found] == ["line 3", "b", "row 3"]


@pytest.mark.parametrize("line", HOSTILE)
def test_invalid_lines_are_skipped(tmp_path: Path, line: bytes) -> None:
    out = tmp_path / "answers.jsonl"
    good = b'{"row": 0, "stop_reason": "answer", "answer": {"a": [1]}, "meta": ["x"]}'
    out.write_bytes(good + b"\n" + line + b"\n")
    (sample,) = BatchRuns(out).results()["samples"]
    assert (sample["answer"], sample["gold"], sample["score"]) == ("{'a': [1]}", None, None)
    out.write_bytes(line + b"\n")
    assert not BatchRuns.is_at(out)
    assert isinstance(shelf_of(str(out))[0], OneFile)


def test_a_damaged_table_is_reported_in_the_viewer(tmp_path: Path) -> None:
    out = tmp_path / "answers.jsonl"
    state = BatchFolder(out).path
    state.mkdir()
    (state / "rows.sqlite").write_bytes(b"no database at all" * 100)
    with pytest.raises(ConfigError, match="can't be read"):
        BatchRuns(out).results()
    (state / "rows.sqlite").unlink()
    table = RowTable(state / "rows.sqlite")
    table.close()
    with sqlite3.connect(state / "rows.sqlite") as database:
        database.execute("INSERT INTO rows VALUES (1, 'd', 'answered', 1, 0, '0', x'ff00')")
        database.execute("INSERT INTO facts VALUES ('settings', '[1]')")
    database.close()
    assert BatchRuns(out).results()["samples"] == []


async def test_results_are_served_only_for_batches(tmp_path: Path) -> None:
    (tmp_path / "batch").mkdir()
    out = await answered(tmp_path / "batch")
    async with serving(BatchRuns(out), tmp_path) as client:
        assert (await client.get("/api/viewer"))["has_results"] is True
        assert len((await client.get("/api/results"))["samples"]) == 3
        assert (await client.ask("/api/results", "POST")).status in {403, 404, 405}
    from tests.records.trajectories.samples import one_run, written
    from tests.viewer.serving import log_shelf

    log = written(tmp_path / "a.jsonl", one_run("r"))
    async with serving(log_shelf(log), tmp_path) as client:
        assert (await client.get("/api/viewer"))["has_results"] is False
        assert (await client.ask("/api/results")).status == 404
