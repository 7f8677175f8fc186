"""Measure how soon a gateway answers: `python benchmarks/gateway.py [FOLDER]`.

A real `rlm mcp` is started repeatedly and addressed with plain lines, so that no client's work
counts: from the start of the process to the first answer of a tool, then bounded reads.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.machine import describe_machine, in_lines, load_average

GOAL_START_SECONDS = 3.0
GOAL_READ_SECONDS = 0.005
INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "benchmark", "version": "0"},
}


class Sample(NamedTuple):
    """Seconds of one gateway: to its first answer, and of each read, list and search after it."""

    start: float
    reads: list[float]
    lists: list[float]
    searches: list[float]


class Gateway:
    """A gateway process, and lines to and from it."""

    def __init__(self, folder: Path, record: Path) -> None:
        command = ("-m", "rlm", "mcp", "--root", str(folder), "--provenance", str(record))
        self.process = subprocess.Popen(  # noqa: S603
            [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._number = 0

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._number += 1
        asked = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self.process.stdin.write(json.dumps(asked).encode() + b"\n")
        self.process.stdin.flush()
        while True:
            answer: dict[str, Any] = json.loads(self.process.stdout.readline())
            if answer.get("id") == self._number:
                return answer

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = self.ask("tools/call", {"name": tool, "arguments": arguments})["result"]
        if result.get("isError"):
            sys.exit(f"{tool}: {result['content']}")
        found: dict[str, Any] = result["structuredContent"]
        return found

    def timed(self, tool: str, **arguments: Any) -> float:
        began = time.perf_counter()
        self.call(tool, **arguments)
        return time.perf_counter() - began

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def sample(folder: Path, record: Path, reads: int) -> Sample:
    """Measure one gateway from its start to its end."""
    began = time.perf_counter()
    gateway = Gateway(folder, record)
    try:
        gateway.ask("initialize", INITIALIZE)
        session = gateway.call("rlm_session_create")["session"]
        start = time.perf_counter() - began
        files = gateway.call("rlm_list", session=session)["files"]
        handles = [each["handle"] for each in files if each["kind"] in ("py", "md", "txt")][:20]
        if not handles:
            sys.exit(f"there is no text file to read in {folder}")
        wanted = [handles[number % len(handles)] for number in range(reads)]
        return Sample(
            start,
            [gateway.timed("rlm_read", session=session, handle=handle) for handle in wanted],
            [gateway.timed("rlm_list", session=session) for _ in range(reads // 10)],
            [gateway.timed("rlm_search", session=session, query="session") for _ in range(3)],
        )
    finally:
        gateway.close()


def row(name: str, seconds: Sequence[float], goal: float | None = None) -> str:
    middle = statistics.median(seconds)
    goal_told = "" if goal is None else f"{'kept' if middle <= goal else 'MISSED'}: {goal * 1e3:g}"
    facts = (middle, min(seconds), max(seconds))
    return f"{name:<44}" + "".join(f"{each * 1e3:>11.2f}" for each in facts) + f"  {goal_told}"


def main() -> None:
    parser = argparse.ArgumentParser(description="How soon a gateway answers.")
    repository = Path(__file__).resolve().parent.parent
    parser.add_argument("folder", nargs="?", type=Path, default=repository)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--reads", type=int, default=200)
    options = parser.parse_args()
    print(in_lines(describe_machine()))
    with tempfile.TemporaryDirectory() as place:
        samples = [
            sample(options.folder, Path(place) / f"{number}.jsonl", options.reads)
            for number in range(options.rounds)
        ]
    print(
        f"\nload average {load_average()}; {options.rounds} gateways over {options.folder.name}\n"
    )
    print(f"{'milliseconds':<44}{'median':>11}{'fastest':>11}{'slowest':>11}  goal")
    print(
        row(
            "start of the process to the first answer",
            [s.start for s in samples],
            GOAL_START_SECONDS,
        )
    )
    print(row("a bounded read", [each for s in samples for each in s.reads], GOAL_READ_SECONDS))
    print(row("a page of a list", [each for s in samples for each in s.lists]))
    print(row("a ranked search", [each for s in samples for each in s.searches]))


if __name__ == "__main__":
    main()
