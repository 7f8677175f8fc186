"""The contender's side: read one request from standard input, print its outcome.

A process runs one scenario and ends, so scenarios cannot affect each other.
"""

import json
import os
import resource
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.processes import descendants, peak_bytes, reset_peak

__all__ = [
    "CantDo",
    "Meter",
    "Peak",
    "bytes_in",
    "context_of",
    "cpu_below",
    "crowd_outcome",
    "faster",
    "serve",
    "since_start",
]

_LINE = "%08d a line of a context, as long as the lines of many logs are, more or less ....\n"
_TICKS = os.sysconf("SC_CLK_TCK")


class CantDo(Exception):
    """The engine does not support a scenario; the text says why."""


def serve(scenarios: Mapping[str, Callable[..., dict[str, Any]]]) -> None:
    """Run the requested scenario; redirect the engine's output to standard error."""
    asked = json.loads(sys.stdin.readline())
    kept = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    reported: dict[str, Any]
    try:
        reported = {"metrics": scenarios[asked["scenario"]](**asked["options"])}
    except CantDo as reason:
        reported = {"cannot": str(reason)}
    except Exception as error:  # noqa: BLE001 - another engine's failure is an outcome
        reported = {"error": f"{type(error).__name__}: {error}"[:500]}
        traceback.print_exc()
    kept.write(json.dumps(reported) + "\n")
    kept.flush()
    os._exit(0)  # Threads that an engine left behind are not waited for.


def context_of(size: int) -> str:
    """Return lines of text with this many bytes."""
    block = "".join(_LINE % number for number in range(10_000))
    return (block * (size // len(block) + 1))[:size]


def bytes_in(folder: str) -> int:
    """Return the size of all files below a folder."""
    return sum(each.stat().st_size for each in Path(folder).rglob("*") if each.is_file())


# -- processor time and memory --------------------------------------------------------------------


class Meter:
    """Wall time, and processor time of this process and all below it."""

    def __init__(self) -> None:
        self.walls: list[float] = []
        self.cpus: list[float] = []

    @contextmanager
    def __call__(self) -> Generator[None, None, None]:
        cpu, began = _cpu_seconds(), time.perf_counter()
        yield
        self.walls.append(time.perf_counter() - began)
        self.cpus.append(_cpu_seconds() - cpu)

    def each(self, units: int = 1) -> dict[str, Any]:
        """Return wall and processor seconds per unit."""
        return {
            "wall_seconds": [each / units for each in self.walls],
            "cpu_seconds": [each / units for each in self.cpus],
        }

    def above(self, base: "Meter", units: int) -> list[float]:
        """Return the processor seconds per unit, without the cost of a run."""
        least = statistics.median(base.cpus)
        return [max(0.0, each - least) / units for each in self.cpus]


def _cpu_seconds() -> float:
    return time.process_time() + cpu_below()


def cpu_below() -> float:
    """Return the processor seconds of all descendants; to a hundredth for ended ones."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = ended.ru_utime + ended.ru_stime
    for pid in descendants():
        try:
            on_cpu = int(Path(f"/proc/{pid}/schedstat").read_text("utf-8").split()[0])
            fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        total += on_cpu / 1e9 + (int(fields[13]) + int(fields[14])) / _TICKS
    return total


class Peak:
    """The growth of this process's peak memory, plus the memory of its descendants.

    Files in memory count too; pages shared with a parent count in part.
    """

    def __init__(self) -> None:
        self._before = reset_peak()
        self._below = _anonymous_below()

        self.highest = 0

    def look(self) -> int:
        """Update and return the highest value so far."""
        now = peak_bytes() - self._before + _memory_files() + _anonymous_below() - self._below
        self.highest = max(self.highest, now)
        return self.highest


def _anonymous_below() -> int:
    total = 0
    for pid in descendants():
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8").splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:"))
    return total * 1024


def _memory_files() -> int:
    """Return the bytes of unmapped files in memory that this process holds open."""
    files, mapped = {}, 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            if str(link.readlink()).startswith("/memfd:"):
                reported = link.stat()
                files[reported.st_ino] = reported.st_blocks * 512
        except OSError:
            continue
    for line in Path("/proc/self/status").read_text("utf-8").splitlines():
        if line.startswith("RssShmem:"):
            mapped = int(line.split()[1]) * 1024
    return max(0, sum(files.values()) - mapped)


# -- many at once ---------------------------------------------------------------------------------


def since_start() -> float:
    """Return the seconds since this process started, to a hundredth."""
    fields = Path("/proc/self/stat").read_text("utf-8").rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / _TICKS


def faster(shipped: dict[str, Any], widened: dict[str, Any]) -> dict[str, Any]:
    """Return the better of two settings of an engine, by median."""
    ways = {"as shipped": shipped, "widened": widened}
    best = min(ways, key=lambda way: statistics.median(ways[way]["wall_seconds"]))
    return {**ways[best], "as_shipped_seconds": shipped["wall_seconds"], "setting": [best]}


def crowd_outcome(meter: Meter, answers: list[Any], wanted: list[str], ideal: float) -> Any:
    """Return the time of many runs as a multiple of the ideal, and how many were right."""
    right = sum(str(answer) == want for answer, want in zip(answers, wanted, strict=True))
    return {**meter.each(), "of_ideal": [each / ideal for each in meter.walls], "right": [right]}
