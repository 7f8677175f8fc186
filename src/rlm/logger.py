"""`RLMLogger`: a run's trajectory in memory and, with `log_dir`, in a file, a line an event."""

import threading
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

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
from rlm.text import sendable

__all__ = ["RLMLogger"]


class RLMLogger:
    """A recorder. One file a root run, its children inside, flushed after every event.

    The context is never written: a log holds its hash, size and description.
    """

    def __init__(self, log_dir: str | Path | None = None, file_name: str = "rlm") -> None:
        self.log_dir = None if log_dir is None else Path(log_dir)
        self.log_file_path: str | None = None
        self._file_name = file_name
        self._files: dict[str, BinaryIO] = {}
        self._root_of: dict[str, str] = {}
        self._events: dict[str, list[Event]] = {}
        self._last_root: str | None = None
        self._lock = threading.Lock()
        if self.log_dir is not None:
            self.log_dir.mkdir(parents=True, exist_ok=True)

    def record(self, event: Event) -> None:
        with self._lock:
            root = self._root(event)
            self._events.setdefault(root, []).append(event)
            if self.log_dir is not None:
                self._write(root, event)
            if isinstance(event, RunEnded) and event.run_id == root:
                self._end(root)

    def get_trajectory(self, run_id: str | None = None) -> dict[str, Any] | None:
        """`run_metadata` and `iterations` of a run, by default the one that ended last."""
        events = self._events.get(run_id or self._last_root or "")
        return None if events is None else trajectory(events)

    @property
    def iteration_count(self) -> int:
        found = self.get_trajectory()
        return len(found["iterations"]) if found else 0

    def _root(self, event: Event) -> str:
        """The root run of an event; a child's first event says who its parent is."""
        if event.run_id not in self._root_of:
            parent = self._root_of.get(event.parent_id or "", event.run_id)
            self._root_of[event.run_id] = parent
        return self._root_of[event.run_id]

    def _end(self, root: str) -> None:
        """Close the file, and forget the run that ended before this one."""
        if (file := self._files.pop(root, None)) is not None:
            file.close()
        self._events.pop(self._last_root or "", None)
        self._root_of = {run: its for run, its in self._root_of.items() if its != root}
        self._last_root = root

    def _write(self, root: str, event: Event) -> None:
        assert self.log_dir is not None
        if root not in self._files:
            path = self.log_dir / f"{self._file_name}_{root}.jsonl"
            self._files[root] = path.open("ab")
            self.log_file_path = str(path)
        self._files[root].write(encoded(event) + b"\n")
        self._files[root].flush()


def encoded(event: Event) -> bytes:
    """One event as JSON; lone surrogates, which JSON files can't hold, are replaced."""
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


def trajectory(events: list[Event]) -> dict[str, Any]:
    """The reference's shape: what was configured, then one entry a step of the root run."""
    first = next((e for e in events if isinstance(e, RunStarted)), None)
    iterations: list[dict[str, Any]] = []
    for event in events:
        if first is not None and event.run_id == first.run_id:
            _add(iterations, event)
    metadata = {} if first is None else msgspec.to_builtins(first)
    return {"run_metadata": metadata, "iterations": iterations}


def _add(iterations: list[dict[str, Any]], event: Event) -> None:
    if isinstance(event, StepStarted):
        empty: dict[str, Any] = {"response": "", "code_blocks": [], "final_answer": None}
        iterations.append({"type": "iteration", "iteration": event.step, **empty})
        return
    if not iterations:
        return
    step = iterations[-1]
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
