"""Measure the cost of a run for driver and node, locally and on Ray.

    python benchmarks/scale_out.py local ray --runs 200 --concurrency 8

The model answers at once. Each run has two steps, with a cell each, and a call; `--steps 10` makes
that ten and nine. CPU time is reported separately for this process, which no cluster can take over,
and for everything that Ray or the sandbox runs below it.
"""

import argparse
import asyncio
import os
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rlm import RLM, ScriptedClient
from rlm.environments.local import LocalEnvironment
from rlm.environments.ray import RayEnvironment
from rlm.protocols import Environment

TICKS = os.sysconf("SC_CLK_TCK")
LOOK = "```repl\nprint('look' + 'ed', {number}, len(context), llm_query('part {number}'))\n```"
END = "```repl\nFINAL(context[:5])\n```"


class Cost(NamedTuple):
    """The cost of all runs together, in seconds."""

    wall: float
    driver_cpu: float
    node_cpu: float


def reply(request: Any, steps: int) -> str:
    """Return the reply of a step: all but the last look and call the model once more."""
    text = "".join(str(message.content) for message in request.messages)
    if "question" not in text:
        return "a part of it"
    looks = text.count("looked")
    return END if looks >= steps - 1 else LOOK.format(number=looks)


def cpu_below(roots: set[int]) -> float:
    """Return the CPU seconds of processes and all below them, including ended ones."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        pid = int(stat.parent.name)
        parents[pid] = int(words[1])
        used[pid] = sum(map(int, words[11:15])) / TICKS
    found = set(roots)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sum(used.get(pid, 0.0) for pid in found)


async def measure(name: str, runs: int, concurrency: int, steps: int, context: str) -> Cost:
    """Make some runs to warm up, then all of them, with limited concurrency."""
    place: Environment = RayEnvironment() if name == "ray" else LocalEnvironment()
    room = asyncio.Semaphore(concurrency)

    def nodes_cpu() -> float:
        if isinstance(place, RayEnvironment):
            return cpu_below({host.process for host in place.hosts})
        return cpu_below({os.getpid()}) - time.process_time()

    engine = RLM(ScriptedClient(rules=[("", partial(reply, steps=steps))]), environment=place)

    async def one() -> None:
        async with room:
            assert (await engine.aask("question", context)).answer == context[:5]

    try:
        await asyncio.gather(*(one() for _ in range(concurrency)))
        wall, driver, nodes = time.monotonic(), time.process_time(), nodes_cpu()
        await asyncio.gather(*(one() for _ in range(runs)))
        wall, driver = time.monotonic() - wall, time.process_time() - driver
        return Cost(wall, driver, max(0.0, nodes_cpu() - nodes))
    finally:
        await engine.aclose()
        await place.close()


def main() -> None:
    """Measure the named environments, and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=["local", "ray"])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--context-bytes", type=int, default=100_000)
    given = parser.parse_args()
    context = ("a line of text\n" * (given.context_bytes // 15 + 1))[: given.context_bytes]
    print("| environment | runs/s | driver CPU ms a run | node CPU ms a run |")
    print("|---|---:|---:|---:|")
    for name in given.names:
        cost = asyncio.run(measure(name, given.runs, given.concurrency, given.steps, context))
        milliseconds = [1000 * seconds / given.runs for seconds in cost[1:]]
        rate = given.runs / cost.wall
        print(f"| {name} | {rate:.1f} | {milliseconds[0]:.1f} | {milliseconds[1]:.1f} |")


if __name__ == "__main__":
    main()
