"""Measure host and worker communication: `python benchmarks/round_trips.py --rounds 200`.

Every figure is microseconds per unit (a cell, a call, a batch) through `LocalEnvironment`, as in a
run. `median` and `p90` are wall time; on a busy machine use the CPU time, which is given for host
and worker separately. No model is called.
"""

import argparse
import asyncio
import gc
import json
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from rlm.environments.local import LocalEnvironment
from rlm.limits import Limits
from rlm.protocols import Session

FIVE_LINES = """\
rows = [line.split(",") for line in "a,1\\nb,2\\nc,3".splitlines()]
total = 0
for name, number in rows:
    total += int(number)
print(f"{len(rows)} rows, total {total}")
"""
CALL = "llm_query('x')"
WARM_UP_SECONDS = 0.5
THREADS = """\
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(20)
def ask_all(rounds):
    return list(pool.map(llm_query, ["x"] * 20 * rounds))
"""


class Scenario(NamedTuple):
    """A cell that is run many times; `units` is how many counted units one cell holds."""

    name: str
    cell: str
    units: int = 1
    setup: str = ""


SCENARIOS = (
    Scenario("cell `x = 1`", "x = 1"),
    Scenario("cell of five lines", FIVE_LINES),
    Scenario("callback", f"for _ in range(50): {CALL}", units=50),
    Scenario("callback, awaited", f"for _ in range(50): await {CALL}", units=50),
    Scenario(
        "batch of 1,000",
        "replies = llm_query_batched(prompts)",
        setup="prompts = [f'prompt {n}' for n in range(1000)]",
    ),
    Scenario("call of 20 threads", "replies = ask_all(5)", units=100, setup=THREADS),
)


class Figures(NamedTuple):
    """Microseconds per unit of a scenario."""

    name: str
    median: float
    p90: float
    fastest: float
    host_cpu: float
    worker_cpu: float


class InstantHost:
    """Answers every prompt at once, so that only the round trip is measured."""

    async def answer(
        self, kind: str, arguments: dict[str, Any], parts: Sequence[str]
    ) -> tuple[dict[str, Any], Sequence[str]]:
        return {"failed": {}}, parts


async def run(session: Session, code: str) -> str:
    result = await session.execute(code, timeout_seconds=60)
    if result.error is not None:
        sys.exit(result.error.traceback)
    return result.stdout


async def worker_cpu_ns(session: Session) -> int:
    return int(await run(session, "import time; print(time.process_time_ns())"))


async def measure(session: Session, scenario: Scenario, rounds: int) -> Figures:
    await run(session, scenario.setup)
    until = time.perf_counter() + WARM_UP_SECONDS
    while time.perf_counter() < until:  # It takes the scheduler a while to use two processors.
        await run(session, scenario.cell)
    walls = []
    worker_before, host_before = await worker_cpu_ns(session), time.process_time_ns()
    for _ in range(rounds):
        started = time.perf_counter_ns()
        await session.execute(scenario.cell, timeout_seconds=60)
        walls.append(time.perf_counter_ns() - started)
    host_cpu = time.process_time_ns() - host_before
    worker_cpu = await worker_cpu_ns(session) - worker_before
    unit = 1_000 * scenario.units
    return Figures(
        scenario.name,
        statistics.median(walls) / unit,
        sorted(walls)[len(walls) * 9 // 10] / unit,
        min(walls) / unit,
        host_cpu / (rounds * unit),
        worker_cpu / (rounds * unit),
    )


async def measure_all(rounds: int, python: str) -> list[Figures]:
    environment = LocalEnvironment(python=python)
    options = {"cell_memory_bytes": Limits().cell_memory_bytes}
    session = await environment.open(InstantHost(), options)
    await asyncio.sleep(1)  # The zygote is still making the sessions it keeps ready.
    gc.freeze()
    try:
        return [
            await measure(session, each, rounds if each.units == 1 else max(1, rounds // 10))
            for each in SCENARIOS
        ]
    finally:
        await environment.close()


def table(figures: list[Figures]) -> str:
    head = f"{'microseconds each':<22}{'median':>9}{'p90':>9}{'fastest':>9}{'host CPU':>10}"
    lines = [f"{head}{'worker CPU':>12}"]
    for name, *numbers in figures:
        median, p90, fastest, host_cpu, worker_cpu = (f"{number:,.0f}" for number in numbers)
        lines.append(f"{name:<22}{median:>9}{p90:>9}{fastest:>9}{host_cpu:>10}{worker_cpu:>12}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=500, help="cells per scenario")
    parser.add_argument("--python", default=sys.executable, help="the worker's interpreter")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    figures = asyncio.run(measure_all(options.rounds, options.python))
    print(json.dumps([each._asdict() for each in figures]) if options.json else table(figures))


if __name__ == "__main__":
    main()
