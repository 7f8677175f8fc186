"""All runs that a viewer shows: those of a log, of a folder, of one journal or of all of them."""

import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from rlm.errors import ConfigError
from rlm.records.journal import Archive, RunFacts
from rlm.records.trajectories import RunOutline, Skipped
from rlm.records.trajectories.read import ENDINGS, MOST_FILES
from rlm.viewer.outlines import Node
from rlm.viewer.records import RecordFile, Stamp, stamp_of

__all__ = ["Folder", "Journals", "Library", "Listing", "OneFile", "Shelf", "Unknown"]

MOST_LISTED = 5_000
MOST_KEPT_EVENTS = 8_000_000
"""Notes of more are made again when they are asked for."""


class Unknown(ConfigError):
    """There is no such run, step, event or text here."""


class Shelf(Protocol):
    """Where files lie. `paths` are those that lie there now, the newest first."""

    @property
    def title(self) -> str: ...

    @property
    def archive(self) -> Archive | None: ...

    def paths(self) -> list[Path]: ...


class OneFile(Struct, frozen=True):
    """A log or a journal; `archive` if it is kept there."""

    path: Path
    title: str
    archive: Archive | None = None

    def paths(self) -> list[Path]:
        return [self.path]


class Folder(Struct, frozen=True):
    """Every log and journal in a folder; there need not be any yet."""

    path: Path
    title: str
    archive: Archive | None = None

    def paths(self) -> list[Path]:
        try:
            found = [each for each in self.path.iterdir() if each.name.endswith(ENDINGS)]
        except OSError as error:
            raise ConfigError(f"the folder can't be read: {error.strerror or error}") from error
        return sorted((each for each in found if each.is_file()), key=_changed, reverse=True)


class Journals(Struct, frozen=True):
    """All runs that are kept."""

    archive: Archive
    title: str = "all runs"

    def paths(self) -> list[Path]:
        return [run.path for run in self.archive.places.listed()]


class Listing(NamedTuple):
    """Root runs, the newest first; what of the files could not be used; how much was read yet."""

    runs: list[Node]
    skipped: Skipped
    reading: dict[str, Any] | None


class Library:
    """Blocks: it is called from threads. `start` reads everything for the first time, beside."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self._files: dict[Path, RecordFile] = {}
        self._used: dict[Path, float] = {}
        self._lock = threading.Lock()
        self._is_read = threading.Event()
        self._ended = threading.Event()

    @property
    def title(self) -> str:
        return self.shelf.title

    @property
    def archive(self) -> Archive | None:
        return self.shelf.archive

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
        """The files that lie there now."""
        paths = self.shelf.paths()[:MOST_FILES]
        with self._lock:
            known = self._files
            self._files = {path: known.get(path) or RecordFile(path) for path in paths}
            return list(self._files.values())

    def _make_room(self, busy: RecordFile) -> None:
        """Let the notes go that nobody has used for longest."""
        with self._lock:
            files = sorted(self._files.values(), key=lambda each: self._used.get(each.path, 0.0))
        total = sum(file.events for file in files)
        for file in files:
            if total <= MOST_KEPT_EVENTS:
                return
            if file is not busy and file.is_read:
                total -= file.events
                file.sleep()

    def state(self) -> Mapping[Path, tuple[Stamp, bool]]:
        """What changes when a run is added, removed, goes on, or is killed."""
        files = self._scan()
        for file in files:
            if self._is_read.is_set() and not file.is_read:
                file.refresh()
        return {
            file.path: (stamp_of(file.path), file.is_read and file.may_grow()) for file in files
        }

    # -- looking -----------------------------------------------------------------------------

    def listing(self, wait_seconds: float) -> Listing:
        """All root runs; while files are read for the first time, those found so far."""
        self._is_read.wait(wait_seconds)
        files = self._scan()
        skipped, nodes, waiting = Skipped(), dict[str, Node](), 0.0
        for file in files:
            if self._is_read.is_set():
                file.refresh()
            skipped.include(file.skipped)
            if file.problem is not None:
                skipped.add("file that can't be read", file.path.name, file.problem)
            waiting += 1.0 - file.progress
            for node in self._roots(file):
                nodes.setdefault(node.outline.run_id, node)
        runs = sorted(nodes.values(), key=lambda node: -node.outline.started)
        if len(runs) > MOST_LISTED:
            skipped.notice(f"the newest {MOST_LISTED:,} of {len(runs):,} runs are listed")
        reading = None
        if waiting and not self._is_read.is_set():
            reading = {"files": len(files), "done": 1.0 - waiting / len(files)}
        return Listing(runs[:MOST_LISTED], skipped, reading)

    def _roots(self, file: RecordFile) -> Iterator[Node]:
        roots = file.forest().roots
        if roots or not file.is_read or file.problem is not None:
            yield from roots
        elif (node := self.unstarted(file)) is not None:
            yield node

    def find(self, run_id: str) -> RecordFile:
        """The file of a run, read up to its end. Ids are looked up, never made into paths."""
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

    # -- runs that have told nothing yet -----------------------------------------------------

    def unstarted(self, file: RecordFile) -> Node | None:
        """A journaled run without events: a fork that was just made, or one killed at once."""
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
            status="running" if file.may_grow() else "killed",
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


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
