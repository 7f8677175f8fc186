"""`RLMLogger`: the trajectory of a run in memory, or in a file with one event per line.

With `format="reference"`, a file has the rows of the reference engine instead.
"""

import contextlib
import logging
import os
import re
import tempfile
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import msgspec

from rlm._util.lazy import on_demand
from rlm._util.slow_numbers import decode_with
from rlm._util.text import sendable
from rlm.errors import ConfigError
from rlm.events import Event, RunEnded, RunStarted, StepStarted
from rlm.logger.rows import TrajectoryBuilder, trajectory

if TYPE_CHECKING:
    from rlm.logger.verbose import VerbosePrinter

__all__ = ["RLMLogger", "VerbosePrinter"]

__getattr__, __dir__ = on_demand(__name__, {"VerbosePrinter": "verbose"})

FORMATS = ("events", "reference")
MAX_NAME_CHARS = 150
_READ = msgspec.json.Decoder(Event)
_log = logging.getLogger("rlm")


class RLMLogger:
    """A recorder that writes one file per root run, child runs included, flushed after every event.

    With `log_dir`, only names and counts stay in memory, and `get_trajectory` reads the file. The
    context is never written: a log holds its hash, size and description.

    With `format="reference"`, all runs go to one file, `log_file_path`, in the reference's rows:
    one of `metadata`, and one per `iteration` of a root run. If no format is given, the `RLM` that
    gets the logger decides: rows if it was called in the reference's spelling, else events. Until
    then, `log_file_path` is that of the rows. A subclass may override `log` and
    `log_metadata`, which receive an `RLMIteration` and an `RLMMetadata`.
    """

    def __init__(
        self,
        log_dir: str | Path | None = None,
        file_name: str = "rlm",
        *,
        format: Literal["events", "reference"] | None = None,  # noqa: A002 - the usual word
    ) -> None:
        if format is not None and format not in FORMATS:
            raise ConfigError(f"unknown format {format!r}; choose one of {', '.join(FORMATS)}")
        if not file_name.strip(".") or Path(file_name).name != file_name:
            raise ConfigError(
                f"file_name must be the start of a file name, not a path: {file_name!r}"
            )
        self.format: str | None = format
        self.log_dir = None if log_dir is None else _writable(Path(log_dir))
        self.log_file_path: str | None = None
        if self.log_dir is not None and format != "events":
            self.log_file_path = str(self.log_dir / f"{file_name}_{_new_name()}.jsonl")
        self._file_name = file_name
        self._metadata: dict[str, Any] | None = None
        self._logged: list[dict[str, Any]] = []
        self._runs: dict[str, _MemoryLog | _FileLog] = {}
        self._root_of: dict[str, str] = {}
        self._last_root: str | None = None
        self._lock = threading.Lock()

    def settle_format(self, format: Literal["events", "reference"]) -> None:  # noqa: A002
        """Set the format, unless it was given or set before; an `RLM` calls this."""
        if self.format is None:
            self.format = format
            if format == "events":
                self.log_file_path = None  # Each run has a file of its own.

    @property
    def needs_context_hash(self) -> bool:
        """Whether events need the hash of a large context: in files, and not in rows."""
        return self.log_dir is not None and self.format != "reference"

    # -- events ------------------------------------------------------------------------------

    def record(self, event: Event) -> None:
        """Record an event of a run; in the format of the reference, rows come by `log`."""
        if self.format == "reference":
            return
        with self._lock:
            root = self._root(event)
            if root not in self._runs or (
                isinstance(event, RunStarted) and self._runs[root].is_closed
            ):
                self._begin(root)
            self._runs[root].add(event, is_own=event.run_id == root)
            if isinstance(event, RunEnded) and event.run_id == root:
                self._runs[root].close()
                self._root_of = {run: its for run, its in self._root_of.items() if its != root}

    def get_trajectory(self, run_id: str | None = None) -> dict[str, Any] | None:
        """Return `run_metadata` and `iterations` of a root run, by default the latest one.

        In memory, these are the runs in progress and those that ended since; in `log_dir`, all
        runs.
        """
        root = run_id or self._last_root
        if root is None:
            return self._logged_trajectory()
        if (path := self._path(root)) is not None:
            return _trajectory_in(path) if path.exists() else None
        with self._lock:
            known = self._runs.get(root)
            return known.growing.whole() if isinstance(known, _MemoryLog) else None

    @property
    def iteration_count(self) -> int:
        """How many steps the latest run has made so far."""
        with self._lock:
            last = self._runs.get(self._last_root or "")
            return last.steps if last else len(self._logged)

    # -- the reference's rows ----------------------------------------------------------------

    def log_metadata(self, metadata: Any) -> None:
        """Keep how an `RLM` is configured, once; called when it is made."""
        with self._lock:
            if self._metadata is not None:
                return
            self._metadata = metadata.to_dict()
            self._write_row({"type": "metadata", "timestamp": _now(), **self._metadata})

    def log(self, iteration: Any) -> None:
        """Keep an iteration of a root run; called when it is complete."""
        with self._lock:
            number = len(self._logged) + 1
            row = {"type": "iteration", "iteration": number, "timestamp": _now()}
            self._logged.append({**row, **iteration.to_dict()})
            self._write_row(self._logged[-1])

    def clear_iterations(self) -> None:
        """Forget the iterations of the run before; called when another one starts."""
        with self._lock:
            self._logged = []

    def _logged_trajectory(self) -> dict[str, Any] | None:
        with self._lock:
            if self._metadata is None:
                return None
            return {"run_metadata": self._metadata, "iterations": list(self._logged)}

    def _write_row(self, row: dict[str, Any]) -> None:
        """Append a row to the file; if it can't be written, the run continues."""
        if self.format != "reference" or self.log_file_path is None:
            return
        try:
            with Path(self.log_file_path).open("ab") as file:
                file.write(_row_bytes(row) + b"\n")
        except OSError as error:
            why = error.strerror or str(error)
            _log.warning("%s: %s; the run continues without it", self.log_file_path, why)

    def _root(self, event: Event) -> str:
        """Return the root run of an event; the first event of a child names its parent."""
        if event.run_id not in self._root_of:
            parent = self._root_of.get(event.parent_id or "", event.run_id)
            self._root_of[event.run_id] = parent
        return self._root_of[event.run_id]

    def _begin(self, root: str) -> None:
        """Add a run, and forget those that have ended."""
        self._runs = {name: run for name, run in self._runs.items() if not run.is_closed}
        self._last_root = root
        if (path := self._path(root)) is None:
            self._runs[root] = _MemoryLog()
        else:
            self._runs[root] = _FileLog(path)
            self.log_file_path = str(path)

    def _path(self, root: str) -> Path | None:
        """Return the path of a run's file; its id is escaped, because callers may choose ids."""
        if self.log_dir is None:
            return None
        name = re.sub(r"[^\w.-]", "_", root)[:MAX_NAME_CHARS]
        return self.log_dir / f"{self._file_name}_{name}.jsonl"


