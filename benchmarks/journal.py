"""Measure the cost of a journal: `python benchmarks/journal.py`.

The same run with and without a journal, alternating, in one process, with a model that answers at
once: the difference is the cost of the journal, including events. Then how fast a run resumes, how
large its journal is, and how fast its events are read.
"""

import argparse
import asyncio
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.machine import describe_machine, in_lines, load_average
from rlm import RLM, Limits, ModelError, RunResult, ScriptedClient
from rlm.events import CellEnded, CellStarted, Event
from rlm.messages import ModelInfo, Reply, Request, Usage
from rlm.protocols import Recorder
from rlm.records.journal import Places, database, events_of

PROMPT = "What is the capital of the country with number"
SEQUENTIAL = """\
import time
started = time.perf_counter()
for number in range({calls}):
    llm_query(f"{prompt} {{number}}?")
FINAL((time.perf_counter() - started) / {calls})
"""
BATCH = """\
import time
prompts = [f"{prompt} {{number}}?" for number in range({calls})]
started = time.perf_counter()
replies = llm_query_batched(prompts)
FINAL((time.perf_counter() - started) / {calls})
"""
WAYS = {"one call after the other": SEQUENTIAL, "items of one batch": BATCH}
GOALS = {"one call after the other": 40, "items of one batch": 15}
RUN_ID = "20261115-120000-000-abcdef01"
MEMORY = Path("/dev/shm")  # noqa: S108 - a file system in memory, not a place for secrets


class InstantClient:
    """A client that answers every call at once, with a reply of the usual size."""

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        return Reply(text="Paris, on the Seine.", usage=Usage(30, 6), model="instant")

    async def stream(
        self, request: Request, *, timeout_seconds: float
    ) -> AsyncIterator[str | Reply]:
        yield await self.complete(request, timeout_seconds=timeout_seconds)

    def info(self, model: str) -> ModelInfo:
        return ModelInfo()

    async def close(self) -> None:
        pass


class Sample(NamedTuple):
    """Seconds per call: wall time of the cell, and CPU time of this process."""

    wall: float
    cpu: float


def cell(code: str, calls: int) -> str:
    return f"```repl\n{code.format(prompt=PROMPT, calls=calls)}```"


