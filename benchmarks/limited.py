"""Measure a job in a process with limits: `python benchmarks/limited.py [--rounds N]`.

Each round calls once when a process is ready, which is the usual case, and once when none is. The
job itself does almost nothing. `--json FILE` saves every sample.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: its folder is on the path, but not the one above
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.machine import describe_machine, in_lines, load_average
from rlm._util.limited import Jobs, _jobs
from rlm.engine.answer_types import answer_type

MODULE = "rlm.engine.answer_types._checking"
SCHEMA = json.dumps({"type": "object", "properties": {"name": {"type": "string"}}})
PAUSE_SECONDS = 0.05
"""Between two calls, so that a process is ready again."""


def timed(work: Callable[[], Any]) -> float:
    """Return milliseconds."""
    started = time.perf_counter()
    work()
    return 1_000 * (time.perf_counter() - started)


def measure(rounds: int) -> dict[str, list[float]]:
    jobs, loop = Jobs(MODULE), asyncio.new_event_loop()
    empty = ("try_patterns", [], "", None)
    found: dict[str, list[float]] = {
        "first call, fork server included": [timed(lambda: jobs.call(*empty))]
    }
    rows: dict[str, Callable[[], Any]] = {
        "a call, process ready": lambda: jobs.call(*empty),
        "a call from a coroutine, process ready": lambda: loop.run_until_complete(
            jobs.acall(*empty)
        ),
        "a small schema checked, process ready": lambda: jobs.call("check", SCHEMA),
    }
    for _ in range(rounds):
        for name, work in rows.items():
            time.sleep(PAUSE_SECONDS)
            found.setdefault(name, []).append(timed(work))
        time.sleep(PAUSE_SECONDS)
        while jobs._ready:
            jobs._ready.pop().close()
        found.setdefault("a call, process not ready", []).append(
            timed(rows["a call, process ready"])
        )
    jobs.close()
    loop.close()
    _jobs.FORKS = False
    for _ in range(max(1, rounds // 20)):
        found.setdefault("a call, new interpreter (no fork server)", []).append(
            timed(lambda: jobs.call(*empty))
        )
    return found


def shown(found: dict[str, list[float]]) -> str:
    lines = [f"{'milliseconds':44} {'best':>8} {'median':>8} {'90 %':>8} {'calls':>6}"]
    for name, samples in found.items():
        ordered = sorted(samples)
        tenth = ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]
        lines.append(
            f"{name:44} {ordered[0]:8.2f} {statistics.median(ordered):8.2f} {tenth:8.2f} "
            f"{len(ordered):6}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    answer_type({"type": "object"})  # what is imported once is not measured
    found = measure(options.rounds)
    print(in_lines(describe_machine()))
    print(f"load average: {load_average()}")
    print(shown(found))
    if options.json is not None:
        options.json.write_text(json.dumps(found), "utf-8")


if __name__ == "__main__":
    main()
