"""The logger keeps little, writes at once, and never ends a run."""

import errno
import io
import logging
import os
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rlm import logger as logger_module
from rlm.api import RLM
from rlm.errors import ConfigError
from rlm.events import CellOutput, Event, StepStarted
from rlm.limits import Limits
from rlm.logger import RLMLogger
from rlm.records.trajectories import open_trajectory
from rlm.testing.scripted import ScriptedClient
from tests.fakes import PlanEnvironment, cell
from tests.records.trajectories.samples import ended, one_run, replied, scripted_run, started

MANY = 100_000


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_run_over_a_large_context_writes_a_small_log(tmp_path: Path) -> None:
    script = [*(f"```repl\nprint(context[{n}:{n + 300}])\n```" for n in range(4)), "FINAL(done)"]
    logger = RLMLogger(log_dir=tmp_path)
    with RLM(ScriptedClient(script), logger=logger) as rlm:
        result = rlm.ask("What is it?", "0123456789" * 1_000_000)
    assert result.steps == 5
    (path,) = tmp_path.iterdir()
    assert path.stat().st_size <= 100_000


async def test_memory_and_file_contain_the_same_events(tmp_path: Path) -> None:
    both = [RLMLogger(), RLMLogger(log_dir=tmp_path)]
    for logger in both:
        await scripted_run(logger, query="q", text="seen")
    in_memory, on_disk = (logger.get_trajectory() for logger in both)
    assert in_memory is not None
    assert on_disk is not None
    assert len(in_memory["iterations"]) == both[0].iteration_count == both[1].iteration_count == 4
    assert [step["response"] for step in in_memory["iterations"]] == [
        step["response"] for step in on_disk["iterations"]
    ]
    assert in_memory["run_metadata"]["query"] == on_disk["run_metadata"]["query"] == "q"
    assert RLMLogger().get_trajectory() is None
    assert RLMLogger(log_dir=tmp_path).get_trajectory("unknown") is None


def test_every_event_is_written_at_once(tmp_path: Path) -> None:
    logger = RLMLogger(log_dir=tmp_path)
    for count, event in enumerate(one_run("a"), 1):
        logger.record(event)
        assert len(lines_of(tmp_path / "rlm_a.jsonl")) == count


