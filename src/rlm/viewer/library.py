"""All runs that a viewer shows: those of a log, a folder, one journal or all journals."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from rlm.errors import ConfigError
from rlm.records.journal import Archive, RunFacts
from rlm.records.trajectories import RunOutline, Skipped
from rlm.records.trajectories.read import ENDINGS, MAX_FILES
from rlm.viewer.outlines import Node
from rlm.viewer.record_files import RecordFile, Stamp, Unknown, stamp_of

__all__ = [
    "Busy",
    "Folder",
    "Journals",
    "Library",
    "Listing",
    "NotedSource",
    "OneFile",
    "RunSource",
    "Threads",
    "TooLarge",
    "Unknown",
    "WatchedSource",
]

MAX_THREADS = 4
MAX_WAITING = 100
MAX_LISTED = 10_000
MAX_KEPT_EVENTS = 8_000_000
"""Beyond this, indexes are dropped and rebuilt when they are needed."""

COUNTED_TIMES = 50
"""How many times the indexes are counted before there may be too many."""

T = TypeVar("T")


class Busy(ConfigError):
    """Too many requests at once."""


class TooLarge(ConfigError):
    """The body of a request is too large."""


class RunSource(Protocol):
    """Where record files are; `paths` are those that exist now, newest first."""

    @property
    def title(self) -> str: ...

    @property
    def archive(self) -> Archive | None: ...

    def paths(self) -> list[Path]: ...


@runtime_checkable
class NotedSource(Protocol):
    """What a RunSource may also offer: a note about each run, by id, from a file."""

    @property
    def notes_path(self) -> Path: ...

    def notes(self) -> Mapping[str, str]: ...


@runtime_checkable
class WatchedSource(Protocol):
    """What a RunSource may also offer: files beside the records whose changes are reported."""

    def watched(self) -> list[Path]: ...


class OneFile(Struct, frozen=True):
    """A log, or a journal of `archive`."""

    path: Path
    title: str
    archive: Archive | None = None

    def paths(self) -> list[Path]:
        return [self.path]


class Folder(Struct, frozen=True):
    """Every log and journal in a folder, which may still be empty."""

    path: Path
    title: str
    archive: Archive | None = None

    def paths(self) -> list[Path]:
        try:
            with os.scandir(self.path) as entries:
                found = [(_changed(each), each.path) for each in entries if _is_record(each)]
        except OSError as error:
            raise ConfigError(f"the folder can't be read: {error.strerror or error}") from error
        return [_path(path) for _, path in sorted(found, reverse=True)]


class Journals(Struct, frozen=True):
    """All journaled runs."""

    archive: Archive
    title: str = "all runs"

    def paths(self) -> list[Path]:
        return [run.path for run in self.archive.places.listed()]


class Listing(NamedTuple):
    """Root runs, newest first; what could not be read; and the progress of the first pass."""

    runs: list[Node]
    skipped: Skipped
    reading: dict[str, Any] | None


class Threads:
    """The threads of one viewer, for work that blocks."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="rlm-viewer")
        self._waiting = 0
        self._is_closed = False

    async def run(self, task: Callable[..., T], *arguments: Any) -> T:
        """Call `task` in a thread; raise Busy if too many calls are waiting, or this is closed."""
        if self._is_closed:
            raise Busy("the viewer is shutting down")
        if self._waiting >= MAX_WAITING:
            raise Busy("the viewer has too many requests at once; try again in a moment")
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, task, *arguments)
        except asyncio.CancelledError:
            if self._is_closed and not _is_being_cancelled():
                raise Busy("the viewer is shutting down") from None
            raise
        finally:
            self._waiting -= 1

    def close(self) -> None:
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)


def _is_being_cancelled() -> bool:
    """Return whether the current task was cancelled, rather than what it waits for."""
    current = asyncio.current_task()
    return current is not None and current.cancelling() > 0


