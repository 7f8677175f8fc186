"""The contender's side: one request on standard input, its outcome on standard output.

A process does one scenario and ends, so that nothing of one is left for the next.
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
    """The engine has nothing for a scenario; the text says why."""


def serve(scenarios: Mapping[str, Callable[..., dict[str, Any]]]) -> None:
    """Do what is asked. What an engine prints goes to standard error."""
    asked = json.loads(sys.stdin.readline())
    kept = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    told: dict[str, Any]
    try:
        told = {"metrics": scenarios[asked["scenario"]](**asked["options"])}
    except CantDo as reason:
        told = {"cannot": str(reason)}
    except Exception as error:  # noqa: BLE001 - another engine's failure is an outcome
        told = {"error": f"{type(error).__name__}: {error}"[:500]}
        traceback.print_exc()
    kept.write(json.dumps(told) + "\n")
    kept.flush()
    os._exit(0)  # Threads that an engine left behind are not waited for.


def context_of(size: int) -> str:
    """Lines of text, so many bytes of them."""
    block = "".join(_LINE % number for number in range(10_000))
    return (block * (size // len(block) + 1))[:size]


def bytes_in(folder: str) -> int:
    """Of all files below it."""
    return sum(each.stat().st_size for each in Path(folder).rglob("*") if each.is_file())


# -- processor time and memory --------------------------------------------------------------------


class Meter:
    """Seconds on the clock, and processor seconds of this process and of all below it."""

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
        """What one of so many units in a block took."""
        return {
            "wall_seconds": [each / units for each in self.walls],
            "cpu_seconds": [each / units for each in self.cpus],
        }

    def above(self, base: "Meter", units: int) -> list[float]:
        """Processor seconds of a unit, what a run costs without them taken off."""
        least = statistics.median(base.cpus)
        return [max(0.0, each - least) / units for each in self.cpus]


def _cpu_seconds() -> float:
    return time.process_time() + cpu_below()


def cpu_below() -> float:
    """Processor seconds of all below this process; of those that have ended, to a hundredth."""
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
    """The most memory this process had, above what it had before, and what those below it have.

    A file in memory belongs to it too; pages that are shared with a parent count in part.
    """

    def __init__(self) -> None:
        self._before = reset_peak()
        self._below = _anonymous_below()

        self.highest = 0

    def look(self) -> int:
        """The most there was so far, as far as it was looked at."""
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
    """Bytes of files in memory that this process holds open, as far as they are not mapped."""
    files, mapped = {}, 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            if str(link.readlink()).startswith("/memfd:"):
                told = link.stat()
                files[told.st_ino] = told.st_blocks * 512
        except OSError:
            continue
    for line in Path("/proc/self/status").read_text("utf-8").splitlines():
        if line.startswith("RssShmem:"):
            mapped = int(line.split()[1]) * 1024
    return max(0, sum(files.values()) - mapped)


# -- many at once ---------------------------------------------------------------------------------


def since_start() -> float:
    """Seconds since this process was started, to a hundredth."""
    fields = Path("/proc/self/stat").read_text("utf-8").rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / _TICKS


def faster(shipped: dict[str, Any], widened: dict[str, Any]) -> dict[str, Any]:
    """The better of two settings of an engine, by what it took in the middle."""
    ways = {"as shipped": shipped, "widened": widened}
    best = min(ways, key=lambda way: statistics.median(ways[way]["wall_seconds"]))
    return {**ways[best], "as_shipped_seconds": shipped["wall_seconds"], "setting": [best]}


def crowd_outcome(meter: Meter, answers: list[Any], wanted: list[str], ideal: float) -> Any:
    """How long a crowd of runs took, in multiples of the ideal, and how many were right."""
    right = sum(str(answer) == want for answer, want in zip(answers, wanted, strict=True))
    return {**meter.each(), "of_ideal": [each / ideal for each in meter.walls], "right": [right]}