class Stopwatch:
    """Measures processor time of this process while a cell runs."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def record(self, event: Event) -> None:
        if isinstance(event, CellStarted):
            self.seconds -= time.process_time()
        elif isinstance(event, CellEnded):
            self.seconds += time.process_time()


async def run(
    script: list[Any], journal: Path | None, recorders: tuple[Recorder, ...] = ()
) -> RunResult:
    options: dict[str, Any] = {"sub_model": InstantClient(), "limits": Limits(max_calls=10**6)}
    rlm = RLM(ScriptedClient(script), journal=journal, **options)
    try:
        run_id = RUN_ID if journal else None
        return await rlm.aask("How long?", "", recorders=recorders, run_id=run_id)
    finally:
        await rlm.aclose()


async def sample(code: str, calls: int, journal: Path | None) -> Sample:
    gc.collect()
    stopwatch = Stopwatch()
    result = await run([cell(code, calls)], journal, (stopwatch,))
    if result.answer is None:
        sys.exit(f"the run ended without an answer: {result.detail}")
    return Sample(float(result.answer), stopwatch.seconds / calls)


async def costs(disks: dict[str, Path], calls: int, rounds: int) -> dict[str, Any]:
    """Measure each way to call without a journal, and with one on each disk."""
    found: dict[str, Any] = {}
    for way, code in WAYS.items():
        samples: dict[str, list[Sample]] = {name: [] for name in ("no journal", *disks)}
        for _ in range(rounds):
            samples["no journal"].append(await sample(code, calls, None))
            for name, disk in disks.items():
                with tempfile.TemporaryDirectory(dir=disk) as folder:
                    samples[name].append(await sample(code, calls, Path(folder)))
        found[way] = samples
    return found


# -- what is in a journal -------------------------------------------------------------------------


async def contents(disk: Path, calls: int, rounds: int) -> dict[str, list[float]]:
    """Resume a run with a number of replies; measure the size and reading of its journal."""
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=disk) as folder:
            figures = await _content(Path(folder), calls)
        for name, figure in figures.items():
            found.setdefault(name, []).append(figure)
    return found


async def _content(folder: Path, calls: int) -> dict[str, float]:
    asking = cell(BATCH.replace("FINAL", "print"), calls)
    with suppress(ModelError):
        await run([asking, ModelError("down")], folder)
    path = Places(folder).journal_of(RUN_ID)
    size = path.stat().st_size
    with database.reading(path) as connection:
        (of_replies,) = connection.execute("select sum(length(records)) from replies").fetchone()
        (of_events,) = connection.execute("select sum(length(lines)) from events").fetchone()
    started = time.perf_counter()
    lines = sum(1 for _ in events_of(path))
    reading = time.perf_counter() - started
    resumed = await run(["```repl\nFINAL(len(replies))\n```"], folder)
    if resumed.answer != str(calls):
        sys.exit(f"the run was not resumed: {resumed.answer}")
    seconds = next(event.seconds for event in resumed.events if isinstance(event, CellEnded))
    return {
        "replies recalled a second": calls / seconds,
        "bytes of file a reply": size / calls,
        "bytes of reply a reply": of_replies / calls,
        "bytes of events a reply": of_events / calls,
        "events read a second": lines / reading,
        "MB of events read a second": of_events / reading / 1e6,
    }


# -- tables ---------------------------------------------------------------------------------------


def quartiles(numbers: list[float]) -> tuple[float, float, float]:
    if len(numbers) == 1:
        return numbers[0], numbers[0], numbers[0]
    low, middle, high = statistics.quantiles(numbers, n=4, method="inclusive")
    return low, middle, high


def table_of_costs(way: str, samples: dict[str, list[Sample]]) -> str:
    """Return medians, and the median difference between neighbouring samples."""
    head = f"{way:<26}{'wall':>8}{'CPU':>8}{'more wall':>11}{'more CPU':>10}"
    lines = [f"{head}  half of it within  fastest: more wall, CPU"]
    plain = samples["no journal"]
    for name, measured in samples.items():
        wall, cpu = (statistics.median(column) * 1e6 for column in zip(*measured, strict=True))
        line = f"  {name:<24}{wall:>8.1f}{cpu:>8.1f}"
        if measured is not plain:
            line += _more(measured, plain)
        lines.append(line)
    lines.append(f"  goal: at most {GOALS[way]} more")
    return "\n".join(lines)


def _more(measured: list[Sample], plain: list[Sample]) -> str:
    pairs = list(zip(measured, plain, strict=True))
    _, wall, _ = quartiles([(one.wall - other.wall) * 1e6 for one, other in pairs])
    low, cpu, high = quartiles([(one.cpu - other.cpu) * 1e6 for one, other in pairs])
    best = [
        (min(one) - min(other)) * 1e6
        for one, other in zip(zip(*measured, strict=True), zip(*plain, strict=True), strict=True)
    ]
    within = f"{low:.1f} to {high:.1f}"
    return f"{wall:>11.1f}{cpu:>10.1f}  {within:<17}  {best[0]:.1f}, {best[1]:.1f}"


def table_of_contents(name: str, figures: dict[str, list[float]]) -> str:
    lines = [f"{f'journal on {name}':<30}{'median':>12}  half of them within"]
    for what, numbers in figures.items():
        low, middle, high = quartiles(numbers)
        lines.append(f"  {what:<28}{middle:>12,.0f}  {low:,.0f} to {high:,.0f}")
    return "\n".join(lines)


async def measure(disks: dict[str, Path], calls: int, rounds: int) -> dict[str, Any]:
    await run([cell(SEQUENTIAL, 50)], None)  # Imports, and the first session.
    return {
        "costs": await costs(disks, calls, rounds),
        "contents": {
            name: await contents(disk, calls, max(1, rounds // 3)) for name, disk in disks.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=1_000, help="calls of each run")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--disk", type=Path, default=Path(), help="a folder on a real disk")
    parser.add_argument("--json", action="store_true", help="print samples instead of tables")
    given = parser.parse_args()
    disks = {"disk": given.disk}
    if MEMORY.is_dir():
        disks["memory"] = MEMORY
    found = asyncio.run(measure(disks, given.calls, given.rounds))
    if given.json:
        print(json.dumps({**found, "machine": describe_machine()}))
        return
    print(f"microseconds a call, medians of {given.rounds} rounds of {given.calls:,} calls")
    for way, samples in found["costs"].items():
        print(table_of_costs(way, samples))
    for name, figures in found["contents"].items():
        print(table_of_contents(name, figures))
    print(in_lines({**describe_machine(), "load": load_average()}))


if __name__ == "__main__":
    main()