def events_of_a_large_run() -> Iterator[Event]:
    yield started("a")
    for number in range(MANY):
        step = number // 1_000
        if number % 1_000 == 0:
            yield StepStarted(run_id="a", step=step + 1)
        text = f"{number:06} " * 60
        yield CellOutput(
            run_id="a", step=step + 1, cell=1, stream="stdout", text=text, written_chars=500
        )
    yield ended("a", step=MANY // 1_000)


@pytest.mark.heavy
def test_a_run_of_many_events_needs_little_memory(tmp_path: Path) -> None:
    logger = RLMLogger(log_dir=tmp_path)
    path = tmp_path / "rlm_a.jsonl"
    tracemalloc.start()
    try:
        for event in events_of_a_large_run():
            logger.record(event)
        trajectory = open_trajectory(path)
        assert trajectory.runs()[0].steps == 1
        assert sum(1 for _ in trajectory.events()) == MANY + 102
        assert sum(1 for _ in trajectory.step_events("a", 50)) == 1_001
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert path.stat().st_size > 50_000_000
    assert peak < 8_000_000


def test_a_logger_in_memory_keeps_only_what_it_returns(tmp_path: Path) -> None:
    """Child runs are in files; `get_trajectory` has never included them."""
    logger = RLMLogger()
    logger.record(started("a"))
    tracemalloc.start()
    try:
        for number in range(20_000):
            logger.record(replied("a-1", 1, text=f"{number} " * 200, parent_id="a", depth=1))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000


def test_concurrent_runs_are_logged_to_separate_files(tmp_path: Path) -> None:
    logger = RLMLogger(log_dir=tmp_path)
    first = one_run("a", steps=2)
    child = one_run("b-1", steps=1, parent_id="b", depth=1)
    second = [*one_run("b", steps=3)[:3], *child, *one_run("b", steps=3)[3:]]
    for pair in zip(first, second[: len(first)], strict=True):
        for event in pair:
            logger.record(event)
    for event in second[len(first) :]:
        logger.record(event)
    assert files_in(tmp_path) == ["rlm_a.jsonl", "rlm_b.jsonl"]
    assert list(open_trajectory(tmp_path / "rlm_a.jsonl").events()) == first
    assert list(open_trajectory(tmp_path / "rlm_b.jsonl").events()) == second
    for name, steps in (("a", 2), ("b", 3)):
        told = logger.get_trajectory(name)
        assert told is not None
        assert len(told["iterations"]) == steps


def test_lines_written_by_threads_are_not_interleaved(tmp_path: Path) -> None:
    logger = RLMLogger(log_dir=tmp_path)
    ids = [f"r{number}" for number in range(8)]
    gate = threading.Barrier(len(ids))

    def write(run_id: str) -> None:
        gate.wait()
        for event in one_run(run_id, steps=100):
            logger.record(event)

    threads = [threading.Thread(target=write, args=(run_id,)) for run_id in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    trajectory = open_trajectory(tmp_path)
    assert trajectory.skipped.total == 0
    assert [(run.run_id, run.steps, run.calls) for run in trajectory.runs()] == [
        (run_id, 100, 100) for run_id in ids
    ]


def test_threads_of_one_run_share_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []
    is_torn = logger_module._is_torn

    def slowly(path: Path) -> bool:
        opened.append(path)
        time.sleep(0.02)  # Other threads get here meanwhile, unless they must wait.
        return is_torn(path)

    monkeypatch.setattr(logger_module, "_is_torn", slowly)
    logger = RLMLogger(log_dir=tmp_path)
    threads = [
        threading.Thread(target=logger.record, args=(replied("a", number),)) for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert opened == [tmp_path / "rlm_a.jsonl"]
    assert open_trajectory(tmp_path).steps("a") == list(range(8))


def test_memory_of_ended_runs_is_released_when_the_next_begins() -> None:
    logger = RLMLogger()
    for name in ("a", "b"):
        for event in one_run(name):
            logger.record(event)
    assert logger.get_trajectory("a") is None
    told = logger.get_trajectory()
    assert told is not None
    assert told["run_metadata"]["run_id"] == "b"
    assert logger.iteration_count == 2
    logger.record(started("c"))
    assert logger.iteration_count == 0


def test_a_resumed_run_is_appended_after_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "rlm_a.jsonl"
    first = RLMLogger(log_dir=tmp_path)
    for event in one_run("a", steps=3)[:4]:
        first.record(event)
    path.write_bytes(path.read_bytes()[:-20])
    second = RLMLogger(log_dir=tmp_path)
    for event in one_run("a", steps=2):
        second.record(event)
    trajectory = open_trajectory(path)
    assert (trajectory.runs()[0].attempts, trajectory.runs()[0].steps) == (2, 2)
    assert trajectory.skipped.counts == {"not an event": 1}
    told = second.get_trajectory("a")
    assert told is not None
    assert len(told["iterations"]) == second.iteration_count == 2


def test_the_same_run_twice_through_one_logger(tmp_path: Path) -> None:
    for logger in (RLMLogger(), RLMLogger(log_dir=tmp_path)):
        for _ in range(2):
            for event in one_run("a", steps=2):
                logger.record(event)
        told = logger.get_trajectory("a")
        assert told is not None
        assert len(told["iterations"]) == logger.iteration_count == 2
    assert open_trajectory(tmp_path).runs()[0].attempts == 2


def test_an_event_after_the_end_is_ignored(tmp_path: Path) -> None:
    for logger in (RLMLogger(), RLMLogger(log_dir=tmp_path)):
        for event in [*one_run("a"), replied("a", 2, text="late")]:
            logger.record(event)
        told = logger.get_trajectory("a")
        assert told is not None
        assert told["iterations"][-1]["response"] == "reply"


class FullDisk(io.RawIOBase):
    """A file that takes half of its third line, and then nothing more."""

    def __init__(self) -> None:
        self.lines = 0
        self.taken = b""

    def write(self, data: Any) -> int:
        self.lines += 1
        if self.lines > 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = bytes(data)[: 10 if self.lines == 3 else None]
        self.taken += taken
        return len(taken)


async def test_a_full_disk_is_reported_once_and_the_run_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FullDisk()
    logger = RLMLogger(log_dir=tmp_path)
    real_open = Path.open

    def opened(path: Path, mode: str = "r", *rest: Any, **options: Any) -> Any:
        return disk if mode == "ab" else real_open(path, mode, *rest, **options)

    monkeypatch.setattr(Path, "open", opened)
    monkeypatch.setattr(logger_module, "_is_torn", lambda path: False)
    with caplog.at_level(logging.WARNING, "rlm"):
        result = await scripted_run(logger, query="q", text="seen")
    assert result.answer == "seen"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "No space left on device; the run continues" in caplog.text
    assert disk.lines == 4, "nothing is tried again"
    assert disk.taken.count(b"\n") == 2


def test_a_really_full_disk_is_reported(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    (tmp_path / "rlm_a.jsonl").symlink_to("/dev/full")
    logger = RLMLogger(log_dir=tmp_path)
    with caplog.at_level(logging.WARNING, "rlm"):
        for event in one_run("a"):
            logger.record(event)
    assert len(caplog.records) == 1
    assert "No space left" in caplog.text
    assert logger.iteration_count == 2


def test_a_folder_that_disappears_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "logs"
    logger = RLMLogger(log_dir=folder)
    folder.rmdir()
    with caplog.at_level(logging.WARNING, "rlm"):
        for event in one_run("a"):
            logger.record(event)
    assert len(caplog.records) == 1
    assert logger.get_trajectory() is None


def test_an_unwritable_folder_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc")):
        with pytest.raises(ConfigError, match=r"log_dir=.* is not writable: .*; choose a folder"):
            RLMLogger(log_dir=folder)
    assert files_in(tmp_path) == ["file"], "and trying leaves nothing behind"


@pytest.mark.parametrize("name", ["", "a/b", "..", "../x", "/x"])
def test_a_file_name_cannot_be_a_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="file_name"):
        RLMLogger(log_dir=tmp_path, file_name=name)


def test_a_run_id_cannot_lead_outside_the_folder(tmp_path: Path) -> None:
    logger = RLMLogger(log_dir=tmp_path / "logs")
    for run_id in ("../../outside", "/etc/x", "a" * 5_000, "nul\0"):
        for event in one_run(run_id):
            logger.record(event)
        assert logger.get_trajectory(run_id) is not None
    assert files_in(tmp_path) == ["logs"]
    assert len(files_in(tmp_path / "logs")) == 4


def test_a_line_is_one_event(tmp_path: Path) -> None:
    logger = RLMLogger(log_dir=tmp_path)
    events = one_run("a", query="two\nlines \ud800")
    for event in events:
        logger.record(event)
    found = [msgspec.json.decode(line, type=Event) for line in lines_of(tmp_path / "rlm_a.jsonl")]
    assert found[1:] == events[1:]
    assert getattr(found[0], "query") == "two\nlines \ufffd"  # noqa: B009


async def test_a_child_run_is_logged_with_its_parent(tmp_path: Path) -> None:
    logger = RLMLogger(log_dir=tmp_path)
    rules = [("The task is in the variable", cell(["final", "below"]))]
    client = ScriptedClient([cell(["rlm", 1], ["final", "above"])], rules)
    engine = RLM(client, environment=PlanEnvironment(), logger=logger, limits=Limits(max_depth=2))
    result = await engine.aask("q", "c")
    await engine.aclose()
    assert result.answer == "above"
    assert len(files_in(tmp_path)) == 1
    assert [run.depth for run in open_trajectory(tmp_path).runs()] == [0, 1]
