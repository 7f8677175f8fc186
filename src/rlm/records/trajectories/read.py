"""Open a log, a folder of logs or a journal, and read it piece by piece."""

import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from rlm.errors import ConfigError
from rlm.events import Event, RunStarted
from rlm.messages import Usage
from rlm.records.trajectories.decoding import Skipped
from rlm.records.trajectories.index import Index, RunOutline, StepUsage
from rlm.records.trajectories.reference import REFERENCE_TYPES, ReferenceSource
from rlm.records.trajectories.sources import JournalSource, LogSource, Source, opened

if TYPE_CHECKING:
    from rlm.records.judging.judgments import Judgment

__all__ = ["MAX_FILES", "Trajectory", "open_trajectories", "open_trajectory", "source_of"]

MAX_FILES = 10_000
ENDINGS = (".jsonl", ".sqlite")
_DATABASE = b"SQLite format 3\0"
_TYPE = re.compile(rb'\s*\{\s*"type"\s*:\s*"(\w{1,40})"')
_LOOKED_AT_LINES = 20
_LOOKED_AT_BYTES = 1 << 20


class _Typed(Struct):
    type: str = ""


class Trajectory:
    """The runs of one file or several. Nothing is read before it is needed.

    The last attempt of a resumed run counts; child runs of earlier attempts only are kept.
    `refresh` continues reading files that have grown.
    """

    def __init__(self, sources: list[Source], *, hides_settings: bool = False) -> None:
        is_alone = len(sources) == 1
        self._parts = [_Part(each, is_alone, hides_settings) for each in sources]
        self.judgments: Mapping[str, Judgment] = {}
        """What people said about root runs, by id; exports include it."""
        self.scores: Mapping[str, float] = {}
        """Scores that a bench gave root runs, by id; a person's score takes precedence."""

    def score_of(self, root_id: str) -> float | None:
        """Return the score of a root run: a person's, or else that of a bench."""
        judgment = self.judgments.get(root_id)
        given = None if judgment is None else judgment.score
        return self.scores.get(root_id) if given is None else given

    @property
    def paths(self) -> list[Path]:
        return [part.source.path for part in self._parts]

    @property
    def sources(self) -> list[Source]:
        return [part.source for part in self._parts]

    @property
    def skipped(self) -> Skipped:
        """Return what could not be used of what has been read so far."""
        total = Skipped()
        for part in self._parts:
            for each in (part.skipped, part.tail, part.undecoded):
                total.include(each)
        return total

    def runs(self) -> list[RunOutline]:
        """Return every run in the order in which they began, parents before children."""
        return [run for part in self._parts for run in part.outlines()]

    def events(self) -> Iterator[Event]:
        """Yield every event, file after file, in order."""
        for part in self._parts:
            yield from part.events()

    def run_events(self, run_id: str) -> Iterator[Event]:
        """Yield the events of one run, without those of its children."""
        return self._part_of(run_id).chosen(run_id, None)

    def step_events(self, run_id: str, step: int) -> Iterator[Event]:
        """Yield the events of one step of a run; 0 is what came before the first."""
        return self._part_of(run_id).chosen(run_id, step)

    def steps(self, run_id: str) -> list[int]:
        """Return the steps of a run that have events."""
        return self._part_of(run_id).ready().steps_of(run_id)

    def step_usages(self, run_id: str) -> dict[int, StepUsage]:
        """Return what the steps of a run used, with and without their child runs."""
        return self._part_of(run_id).ready().step_usages(run_id)

    def usage_of(self, run_id: str) -> Usage:
        """Return what a run used, with its child runs."""
        return self._part_of(run_id).ready().usage_of(run_id)

    def refresh(self) -> None:
        """Read what was added to the files."""
        for part in self._parts:
            part.read_on()

    def _part_of(self, run_id: str) -> "_Part":
        for part in self._parts:
            if run_id in part.ready():
                return part
        raise ConfigError(f"no run {run_id!r} here; runs() lists the runs")


