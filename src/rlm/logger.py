"""`RLMLogger`: the trajectory of a run in memory, or in a file with one event per line."""

import contextlib
import logging
import re
import tempfile
import threading
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from rlm._util.text import sendable
from rlm.errors import ConfigError
from rlm.events import (
    CellEnded,
    CellOutput,
    CellStarted,
    Event,
    ModelReplied,
    RunEnded,
    RunStarted,
    StepStarted,
)

__all__ = ["RLMLogger"]

MAX_NAME_CHARS = 150
_READ = msgspec.json.Decoder(Event)
_log = logging.getLogger("rlm")


class RLMLogger:
    """A recorder that writes one file per root run, child runs included, flushed after every event.

    With `log_dir`, only names and counts stay in memory, and `get_trajectory` reads the file. The
    context is never written: a log holds its hash, size and description.
    """

    def __init__(self, log_dir: str | Path | None = None, file_name: str = "rlm") -> None:
        if not file_name.strip(".") or Path(file_name).name != file_name:
            raise ConfigError(f"file_name is the start of a name, not a path: {file_name!r}")
        self.log_dir = None if log_dir is None else _writable(Path(log_dir))
        self.needs_context_hash = log_dir is not None
        self.log_file_path: str | None = None
        self._file_name = file_name
        self._runs: dict[str, _MemoryLog | _FileLog] = {}
        self._root_of: dict[str, str] = {}
        self._last_root: str | None = None
        self._lock = threading.Lock()

    def record(self, event: Event) -> None:
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
            return None
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
            return last.steps if last else 0

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
        """Return the path of the file of a run; run ids may come from the caller, so they are
        escaped.
        """
        if self.log_dir is None:
            return None
        name = re.sub(r"[^\w.-]", "_", root)[:MAX_NAME_CHARS]
        return self.log_dir / f"{self._file_name}_{name}.jsonl"


class _MemoryLog:
    """The data of `get_trajectory`, as it grows."""

    def __init__(self) -> None:
        self.growing = _Growing()
        self.is_closed = False

    @property
    def steps(self) -> int:
        return len(self.growing.iterations)

    def add(self, event: Event, *, is_own: bool) -> None:
        if is_own and not self.is_closed:
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
    """Return the folder, created if necessary and tested, so that problems show before a run
    starts.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ConfigError(
            f"log_dir={str(folder)!r} can't be written to: {error.strerror or error}; "
            "name a folder that can"
        ) from error
    return folder


def _is_torn(path: Path) -> bool:
    """Whether a writer was killed in the middle of its last line."""
    with path.open("rb") as file:
        if file.seek(0, 2) == 0:
            return False
        file.seek(-1, 2)
        return file.read(1) != b"\n"


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


# -- the reference's shape ------------------------------------------------------------------------


def trajectory(events: Iterable[Event]) -> dict[str, Any]:
    """Return the configuration and one entry per step of the root run, of its last attempt."""
    growing = _Growing()
    root: str | None = None
    for event in events:
        if root is None and isinstance(event, RunStarted):
            root = event.run_id
        if event.run_id == root:
            growing.add(event)
    return growing.whole()


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
            yield _READ.decode(line)
        except (ValueError, RecursionError):
            continue


class _Growing:
    """The metadata and iterations of one run, event by event."""

    def __init__(self) -> None:
        self.metadata: dict[str, Any] = {}
        self.iterations: list[dict[str, Any]] = []

    def whole(self) -> dict[str, Any]:
        return {"run_metadata": self.metadata, "iterations": list(self.iterations)}

    def add(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self.metadata, self.iterations = msgspec.to_builtins(event), []
        elif isinstance(event, StepStarted):
            empty: dict[str, Any] = {"response": "", "code_blocks": [], "final_answer": None}
            self.iterations.append({"type": "iteration", "iteration": event.step, **empty})
        elif self.iterations:
            _add(self.iterations[-1], event)


def _add(step: dict[str, Any], event: Event) -> None:
    if isinstance(event, ModelReplied) and event.purpose == "step":
        step["response"] = event.text
    elif isinstance(event, CellStarted):
        step["code_blocks"].append({"code": event.code, "result": {"stdout": "", "stderr": ""}})
    elif isinstance(event, CellOutput) and step["code_blocks"]:
        step["code_blocks"][-1]["result"][event.stream] = event.text
    elif isinstance(event, CellEnded) and step["code_blocks"]:
        result = step["code_blocks"][-1]["result"]
        result["execution_time"] = event.seconds
        if event.traceback:
            result["stderr"] = f"{result['stderr']}{event.traceback}"
    elif isinstance(event, RunEnded):
        step["final_answer"] = event.answer
