"""Coverage maps: made one at a time in a thread of their own, and the last few are kept."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from rlm.viewer.library import Busy

__all__ = ["CoverageMaps", "Progress"]

MAX_KEPT = 4
MAX_WAITING = 8

Progress = Callable[[float], None]
"""Told how much is done, from 0 to 1."""


class CoverageMaps:
    """The maps of one library by run. It blocks, and is called from threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._maps: dict[str, _Map] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rlm-viewer-coverage")

    def get(
        self,
        run_id: str,
        version: object,
        make: Callable[[Progress], dict[str, Any]],
        wait_seconds: float | None,
    ) -> dict[str, Any]:
        """Return the map of a run; after `wait_seconds`, how much of it is done."""
        one = self._begun(run_id, version, make)
        try:
            found = one.answer.result(wait_seconds)
        except TimeoutError:
            return {"mapping": {"done": one.done}}
        # It may have been begun before the run went on.
        return found if one.version == version else self.get(run_id, version, make, wait_seconds)

    def _begun(
        self, run_id: str, version: object, make: Callable[[Progress], dict[str, Any]]
    ) -> "_Map":
        with self._lock:
            one = self._maps.get(run_id)
            if one is not None and (not one.answer.done() or one.version == version):
                return one
            self._make_room()
            one = self._maps[run_id] = _Map(version)
            one.answer = self._thread.submit(make, one.tell)
            one.answer.add_done_callback(lambda done: self._forget_failed(run_id, done))
            return one

    def _make_room(self) -> None:
        finished = [run_id for run_id, each in self._maps.items() if each.answer.done()]
        if len(self._maps) - len(finished) >= MAX_WAITING:
            raise Busy("too many coverage maps are being made; try again in a moment")
        for run_id in finished[: max(0, len(finished) - MAX_KEPT + 1)]:
            del self._maps[run_id]

    def _forget_failed(self, run_id: str, done: "Future[dict[str, Any]]") -> None:
        if done.cancelled() or done.exception() is not None:
            self._maps.pop(run_id, None)


class _Map:
    """One map, and how much of it is done."""

    answer: "Future[dict[str, Any]]"

    def __init__(self, version: object) -> None:
        self.version = version
        self.done = 0.0

    def tell(self, done: float) -> None:
        self.done = done