class _Part:
    """One file with its index, made on first use."""

    def __init__(self, source: Source, is_alone: bool, hides_settings: bool) -> None:
        self.source = source
        self._is_alone = is_alone
        self._hides_settings = hides_settings
        self.skipped = Skipped()
        self.tail = Skipped()
        self.undecoded = Skipped()
        self._index: Index | None = None

    def ready(self) -> Index:
        return self.read_on() if self._index is None else self._index

    def read_on(self) -> Index:
        index = self._index = self._index or Index()
        self.tail = Skipped()
        try:
            for start, end, glance in self.source.glances(index.end, self.skipped, self.tail):
                if glance is not None:
                    index.add(start, end, glance, self.skipped)
                index.end = max(index.end, end)
        except ConfigError as error:
            if self._is_alone:
                self._index = None
                raise
            self.skipped.notice(str(error))  # Other files of the folder may be readable.
        return index

    def outlines(self) -> list[RunOutline]:
        return self.ready().outlines(may_run=self.source.may_grow())

    def events(self) -> Iterator[Event]:
        index = self.ready()
        self.undecoded = Skipped()
        for place, event in self.source.events(None, self.undecoded):
            if index.counts(event.run_id, event.step, place):
                yield self._shown(event)

    def chosen(self, run_id: str, step: int | None) -> Iterator[Event]:
        """Yield events by seeking.

        A span contains only lines of one run, but a line may contain several events.
        """
        spans = self.ready().spans(run_id, step)
        for _, event in self.source.events(spans, Skipped()):
            if event.run_id == run_id and step in {None, event.step}:
                yield self._shown(event)

    def _shown(self, event: Event) -> Event:
        if self._hides_settings and isinstance(event, RunStarted):
            return msgspec.structs.replace(event, settings={})
        return event


def open_trajectory(path: str | Path, *, hides_settings: bool = False) -> Trajectory:
    """Open one of our logs, a log of the reference engine, a journal, or a folder of them.

    With `hides_settings`, no event shows how its run was configured.
    """
    path = Path(path)
    if path.is_dir():
        sources = [source_of(file) for file in _files_in(path)]
        return Trajectory(sources, hides_settings=hides_settings)
    if not path.exists():
        raise ConfigError(f"nothing found at {path}: name a log, a journal, or a folder of them")
    if not path.is_file():
        raise ConfigError(f"{path} is not a file: name a log, a journal, or a folder of them")
    return Trajectory([source_of(path)], hides_settings=hides_settings)


def open_trajectories(paths: Iterable[str | Path]) -> Trajectory:
    """Open several logs, journals and folders as one."""
    opened_ones = [open_trajectory(path) for path in dict.fromkeys(map(Path, paths))]
    return Trajectory([source for each in opened_ones for source in each.sources])


def _files_in(folder: Path) -> list[Path]:
    try:
        names = sorted(entry for entry in folder.iterdir() if entry.name.endswith(ENDINGS))
    except OSError as error:
        raise ConfigError(f"{folder} can't be read: {error.strerror or error}") from error
    files = [entry for entry in names if entry.is_file()]
    if not files:
        raise ConfigError(f"no log in {folder}: names of logs end in {ENDINGS[0]}")
    if len(files) > MAX_FILES:
        raise ConfigError(
            f"{folder} has {len(files):,} logs, more than {MAX_FILES:,}; name only some of them"
        )
    return files


def source_of(path: Path) -> Source:
    """Return the source for a file, judging by its beginning rather than its name."""
    with opened(path) as file:
        head = file.read(_LOOKED_AT_BYTES)
    if head.startswith(_DATABASE):
        return JournalSource(path)
    for text in head.removeprefix(BOM_UTF8).split(b"\n", _LOOKED_AT_LINES)[:_LOOKED_AT_LINES]:
        if kind := _type_of(text):
            return ReferenceSource(path) if kind in REFERENCE_TYPES else LogSource(path)
    return LogSource(path)


def _type_of(line: bytes) -> bytes:
    """Return the type that a line states: at its start, or anywhere if it is a complete object."""
    if (found := _TYPE.match(line)) is not None:
        return found[1]
    try:
        return msgspec.json.decode(line, type=_Typed).type.encode()
    except (ValueError, RecursionError):
        return b""
