"""Coverage maps are made once, one at a time, and report their progress."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rlm.viewer.coverage_maps import MAX_KEPT, MAX_WAITING, CoverageMaps, Progress
from rlm.viewer.library import Busy


class Maker:
    """Makes maps as soon as it is allowed to."""

    def __init__(self) -> None:
        self.made = 0
        self.begun = threading.Event()
        self.allowed = threading.Event()

    def __call__(self, progress: Progress) -> dict[str, Any]:
        progress(0.25)
        self.begun.set()
        assert self.allowed.wait(60)
        self.made += 1
        return {"number": self.made}


def test_progress_is_reported_until_the_map_is_complete() -> None:
    maps, maker = CoverageMaps(), Maker()
    assert "mapping" in maps.get("run", 1, maker, 0)
    assert maker.begun.wait(60)
    assert maps.get("run", 1, maker, 0) == {"mapping": {"done": 0.25}}
    maker.allowed.set()
    assert maps.get("run", 1, maker, None) == {"number": 1}
    assert maps.get("run", 1, maker, 0) == {"number": 1}
    assert maker.made == 1


def test_concurrent_requests_get_the_same_map() -> None:
    maps, maker = CoverageMaps(), Maker()
    with ThreadPoolExecutor(5) as threads:
        asked = [threads.submit(maps.get, "run", 1, maker, None) for _ in range(5)]
        maker.allowed.set()
        assert [each.result(60) for each in asked] == 5 * [{"number": 1}]


def test_a_run_that_continued_is_mapped_again_during_an_earlier_mapping() -> None:
    maps, maker = CoverageMaps(), Maker()
    maps.get("run", 1, maker, 0)
    assert maker.begun.wait(60)
    with ThreadPoolExecutor(1) as threads:
        newer = threads.submit(maps.get, "run", 2, maker, None)
        maker.allowed.set()
        assert newer.result(60) == {"number": 2}


def test_a_failure_is_reported_and_mapping_is_retried() -> None:
    maps, maker = CoverageMaps(), Maker()
    maker.allowed.set()

    def fails(progress: Progress) -> dict[str, Any]:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        maps.get("run", 1, fails, None)
    assert maps.get("run", 1, maker, None) == {"number": 1}


def test_the_number_of_waiting_and_kept_maps_is_limited() -> None:
    maps, maker = CoverageMaps(), Maker()
    for number in range(MAX_WAITING):
        maps.get(f"run {number}", 1, maker, 0)
    with pytest.raises(Busy):
        maps.get("one more", 1, maker, 0)
    maker.allowed.set()
    for number in range(MAX_WAITING):
        maps.get(f"run {number}", 1, maker, None)
    maps.get("one more", 1, maker, None)
    assert maker.made == MAX_WAITING + 1
    for number in range(MAX_WAITING - MAX_KEPT + 1, MAX_WAITING):
        maps.get(f"run {number}", 1, maker, None)
    assert maker.made == MAX_WAITING + 1
    maps.get("run 0", 1, maker, None)
    assert maker.made == MAX_WAITING + 2


def test_closing_ends_waiting_requests_and_the_current_mapping() -> None:
    maps, maker, ended = CoverageMaps(), Maker(), threading.Event()

    def make(progress: Progress) -> dict[str, Any]:
        try:
            maker(progress)
            progress(0.5)
            return {"made": "for nobody"}
        except Busy:
            ended.set()
            raise

    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(maps.get, run_id, 1, make, None) for run_id in ("a", "b")]
        assert maker.begun.wait(60)
        maps.close()
        for each in waiting:
            with pytest.raises(Busy, match="closed"):
                each.result(60)
    maker.allowed.set()
    assert ended.wait(60)
    assert maker.made == 1, "what only waited is not begun"
    with pytest.raises(Busy):
        maps.get("c", 1, maker, 0)


def test_a_program_ends_without_waiting_for_a_map() -> None:
    maps, maker = CoverageMaps(), Maker()
    maps.get("run", 1, maker, 0)
    assert maker.begun.wait(60)
    making = [each for each in threading.enumerate() if each.name == "rlm-viewer-coverage"]
    assert making
    assert all(each.daemon for each in making)
    maker.allowed.set()
