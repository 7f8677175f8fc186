"""Collect samples and print tables of them."""

import statistics
import time
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.processes import cpu_seconds

__all__ = ["Board", "Unit"]

Unit = Literal["µs", "ms", "MB"]

_PER_BASE: dict[Unit, float] = {"µs": 1e6, "ms": 1e3, "MB": 1e-6}
_NOTHING = "–"


@dataclass
class Samples:
    """The samples of one row and contender, in seconds or bytes, with their total CPU time."""

    values: list[float] = field(default_factory=list)
    host_cpu_seconds: float | None = None
    worker_cpu_seconds: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def p90(self) -> float:
        return sorted(self.values)[(len(self.values) * 9) // 10]


class Board:
    """Rows in the order in which they were announced, and the contenders."""

    def __init__(self, contenders: Sequence[str]) -> None:
        self.contenders = tuple(contenders)
        self.notes: list[str] = []
        self._units: dict[str, Unit] = {}
        self._samples: dict[tuple[str, str], Samples] = {}

    def announce(self, unit: Unit, *rows: str) -> None:
        """Add rows, which are shown even if they get no sample."""
        self._units.update(dict.fromkeys(rows, unit))

    def add(self, row: str, contender: str, *values: float) -> None:
        """Add samples, in seconds or bytes."""
        assert row in self._units, f"{row!r} was not announced"
        self._samples.setdefault((row, contender), Samples()).values += values

    def note(self, text: str) -> None:
        """Add a note below the tables, once."""
        if text not in self.notes:
            self.notes.append(text)

    @contextmanager
    def timed(self, row: str, contender: str) -> Generator[None, None, None]:
        """Add the duration of the block as a sample, unless it raises."""
        started = time.perf_counter()
        yield
        self.add(row, contender, time.perf_counter() - started)

    @contextmanager
    def cpu_metered(
        self, row: str, contender: str, pids: Collection[int]
    ) -> Generator[None, None, None]:
        """Add the CPU time of the block to a row; `pids` are those of the session."""
        mine, theirs = time.process_time(), cpu_seconds(pids)
        yield
        samples = self._samples.setdefault((row, contender), Samples())
        mine, theirs = time.process_time() - mine, cpu_seconds(pids) - theirs
        samples.host_cpu_seconds = (samples.host_cpu_seconds or 0.0) + mine
        if pids:
            samples.worker_cpu_seconds = (samples.worker_cpu_seconds or 0.0) + theirs

    # What is made of them.

    def summary(self) -> str:
        """Return a table of medians with one column per contender."""
        lines = [["median", "", *self.contenders]]
        for row, unit in self._units.items():
            cells = [self._cell(row, each, unit) for each in self.contenders]
            lines.append([row, unit, *cells])
        return _aligned(lines)

    def details(self) -> str:
        """Return a table with all figures, one line for each row and contender."""
        heads = ("median", "fastest", "p90", "samples", "host CPU", "worker CPU")
        lines = [["each", "", "contender", *heads]]
        for row, unit in self._units.items():
            head = [row, unit]
            for contender in self.contenders:
                samples = self._samples.get((row, contender))
                if samples is not None and samples.values:
                    lines.append([*head, contender, *_described(samples, unit)])
                    head = ["", ""]
        return _aligned(lines, words=3)

    def as_json(self) -> list[dict[str, Any]]:
        """Return all samples, in seconds or bytes."""
        return [
            {
                "row": row,
                "unit": "bytes" if unit == "MB" else "seconds",
                "contender": contender,
                "samples": samples.values,
                "host_cpu_seconds": samples.host_cpu_seconds,
                "worker_cpu_seconds": samples.worker_cpu_seconds,
            }
            for row, unit in self._units.items()
            for contender in self.contenders
            if (samples := self._samples.get((row, contender))) is not None
        ]

    def _cell(self, row: str, contender: str, unit: Unit) -> str:
        samples = self._samples.get((row, contender))
        if samples is None or not samples.values:
            return _NOTHING
        return _number(samples.median, unit)


def _described(samples: Samples, unit: Unit) -> list[str]:
    count = len(samples.values)
    cpus = (samples.host_cpu_seconds, samples.worker_cpu_seconds)
    return [
        _number(samples.median, unit),
        _number(min(samples.values), unit),
        _number(samples.p90, unit),
        f"{count:,}",
        *(_NOTHING if cpu is None else _number(cpu / count, unit) for cpu in cpus),
    ]


def _number(value: float, unit: Unit) -> str:
    number = value * _PER_BASE[unit]
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:,.2f}"


def _aligned(lines: list[list[str]], words: int = 2) -> str:
    """Align columns; the first `words` of them hold words, the others numbers."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rendered = []
    for line in lines:
        cells = [
            cell.ljust(width) if place < words else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        rendered.append("  ".join(cells).rstrip())
    return "\n".join(rendered)
