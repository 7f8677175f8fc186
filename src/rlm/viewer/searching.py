"""Search over all runs of a viewer: keeps the index up to date in a thread, and answers from it.

Only files whose stamp has changed are read again; if one has only grown, only the new part.
"""

import threading
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from rlm.errors import ConfigError
from rlm.events import CellEnded, CellOutput, CellStarted, Event, RunEnded, RunStarted
from rlm.records.searching import FileTexts, IndexedText, ReadFile, SearchIndex
from rlm.viewer.index import CODES
from rlm.viewer.library import Library
from rlm.viewer.record_files import RecordFile, stamp_of
from rlm.web.responses import without_paths

__all__ = ["Rows", "RunSearch", "texts_of"]

TEXT_CODES = frozenset(
    CODES[name]
    for name in ("run_started", "run_ended", "cell_started", "cell_output", "cell_ended")
)
LOOK_SECONDS = 3.0
MAX_PAUSE_SECONDS = 10.0


def texts_of(event: Event) -> Iterator[tuple[str, int | None, str]]:
    """Yield what is searched in an event: the kind of each text, its cell, and the text."""
    if isinstance(event, RunStarted):
        yield "query", None, event.query
    elif isinstance(event, RunEnded):
        if event.answer is not None:
            yield "answer", None, event.answer
        if event.error is not None:
            yield "error", None, event.error
    elif isinstance(event, CellStarted):
        yield "code", event.cell, event.code
    elif isinstance(event, CellOutput):
        yield "output", event.cell, event.text
    elif isinstance(event, CellEnded) and event.error_message is not None:
        yield "error", event.cell, event.error_message


class Rows(Protocol):
    """Rows of root runs by id, for those that are wanted."""

    def __contains__(self, run_id: object) -> bool: ...

    def __getitem__(self, run_id: str) -> dict[str, Any]: ...

    def fitting(self) -> Collection[str] | None:
        """Return the ids of all that fit a condition; None without one."""


class RunSearch:
    """The search of one library. `start` begins to index; searches use what is indexed so far."""

    def __init__(self, library: Library, path: Path) -> None:
        self._library = library
        self._index = SearchIndex(path)
        self._wanted = threading.Event()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._left = -1
        self._total = 0
        self._seen: dict[str, str] = {}

    def start(self) -> None:
        with self._lock:
            if self._thread is None and not self._ended.is_set():
                self._thread = threading.Thread(
                    target=self._keep_up, name="rlm-viewer-indexing", daemon=True
                )
                self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._wanted.set()
        self._index.close()

    # -- answering ---------------------------------------------------------------------------

    def search(self, query: str, roots: Rows, limit: int, stop: threading.Event) -> dict[str, Any]:
        """Return the newest of these root runs with the words, and the first places in each."""
        self.start()
        self._wanted.set()
        left = self._left  # Before the search, which does not find what is indexed during it.
        found = self._index.search(
            query, most=limit, fits=roots.__contains__, only=roots.fitting(), stop=stop
        )
        answer: dict[str, Any] = {
            "runs": [
                {
                    "run": roots[run.root],
                    "more": run.more,
                    "hits": [_hit(hit) for hit in run.hits],
                }
                for run in found.runs
            ],
            "more": found.more,
        }
        if left:
            answer["indexing"] = {"files": self._total, "left": max(0, left)}
        if self._index.problem is not None:
            answer["problem"] = without_paths(self._index.problem)
        return answer

    # -- keeping up --------------------------------------------------------------------------

    def _keep_up(self) -> None:
        while not self._library.wait_until_read(0.2):
            if self._ended.is_set():
                return
        while not self._ended.is_set():
            self._wanted.clear()
            began = time.monotonic()
            with suppress(ConfigError):  # The index says what is wrong with it.
                self.update()
            self._left = 0
            took = time.monotonic() - began
            self._wanted.wait(LOOK_SECONDS * 20)
            # If checking all files takes long, do it less often.
            self._ended.wait(max(LOOK_SECONDS, min(10 * took, MAX_PAUSE_SECONDS)))

    def update(self) -> None:
        """Bring the index up to date."""
        files = self._library.files()
        stamps = {str(file.path): _stamp(file.path) for file in files}
        if stamps == self._seen and self._index.problem is None:
            self._left = 0
            return
        known = self._index.known()
        gone = [path for path in known if path not in stamps]
        if gone:
            self._index.remove(gone)
        changed = [
            file for file in files if _is_other(known.get(str(file.path)), stamps[str(file.path)])
        ]
        self._total, self._left = len(files), len(changed)
        # The newest last: it gets the highest number.
        self._index.put_all(self._read(reversed(changed), stamps, known))
        self._left = 0
        self._seen = {} if self._ended.is_set() else stamps

    def _read(
        self, files: Iterable[RecordFile], stamps: dict[str, str], known: dict[str, FileTexts]
    ) -> Iterator[ReadFile]:
        for file in files:
            if self._ended.is_set():
                return
            path = str(file.path)
            yield self._texts(file, stamps[path], known.get(path))
            self._left -= 1

    def _texts(self, file: RecordFile, stamp: str, before: FileTexts | None) -> ReadFile:
        self._library.wake(file)
        forest = file.forest()
        run_ids = list(forest.nodes)
        identity = file.identity()
        facts = FileTexts(stamp, file.version()[1], identity)
        grew = before is not None and before.identity == identity and before.end <= facts.end
        after = before.end - 1 if before is not None and grew else -1
        texts = (
            IndexedText(event.run_id, forest.nodes[event.run_id].root, event.step, number, *text)
            for _, number, event in file.tree_events(run_ids, codes=TEXT_CODES, after=after)
            for text in texts_of(event)
        )
        return ReadFile(str(file.path), facts, texts, grew)


def _stamp(path: Path) -> str:
    return repr(stamp_of(path))


def _is_other(known: FileTexts | None, stamp: str) -> bool:
    return known is None or known.stamp != stamp


def _hit(hit: IndexedText) -> dict[str, Any]:
    return {
        "run_id": hit.run_id,
        "step": hit.step,
        "index": hit.event,
        "kind": hit.kind,
        "cell": hit.cell,
        "excerpt": hit.text,
    }
