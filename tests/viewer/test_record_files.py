"""Files that change while requests read them."""

import asyncio
import threading
from pathlib import Path

import pytest

from rlm.viewer.index import FileIndex
from rlm.viewer.library import Busy, Threads
from rlm.viewer.record_files import RecordFile, Unknown
from tests.records.trajectories.samples import one_run, started, written
from tests.viewer.serving import log_shelf, serving
from tests.viewer.test_live import append


async def test_a_resumed_run_repeats_its_steps(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", one_run("r", 3)[:-1])
    async with serving(log_shelf(path), tmp_path) as client:
        assert (await client.get("/api/runs/r/steps/3"))["total"] > 0
        append(path, started("r"))
        assert await client.get("/api/runs/r/steps/3") == {"events": [], "total": 0}
        append(path, *one_run("r", 1)[1:])
        assert (await client.ask("/api/runs/r/steps/3")).status == 404, "it ended without one"


def test_event_numbers_of_an_earlier_attempt_are_skipped(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", one_run("r", 3)[:-1])
    file = RecordFile(path)
    file.refresh()
    last = len(file.index_of("r").types) - 1
    append(path, started("r"))
    file.refresh()
    assert [number for number, _ in file.events_at("r", [0, last])] == [0]


def test_a_replaced_file_shows_its_old_runs_until_the_new_are_indexed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "a.jsonl", one_run("old", 3))
    file = RecordFile(path)
    file.refresh()
    written(tmp_path / "b.jsonl", one_run("new", 3)).replace(path)
    seen: list[list[str]] = []
    take = FileIndex.take

    def taking(self: FileIndex, place: int, end: int, text: bytes, torn: bool) -> None:
        if threading.current_thread() is threading.main_thread():  # Other viewers may still read.
            seen.append(list(file.forest().nodes))
        take(self, place, end, text, torn)

    monkeypatch.setattr(FileIndex, "take", taking)
    file.refresh()
    assert seen
    assert all(names == ["old"] for names in seen)
    assert list(file.forest().nodes) == ["new"]
    with pytest.raises(Unknown, match="no longer in its file"):
        file.index_of("old")


def test_a_log_rewritten_in_place_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", one_run("old", 1))
    file = RecordFile(path)
    file.refresh()
    path.write_bytes(written(tmp_path / "b.jsonl", one_run("new", 5)).read_bytes())
    assert file.refresh()
    assert list(file.forest().nodes) == ["new"]
    append(path, *one_run("third"))
    file.refresh()
    assert list(file.forest().nodes) == ["new", "third"]


def test_a_run_without_an_id_hides_no_other(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", [*one_run(""), *one_run("normal")])
    file = RecordFile(path)
    file.refresh()
    assert list(file.forest().nodes) == ["normal"]
    assert file.forest().nodes["normal"].root == "normal"
    assert file._index.skipped.counts["no id"] > 0


def test_a_dropped_index_is_rebuilt(tmp_path: Path) -> None:
    file = RecordFile(written(tmp_path / "a.jsonl", one_run("r", 3)))
    file.refresh()
    events = len(file.index_of("r").types)
    file.sleep()
    assert len(file.index_of("r").types) == events


async def test_a_closed_viewer_says_that_it_is_shutting_down() -> None:
    threads, entered, go_on = Threads(), threading.Event(), threading.Event()

    def held() -> None:
        entered.set()
        go_on.wait(60)

    running = [asyncio.create_task(threads.run(held)) for _ in range(10)]
    await asyncio.to_thread(entered.wait, 60)
    threads.close()
    go_on.set()
    ends = await asyncio.gather(*running, return_exceptions=True)
    assert {type(end) for end in ends} == {type(None), Busy}
    with pytest.raises(Busy, match="shutting down"):
        await threads.run(held)