class Library:
    """The record files of a source. Methods block, so call them in threads.

    `start` begins to read all of them in a separate thread. `hides_settings`: no event shows the
    settings of its run, which are the operator's.
    """

    def __init__(
        self,
        source: RunSource,
        *,
        hides_settings: bool = False,
        max_kept_events: int = MAX_KEPT_EVENTS,
    ) -> None:
        self.source = source
        self._hides_settings = hides_settings
        self._max_kept_events = max_kept_events
        self.also_watched: list[Path] = []
        """Files beside the records whose changes count as changes of the list."""
        self._files: dict[Path, RecordFile] = {}
        self._used: dict[Path, float] = {}
        self._new_events = 0
        self._lock = threading.Lock()
        self._is_read = threading.Event()
        self._ended = threading.Event()

    @property
    def title(self) -> str:
        return self.source.title

    @property
    def archive(self) -> Archive | None:
        return self.source.archive

    @property
    def events(self) -> int:
        """The number of events that are indexed in memory."""
        with self._lock:
            return sum(file.events for file in self._files.values())

    # -- keeping up --------------------------------------------------------------------------

    def start(self) -> None:
        self._scan()
        threading.Thread(target=self._read_all, name="rlm-viewer-reading", daemon=True).start()

    def end(self) -> None:
        self._ended.set()

    def _read_all(self) -> None:
        for file in self._scan():
            if self._ended.is_set():
                return
            file.refresh()
            self._make_room(file)
        self._is_read.set()

    def _scan(self) -> list[RecordFile]:
        """Return the files that exist now."""
        paths = self.source.paths()[:MAX_FILES]
        with self._lock:
            known = self._files
            self._files = {path: known.get(path) or self._record_file(path) for path in paths}
            return list(self._files.values())

    def _record_file(self, path: Path) -> RecordFile:
        return RecordFile(path, hides_settings=self._hides_settings)

    def _make_room(self, busy: RecordFile) -> None:
        """Drop the least recently used indexes.

        All of them are counted only now and then: there may be ten thousand.
        """
        self._new_events += busy.events + 1
        if self._new_events < self._max_kept_events // COUNTED_TIMES:
            return
        self._new_events = 0
        with self._lock:
            files = sorted(self._files.values(), key=lambda each: self._used.get(each.path, 0.0))
        total = sum(file.events for file in files)
        for file in files:
            if total <= self._max_kept_events:
                return
            if file is not busy and file.is_read:
                total -= file.events
                file.sleep()

    def wait_until_read(self, seconds: float) -> bool:
        """Wait for the end of the first pass; return whether it has ended."""
        return self._is_read.wait(seconds)

    def files(self) -> list[RecordFile]:
        """Return the files that exist now, newest first."""
        return self._scan()

    def wake(self, file: RecordFile) -> None:
        """Bring the index of a file up to date, and drop others if there is no room."""
        file.wake()
        self._make_room(file)

    def state(self) -> Mapping[Path, tuple[Stamp, int]]:
        """Return a value that changes when a run is added or removed, continues, or is killed."""
        files = self._scan()
        for file in files:
            if self._is_read.is_set() and not file.is_read:
                file.refresh()
        state = {
            file.path: (stamp_of(file.path), file.is_read and 1 + file.may_run()) for file in files
        }
        state |= {path: (stamp_of(path), False) for path in self.also_watched}
        if isinstance(self.source, NotedSource):
            state[self.source.notes_path] = (stamp_of(self.source.notes_path), False)
        if isinstance(self.source, WatchedSource):
            state |= {path: (stamp_of(path), False) for path in self.source.watched()}
        return state

    def notes(self) -> Mapping[str, str]:
        """Return what is noted about runs beside their records, such as scores."""
        return self.source.notes() if isinstance(self.source, NotedSource) else {}

    # -- looking -----------------------------------------------------------------------------

    def listing(self, wait_seconds: float) -> Listing:
        """Return all root runs; during the first pass, those found so far."""
        is_read = self._is_read.wait(wait_seconds)  # The pass may end while this looks at files.
        files = self._scan()
        skipped, nodes, waiting = Skipped(), dict[str, Node](), 0.0
        for file in files:
            if is_read:
                file.refresh()
            waiting += 1.0 - file.progress
            file.add_skipped_to(skipped)
            if file.problem is not None:
                skipped.add("file that can't be read", file.path.name, file.problem)
            for node in self._roots(file):
                nodes.setdefault(node.outline.run_id, node)
        runs = sorted(nodes.values(), key=lambda node: -node.outline.started)
        if len(runs) > MAX_LISTED:
            skipped.notice(f"the newest {MAX_LISTED:,} of {len(runs):,} runs are listed")
        reading = None
        if waiting and not is_read:
            reading = {"files": len(files), "done": 1.0 - waiting / len(files)}
        return Listing(runs[:MAX_LISTED], skipped, reading)

    def _roots(self, file: RecordFile) -> Iterator[Node]:
        roots = file.forest().roots
        if roots or not file.is_read or file.problem is not None:
            yield from roots
        elif (node := self.unstarted(file)) is not None:
            yield node

    def find(self, run_id: str) -> RecordFile:
        """Return the file of a run, read to its end. Ids are looked up, never turned into paths."""
        for _ in range(2):
            with self._lock:
                files = list(self._files.values())
            for file in sorted(files, key=lambda each: not run_id.startswith(each.path.stem)):
                if not file.is_read and run_id.startswith(file.path.stem):
                    file.refresh()
                if run_id in file.forest().nodes or self._is_unstarted(file, run_id):
                    self._used[file.path] = time.monotonic()
                    file.wake()
                    self._make_room(file)
                    return file
            self._is_read.wait(30)
            for file in self._scan():
                file.refresh()
        raise Unknown("there is no such run here; it may have been removed")

    # -- runs without events -----------------------------------------------------------------

    def unstarted(self, file: RecordFile) -> Node | None:
        """Return a journaled run without events.

        It is a fork that was just made, or one that was killed at once.
        """
        facts = self._facts(file)
        if facts is None:
            return None
        config = facts.settings.get("config")
        model = config.get("model", "") if isinstance(config, dict) else ""
        outline = RunOutline(
            run_id=facts.run_id,
            query=facts.query,
            model=str(model),
            started=facts.started,
            status="running" if file.may_grow() else "interrupted",
        )
        return Node(outline=outline, root=facts.run_id, children=[])

    def _is_unstarted(self, file: RecordFile, run_id: str) -> bool:
        return file.is_read and file.path.stem == run_id and not file.forest().nodes

    def _facts(self, file: RecordFile) -> RunFacts | None:
        if self.archive is None:
            return None
        for run in self.archive.places.listed():
            if run.path == file.path:
                try:
                    return self.archive.facts(run)
                except ConfigError:
                    return None
        return None


@lru_cache(MAX_FILES)
def _path(name: str) -> Path:
    """Return a cached path: making thousands of them takes longer than checking the files."""
    return Path(name)


def _is_record(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.name.endswith(ENDINGS) and entry.is_file()
    except OSError:  # Such as a link to itself: the other files are still shown.
        return False


def _changed(entry: "os.DirEntry[str]") -> float:
    try:
        return entry.stat().st_mtime
    except OSError:
        return 0.0
