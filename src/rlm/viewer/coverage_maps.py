"""Coverage maps, made one at a time in a separate thread; the last few are kept."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

from rlm.errors import RLMError
from rlm.viewer.library import Busy

__all__ = ["CoverageMaps", "Progress"]

MAX_KEPT = 4
MAX_WAITING = 8
CLOSED = "this viewer, or the opened file, is being closed"

Progress = Callable[[float], None]
"""Called with how much is done, from 0 to 1."""


class CoverageMaps:
    """The maps of one library by run. It blocks, and is called from threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._one_at_a_time = threading.Lock()
        self._maps: dict[str, _Map] = {}
        self._is_closed = False

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
        # It may have been started before the run continued.
        return found if one.version == version else self.get(run_id, version, make, wait_seconds)

    def close(self) -> None:
        """Stop making maps, and end every wait for one."""
        with self._lock:
            self._is_closed = True
            for one in self._maps.values():
                one.end(lambda answer: answer.set_exception(Busy(CLOSED)))
            self._maps.clear()

    def _begun(
        self, run_id: str, version: object, make: Callable[[Progress], dict[str, Any]]
    ) -> "_Map":
        with self._lock:
            if self._is_closed:
                raise Busy(CLOSED)
            one = self._maps.get(run_id)
            if one is not None and (not one.answer.done() or one.version == version):
                return one
            self._make_room()
            one = self._maps[run_id] = _Map(version)
        # A map may take minutes: the end of the program must not wait for it.
        threading.Thread(
            target=self._make, args=(run_id, one, make), name="rlm-viewer-coverage", daemon=True
        ).start()
        return one

    def _make(self, run_id: str, one: "_Map", make: Callable[[Progress], dict[str, Any]]) -> None:
        with self._one_at_a_time:
            try:
                one.tell(0.0)
                found = make(one.tell)
            except (OSError, RLMError) as error:
                self._fail(run_id, one, error)
            except BaseException as error:
                self._fail(run_id, one, error)
                raise
            else:
                one.end(lambda answer: answer.set_result(found))

    def _fail(self, run_id: str, one: "_Map", error: BaseException) -> None:
        """Report an error to those who wait; the next request starts a new map."""
        with self._lock:
            if self._maps.get(run_id) is one:
                del self._maps[run_id]
        one.end(lambda answer: answer.set_exception(error))

    def _make_room(self) -> None:
        finished = [run_id for run_id, each in self._maps.items() if each.answer.done()]
        if len(self._maps) - len(finished) >= MAX_WAITING:
            raise Busy("too many coverage maps are being made; try again in a moment")
        for run_id in finished[: max(0, len(finished) - MAX_KEPT + 1)]:
            del self._maps[run_id]


class _Map:
    """One map, and how much of it is done."""

    def __init__(self, version: object) -> None:
        self.version = version
        self.done = 0.0
        self.answer: Future[dict[str, Any]] = Future()

    def tell(self, done: float) -> None:
        """Record how much is done; raise Busy if no request needs the rest."""
        if self.answer.done():
            raise Busy(CLOSED)
        self.done = done

    def end(self, settle: "Callable[[Future[dict[str, Any]]], None]") -> None:
        with suppress(InvalidStateError):  # It has been closed.
            settle(self.answer)
