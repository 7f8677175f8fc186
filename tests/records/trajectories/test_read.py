"""Logs are read in pieces, whatever became of who wrote them."""

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from rlm.errors import ConfigError
from rlm.events import Event, RunStarted, StepStarted
from rlm.logger import encoded
from rlm.records.trajectories import Trajectory, decoding, open_trajectory
from rlm.records.trajectories import index as index_module
from rlm.records.trajectories.decoding import Skipped, lines_of
from rlm.records.trajectories.sources import QUIET_SECONDS
from tests.records.trajectories.samples import (
    ended,
    one_run,
    replied,
    scripted_log,
    started,
    written,
)


def types(events: Iterable[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


async def test_logged_events_are_read_back(tmp_path: Path) -> None:
    path = await scripted_log(tmp_path)
    expected = [msgspec.json.decode(line, type=Event) for line in path.read_bytes().splitlines()]
    trajectory = open_trajectory(path)
    assert list(trajectory.events()) == expected
    assert trajectory.skipped.total == 0
    root, child = trajectory.runs()
    assert (root.query, root.status, root.stop_reason) == ("What is it?", "ended", "answer")
    assert (root.answer, root.steps, root.calls, root.attempts) == ("seen", 4, 3, 1)
    assert (child.parent_id, child.depth, child.answer) == (root.run_id, 1, "child seen")
    last = expected[-1]
    assert root.tokens == getattr(last, "usage").total_tokens == 110 * 6  # noqa: B009
    assert root.cost_usd == pytest.approx(0.5 * 6)


async def test_any_step_is_read_by_seeking(tmp_path: Path) -> None:
    trajectory = open_trajectory(await scripted_log(tmp_path))
    every = list(trajectory.events())
    for run in trajectory.runs():
        own = [event for event in every if event.run_id == run.run_id]
        assert list(trajectory.run_events(run.run_id)) == own
        assert trajectory.steps(run.run_id) == sorted({event.step for event in own})
        for step in trajectory.steps(run.run_id):
            expected = [event for event in own if event.step == step]
            assert list(trajectory.step_events(run.run_id, step)) == expected
        assert list(trajectory.step_events(run.run_id, 999)) == []
    with pytest.raises(ConfigError, match="no run 'nobody'"):
        trajectory.run_events("nobody")


def test_adjacent_lines_of_a_step_are_one_span(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", one_run("a", steps=3))
    part = open_trajectory(path)._parts[0]
    for step in range(4):
        assert len(part.ready().spans("a", step)) == 1
    assert len(part.ready().spans("a")) == 1


def test_the_last_attempt_counts_and_finished_children_are_kept(tmp_path: Path) -> None:
    child = one_run("a-1", steps=1, parent_id="a", depth=1)
    lost = one_run("a-2", steps=1, parent_id="a", depth=1)[:2]
    first = [started("a"), StepStarted(run_id="a", step=1), *child, *lost]
    second = [started("a", query="again"), *one_run("a", steps=2)[1:]]
    trajectory = open_trajectory(written(tmp_path / "a.jsonl", [*first, *second]))
    assert types(trajectory.events()) == types([*child, *lost, *second])
    root, kept, killed = trajectory.runs()
    assert (root.query, root.attempts, root.steps, root.calls) == ("again", 2, 2, 2)
    assert (kept.run_id, kept.status, kept.attempts) == ("a-1", "ended", 1)
    assert (killed.run_id, killed.status) == ("a-2", "interrupted")
    assert types(trajectory.step_events("a", 0)) == ["RunStarted"]


def test_garbage_lines_are_skipped_and_counted(tmp_path: Path) -> None:
    run = one_run("a")
    unknown = json.dumps({"type": "sun_rose", "run_id": "a", "where": "east"}).encode() + b"\n"
    deep = b'{"type":"step_started","run_id":"a","x":' + b"[" * 200_000 + b"]" * 200_000 + b"}\n"
    rubbish = [b"\n", b"rubbish\n", b"\xff\xfe\n", b"[1]\n", b'{"type":3,"run_id":"a"}\n', deep]
    wrong = [b'{"type":"step_started","run_id":"a","step":-1}\n', b'{"type":"step_started"}\n']
    path = written(tmp_path / "a.jsonl", [run[0], *rubbish, unknown, *wrong, *run[1:]])
    trajectory = open_trajectory(path)
    assert list(trajectory.events()) == run
    assert trajectory.skipped.counts == {"not an event": 7, "unknown type": 1}
    assert len(trajectory.skipped.first) == 5
    assert "8 lines were skipped: 7 not an event, 1 unknown type" in str(trajectory.skipped)
    list(trajectory.events())
    assert trajectory.skipped.total == 8, "reading again counts nothing twice"


def test_a_field_of_the_wrong_type_is_noticed_when_the_event_is_read(tmp_path: Path) -> None:
    wrong = b'{"type":"cell_started","run_id":"a","cell":"one","code":"1"}\n'
    trajectory = open_trajectory(written(tmp_path / "a.jsonl", [*one_run("a"), wrong]))
    assert trajectory.runs()[0].status == "ended"
    for _ in range(2):
        assert len(list(trajectory.events())) == len(one_run("a"))
        assert trajectory.skipped.counts == {"not an event": 1}


def test_newer_logs_are_read_as_far_as_possible(tmp_path: Path) -> None:
    newer = json.loads(encoded(replied("a", 1)))
    line = json.dumps({**newer, "schema_version": 7, "mood": {"good": True}}).encode() + b"\n"
    trajectory = open_trajectory(written(tmp_path / "a.jsonl", [started("a"), line, ended("a")]))
    assert types(trajectory.events()) == ["RunStarted", "ModelReplied", "RunEnded"]
    assert trajectory.skipped.total == 0
    (notice,) = trajectory.skipped.notices
    assert "schema_version 7" in notice
    assert "update rlm" in notice


def test_a_torn_last_line_is_read_once_complete(tmp_path: Path) -> None:
    run = one_run("a", steps=1)
    last = encoded(run[-1])
    path = written(tmp_path / "a.jsonl", [*run[:-1], last[:40]])
    trajectory = open_trajectory(path)
    assert trajectory.runs()[0].status == "running"
    assert trajectory.skipped.counts == {"torn": 1}
    with path.open("ab") as file:
        file.write(last[40:] + b"\n")
    trajectory.refresh()
    assert trajectory.runs()[0].status == "ended"
    assert trajectory.skipped.total == 0
    assert list(trajectory.events()) == run


def test_refreshing_reads_only_new_lines(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", [started("a"), b"rubbish\n"])
    trajectory = open_trajectory(path)
    assert (trajectory.runs()[0].steps, trajectory.skipped.total) == (0, 1)
    with path.open("ab") as file:
        file.write(b"".join(encoded(event) + b"\n" for event in one_run("a")[1:]))
    trajectory.refresh()
    trajectory.refresh()
    assert (trajectory.runs()[0].steps, trajectory.runs()[0].calls) == (2, 2)
    assert trajectory.skipped.total == 1


def test_an_attempt_after_a_torn_line_is_found(tmp_path: Path) -> None:
    """What an appending writer makes of a file whose last one was killed in a line."""
    torn = encoded(replied("a", 1, text='[{"type":"text"}]'))[:-9]
    path = written(tmp_path / "a.jsonl", [started("a"), torn, *one_run("a")])
    trajectory = open_trajectory(path)
    assert trajectory.runs()[0].attempts == 2
    assert list(trajectory.events()) == list(trajectory.run_events("a"))
    assert types(trajectory.events()) == types(one_run("a"))


def test_lines_that_are_too_long_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    written(path, [b"short\n", b"x" * 5_000 + b"\n", b"last\n", b"y" * 5_000])
    skipped = Skipped()
    monkeypatch.setattr(decoding, "_CHUNK_BYTES", 64)
    with path.open("rb") as file:
        found = list(lines_of(file, skipped, max_bytes=100))
    assert [line.text for line in found] == [b"short\n", b"", b"last\n", b""]
    assert skipped.counts == {"too long": 2}
    whole = path.read_bytes()
    assert [whole[line.start : line.end][:5] for line in found] == [
        *(b"short", b"xxxxx", b"last\n", b"yyyyy")
    ]


@pytest.mark.parametrize(("name", "reason"), [("MAX_RUNS", "runs"), ("MAX_STEPS", "steps")])
def test_the_size_of_an_index_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, reason: str
) -> None:
    monkeypatch.setattr(index_module, name, 3)
    steps = [StepStarted(run_id=f"r{n}", step=n) for n in range(10)]
    trajectory = open_trajectory(written(tmp_path / "a.jsonl", steps))
    assert len(list(trajectory.events())) <= 4
    assert trajectory.skipped.counts == {f"of too many {reason}": 7}


def test_an_unfinished_run_without_a_writer_is_interrupted(tmp_path: Path) -> None:
    child = started("a-1", parent_id="a", depth=1)
    path = written(tmp_path / "a.jsonl", [started("a"), replied("a", 1), child])
    assert [run.status for run in open_trajectory(path).runs()] == ["running", "running"]
    assert open_trajectory(path).runs()[0].tokens == 110
    long_ago = time.time() - QUIET_SECONDS - 1
    os.utime(path, (long_ago, long_ago))
    assert [run.status for run in open_trajectory(path).runs()] == ["interrupted", "interrupted"]


def test_a_child_of_an_ended_run_is_not_running(tmp_path: Path) -> None:
    child = started("a-1", parent_id="a", depth=1)
    path = written(tmp_path / "a.jsonl", [started("a"), child, ended("a")])
    assert [run.status for run in open_trajectory(path).runs()] == ["ended", "interrupted"]


def test_an_unfinished_run_includes_the_usage_of_its_children(tmp_path: Path) -> None:
    child = one_run("a-1", steps=1, parent_id="a", depth=1)
    path = written(tmp_path / "a.jsonl", [started("a"), replied("a", 1), *child])
    root, below = open_trajectory(path).runs()
    assert (root.tokens, below.tokens) == (220, 110)


def test_implausible_costs_are_unknown(tmp_path: Path) -> None:
    line = b'{"type":"model_replied","run_id":"a","usage":{"cost_usd":1e308,"requests":1}}\n'
    path = written(tmp_path / "a.jsonl", [started("a"), line, line, line])
    assert open_trajectory(path).runs()[0].cost_usd is None


def test_opening_a_folder_reads_all_its_logs(tmp_path: Path) -> None:
    for name in ("b", "a"):
        written(tmp_path / f"{name}.jsonl", one_run(name))
    (tmp_path / "notes.txt").write_text("not a log")
    (tmp_path / "folder.jsonl").mkdir()
    trajectory = open_trajectory(tmp_path)
    assert [run.run_id for run in trajectory.runs()] == ["a", "b"]
    assert len(list(trajectory.events())) == 2 * len(one_run("a"))
    assert types(trajectory.step_events("b", 0)) == ["RunStarted"]


def test_an_unreadable_file_in_a_folder_is_reported(tmp_path: Path) -> None:
    written(tmp_path / "a.jsonl", one_run("a"))
    (tmp_path / "b.sqlite").write_bytes(b"SQLite format 3\0 and so on")
    trajectory = open_trajectory(tmp_path)
    assert [run.run_id for run in trajectory.runs()] == ["a"]
    (notice,) = trajectory.skipped.notices
    assert "b.sqlite" in notice


def test_paths_that_cannot_be_opened_are_explained(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing found at"):
        open_trajectory(tmp_path / "absent")
    with pytest.raises(ConfigError, match="no log in"):
        open_trajectory(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="not a file"):
        open_trajectory(tmp_path / "pipe")
    (tmp_path / "empty.jsonl").touch()
    assert open_trajectory(tmp_path / "empty.jsonl").runs() == []


def test_a_deleted_file_is_reported(tmp_path: Path) -> None:
    trajectory = open_trajectory(written(tmp_path / "a.jsonl", one_run("a")))
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(ConfigError, match="can't be read"):
        trajectory.runs()


def journal_of(path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[bytes]) -> Trajectory:
    """A file that looks like a journal, and a reader of journals that knows these lines."""
    path.write_bytes(b"SQLite format 3\0 and so on")
    monkeypatch.setattr(
        "rlm.records.journal.events_of", lambda asked: iter(lines) if asked == path else 1
    )
    return open_trajectory(path)


def test_a_journal_is_read_like_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = one_run("a-1", steps=2, parent_id="a", depth=1)
    first = [started("a"), *child, StepStarted(run_id="a", step=1)]
    lines = [encoded(event) + b"\n" for event in [*first, *one_run("a")]]
    lines.insert(3, b"rubbish\n")
    trajectory = journal_of(tmp_path / "a.sqlite", monkeypatch, lines)
    assert [(run.run_id, run.attempts) for run in trajectory.runs()] == [("a", 2), ("a-1", 1)]
    assert types(trajectory.events()) == types([*child, *one_run("a")])
    assert list(trajectory.run_events("a-1")) == child
    assert types(trajectory.step_events("a-1", 2)) == types(e for e in child if e.step == 2)
    assert trajectory.skipped.counts == {"not an event": 1}


def test_a_file_that_is_not_a_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.sqlite").write_bytes(b"SQLite format 3\0 and so on")
    with pytest.raises(ConfigError):
        open_trajectory(tmp_path / "a.sqlite").runs()


def test_events_may_be_in_any_order(tmp_path: Path) -> None:
    """The head of a log may be lost; a parent may come after its child, or be its own child."""
    strange: list[Event] = [
        StepStarted(run_id="c", parent_id="p", depth=1, step=1),
        started("p", parent_id="c"),
        started("o", parent_id="o"),
    ]
    trajectory = open_trajectory(written(tmp_path / "a.jsonl", strange))
    assert {run.run_id for run in trajectory.runs()} == {"c", "p", "o"}
    assert list(trajectory.events()) == strange
    assert isinstance(next(trajectory.events()), StepStarted)
    assert isinstance(next(trajectory.run_events("p")), RunStarted)
