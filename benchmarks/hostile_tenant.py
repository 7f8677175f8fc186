"""Measure what others notice of a hostile tenant: `python benchmarks/hostile_tenant.py`.

`rlm serve`, `rlm mcp --http` and `rlm view` run as processes on loopback addresses. Ordinary
clients make the same requests three times: while it is quiet, while one tenant runs all attacks,
and as a control, while a program that asks nothing uses as much processor time as the hostile
client did. The tables show medians and 99th percentiles of the others, and the outcome of the
hostile requests. Every phase ends after a number of requests or seconds. The hostile client is a
process of its own with the lowest priority: it stands for another machine, whose processors the
server does not share. The control shows how far it shares them nevertheless.
"""

import argparse
import asyncio
import json
import os
import select
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.hostile import gateway, server, viewer
from benchmarks.hostile.parts import Attack, Part
from benchmarks.machine import describe_machine, in_lines, load_average

PARTS = {"server": server, "gateway": gateway, "viewer": viewer}
OTHERS_AT_ONCE = 2
WARM_UP = 3
MAX_SECONDS = 10.0
"""An ordinary request that takes longer has failed."""

LOWEST_PRIORITY = 19
BUSY_SECONDS = 0.02
"""How often the control is busy for a part of the time."""


class Latencies(NamedTuple):
    """Seconds of the answered requests, and the number of unanswered ones."""

    seconds: list[float]
    failed: int

    def at(self, share: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


async def ask_others(part: Part, requests: int, seconds: float) -> Latencies:
    """Make ordinary requests, some at a time, until there are enough or time is up."""
    found: list[float] = []
    failed, left, until = 0, requests, time.monotonic() + seconds

    async def one_client() -> None:
        nonlocal failed, left
        async with part.other() as ask:
            for _ in range(WARM_UP):
                with suppress(OSError, TimeoutError):
                    async with asyncio.timeout(MAX_SECONDS):
                        await ask()
            while left > 0 and time.monotonic() < until:
                left -= 1
                started = time.perf_counter()
                try:
                    async with asyncio.timeout(MAX_SECONDS):
                        is_answered = await ask()
                except (OSError, TimeoutError):
                    is_answered = False
                if is_answered:
                    found.append(time.perf_counter() - started)
                else:
                    failed += 1

    await asyncio.gather(*(one_client() for _ in range(OTHERS_AT_ONCE)))
    return Latencies(found, failed)


async def repeat(attack: Attack, outcomes: Counter[str]) -> None:
    """Repeat one hostile case until it is cancelled."""
    while True:
        try:
            async with asyncio.timeout(attack.max_seconds):
                outcomes[f"{attack.name}: {await attack.send()}"] += 1
        except TimeoutError:
            outcomes[f"{attack.name}: given up after {attack.max_seconds:g} s"] += 1
        except OSError as error:
            outcomes[f"{attack.name}: {type(error).__name__}"] += 1
        await asyncio.sleep(attack.pause_seconds)


async def attack(options: argparse.Namespace) -> None:
    """Run the attacks on a part until standard input ends, then print their outcomes."""
    os.nice(LOWEST_PRIORITY)
    started = time.monotonic()
    name, address, folder = options.attack
    outcomes: Counter[str] = Counter()
    async with PARTS[name].attacks(address, Path(folder)) as attacks:
        chosen = [each for each in attacks if each.name not in options.without]
        if options.case:
            chosen = [each for each in chosen if each.name in options.case]
        tasks = [asyncio.create_task(repeat(each, outcomes)) for each in chosen]
        await asyncio.to_thread(sys.stdin.read)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    found = {
        "cases": [each.name for each in chosen],
        "hostile requests": dict(sorted(outcomes.items())),
        "hostile client, processors": time.process_time() / (time.monotonic() - started),
    }
    print(json.dumps(found))


def be_busy(share: float) -> None:
    """Use this share of a processor until standard input ends."""
    os.nice(LOWEST_PRIORITY)
    pause = BUSY_SECONDS * max(0.0, 1.0 - share)
    while not select.select([sys.stdin], [], [], pause)[0]:
        until = time.thread_time() + BUSY_SECONDS * share
        while time.thread_time() < until:
            pass


async def start_beside(*options: str) -> asyncio.subprocess.Process:
    """Start this program once more, as the hostile client or as the control."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, __file__, *sys.argv[1:], *options),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )


async def ask_beside(
    part: Part, options: argparse.Namespace, *beside: str
) -> tuple[Latencies, bytes]:
    """Measure the others while this program runs beside them; return what that printed, too."""
    running = await start_beside(*beside)
    try:
        await asyncio.sleep(options.head_start)
        found = await ask_others(part, options.requests, options.seconds)
    finally:
        printed, _ = await running.communicate(b"")
    return found, printed


async def measure(name: str, options: argparse.Namespace) -> dict[str, object]:
    """Measure one part: quiet, attacked, and beside the control."""
    with tempfile.TemporaryDirectory() as folder:
        async with asynccontextmanager(PARTS[name].part)(Path(folder)) as part:
            quiet = await ask_others(part, options.requests, options.seconds)
            hostile = ("--attack", name, part.address, folder)
            attacked, printed = await ask_beside(part, options, *hostile)
            outcomes = json.loads(printed)
            busy = ("--busy", str(outcomes["hostile client, processors"]))
            control, _ = await ask_beside(part, options, *busy)
    return {
        "others, quiet": summarized(quiet),
        "others, attacked": summarized(attacked),
        "others, beside a busy program": summarized(control),
        "attacked p99, times the quiet one": times(attacked, quiet),
        "p99 beside a busy program, times the quiet one": times(control, quiet),
        **outcomes,
    }


def times(found: Latencies, quiet: Latencies) -> float:
    return round(found.at(0.99) / max(quiet.at(0.99), 1e-9), 2)


def summarized(found: Latencies) -> dict[str, object]:
    return {
        "answered": len(found.seconds),
        "failed": found.failed,
        "p50 ms": round(1_000 * found.at(0.5), 2),
        "p99 ms": round(1_000 * found.at(0.99), 2),
    }


def options_of(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="else all of them")
    parser.add_argument("--requests", type=int, default=200, help="of the others, in each phase")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each phase, at most")
    parser.add_argument("--head-start", type=float, default=3.0, help="seconds of attack alone")
    parser.add_argument("--without", action="append", default=[], help="a case to leave out")
    parser.add_argument("--case", action="append", default=[], help="a case to send, and no other")
    parser.add_argument("--attack", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--busy", type=float, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


async def main(arguments: Sequence[str] | None = None) -> None:
    options = options_of(arguments)
    if options.attack:
        await attack(options)
        return
    if options.busy is not None:
        be_busy(options.busy)
        return
    facts: dict[str, object] = {**describe_machine(), "load at start": load_average()}
    work: dict[str, Awaitable[dict[str, object]]] = {
        name: measure(name, options) for name in (options.parts or PARTS)
    }
    for name, measuring in work.items():
        facts[name] = {"load before": load_average(), **await measuring}
    print(in_lines({**facts, "load at end": load_average()}))


if __name__ == "__main__":
    asyncio.run(main())
