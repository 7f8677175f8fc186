"""The tool that repeats tests on a busy machine: which tests it chooses, and how it counts."""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.under_load import Chosen, busy, waits


def quick() -> None:
    assert 1 + 1 == 2


async def sleeper() -> None:
    await asyncio.sleep(0)


def started() -> Iterator[None]:
    time.monotonic()
    yield


def test_tests_that_wait_are_chosen_by_their_source_and_their_fixtures() -> None:
    assert not waits(quick, [])
    assert waits(sleeper, [])
    assert waits(quick, [started])
    assert not waits(os.wait, [time.sleep]), "what is not ours is not looked at"


class Report:
    def __init__(self, nodeid: str, when: str, failed: bool = False) -> None:
        self.nodeid, self.when, self.failed = nodeid, when, failed
        self.longreprtext = "...\nE   assert 1 == 2\nE   more"


def test_repeated_rounds_of_a_test_are_counted_together(tmp_path: Path) -> None:
    chosen = Chosen(3, tmp_path / "table")
    reports: list[Any] = [
        Report("a.py::one[round0]", "call"),
        Report("a.py::one[round1]", "call", failed=True),
        Report("a.py::one[round2]", "setup", failed=True),
        Report("a.py::two[x-round0]", "call"),
        Report("a.py::two[x-round1]", "call"),
        Report("a.py::two[x-round1]", "teardown"),
    ]
    for each in reports:
        chosen.pytest_runtest_logreport(each)
    chosen.pytest_sessionfinish()
    assert (tmp_path / "table").read_text().splitlines() == [
        "2\t2\ta.py::one\tE assert 1 == 2",
        "0\t2\ta.py::two[x]\t",
    ]


def test_no_load_process_is_left_running() -> None:
    with busy(0):
        pass
    with busy(1):
        pass