class _MemoryLog:
    """The data of `get_trajectory`, as it grows."""

    def __init__(self) -> None:
        self.growing = TrajectoryBuilder()
        self.is_closed = False

    @property
    def steps(self) -> int:
        return self.growing.steps

    def add(self, event: Event, *, is_own: bool) -> None:
        if not self.is_closed:
            self.growing.add(event)

    def close(self) -> None:
        self.is_closed = True


class _FileLog:
    """The file of one run. If it can't be written, that is reported once, and the run continues."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.steps = 0
        self.is_closed = False
        self._file: BinaryIO | None = None
        try:
            self._file = path.open("ab", buffering=0)
            weakref.finalize(self, self._file.close)
            if _is_torn(path):
                self._file.write(b"\n")
        except OSError as error:
            self._give_up(error)

    def add(self, event: Event, *, is_own: bool) -> None:
        if is_own and isinstance(event, RunStarted | StepStarted):
            self.steps = event.step
        if self._file is None:
            return
        left = memoryview(encoded(event) + b"\n")
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        self.is_closed = True
        self._let_go()

    def _give_up(self, error: OSError) -> None:
        why = error.strerror or str(error)
        _log.warning("%s: %s; the run continues without being logged", self.path, why)
        self._let_go()

    def _let_go(self) -> None:
        """Close the file. Every line is already with the system, so none is lost."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()


def _writable(folder: Path) -> Path:
    """Return the folder, created and tested, so that problems show before a run starts."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ConfigError(
            f"log_dir={str(folder)!r} is not writable: {error.strerror or error}; choose a folder "
            "that is"
        ) from error
    return folder


def _is_torn(path: Path) -> bool:
    """Whether a writer was killed in the middle of its last line."""
    with path.open("rb") as file:
        if file.seek(0, 2) == 0:
            return False
        file.seek(-1, 2)
        return file.read(1) != b"\n"


def _new_name() -> str:
    """Return a moment and a few random digits, as the reference names its files."""
    return f"{time.strftime('%Y-%m-%d_%H-%M-%S')}_{os.urandom(4).hex()}"


def _now() -> str:
    return datetime.now().isoformat()


def _row_bytes(row: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(row, enc_hook=repr)
    except UnicodeEncodeError:
        return msgspec.json.encode(_sendable(row), enc_hook=repr)


def encoded(event: Event) -> bytes:
    """Return one event as JSON; lone surrogates, which JSON files can't hold, are replaced."""
    try:
        return msgspec.json.encode(event)
    except UnicodeEncodeError:
        return msgspec.json.encode(_sendable(msgspec.to_builtins(event)))


def _sendable(value: Any) -> Any:
    if isinstance(value, str):
        return sendable(value)
    if isinstance(value, dict):
        return {sendable(key): _sendable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_sendable(item) for item in value]
    return value


def _trajectory_in(path: Path) -> dict[str, Any] | None:
    try:
        with path.open("rb") as file:
            return trajectory(_events_in(file))
    except OSError as error:
        _log.warning("%s can't be read: %s", path, error.strerror or error)
        return None


def _events_in(file: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events of a log file; a line that a killed writer left incomplete is skipped."""
    for line in file:
        try:
            yield decode_with(_READ, line)
        except (ValueError, RecursionError):
            continue
