"""Measure what others notice of a hostile tenant: `python benchmarks/hostile_tenant.py`.

`rlm serve`, `rlm mcp --http` and `rlm view` run as processes on loopback addresses. Ordinary
clients make the same requests twice: while it is quiet, and while one tenant runs all attacks. The
tables show medians and 99th percentiles of the others, and the outcome of the hostile requests.
Every phase ends after a number of requests or seconds.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.hostile import gateway, server, viewer
from benchmarks.hostile.parts import Attack, Part
from benchmarks.machine import describe_machine, in_lines, load_average

PARTS: dict[str, Callable[[Path], "AsyncGenerator[Part, None]"]] = {
    "server": server.part,
    "gateway": gateway.part,
    "viewer": viewer.part,
}
OTHERS_AT_ONCE = 2
WARM_UP = 3
MAX_SECONDS = 10.0
"""An ordinary request that takes longer has failed."""


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


@asynccontextmanager
async def under_attack(attacks: Sequence[Attack]) -> AsyncGenerator[Counter[str], None]:
    outcomes: Counter[str] = Counter()
    tasks = [asyncio.create_task(repeat(attack, outcomes)) for attack in attacks]
    try:
        yield outcomes
    finally:
        for task in tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)


async def measure(name: str, options: argparse.Namespace) -> dict[str, object]:
    """Measure one part, quiet and attacked."""
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            part = await stack.enter_async_context(asynccontextmanager(PARTS[name])(Path(folder)))
            attacks = [each for each in part.attacks if each.name not in options.without]
            if options.case:
                attacks = [each for each in attacks if each.name in options.case]
            quiet = await ask_others(part, options.requests, options.seconds)
            async with under_attack(attacks) as outcomes:
                await asyncio.sleep(options.head_start)
                attacked = await ask_others(part, options.requests, options.seconds)
    return {
        "cases": [each.name for each in attacks],
        "others, quiet": summarized(quiet),
        "others, attacked": summarized(attacked),
        "p99, times its quiet value": round(attacked.at(0.99) / max(quiet.at(0.99), 1e-9), 2),
        "hostile requests": dict(sorted(outcomes.items())),
    }


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
    parser.add_argument("--head-start", type=float, default=1.0, help="seconds of attack alone")
    parser.add_argument("--without", action="append", default=[], help="a case to leave out")
    parser.add_argument("--case", action="append", default=[], help="a case to send, and no other")
    return parser.parse_args(arguments)


async def main(arguments: Sequence[str] | None = None) -> None:
    options = options_of(arguments)
    facts: dict[str, object] = {**describe_machine(), "load at start": load_average()}
    work: dict[str, Awaitable[dict[str, object]]] = {
        name: measure(name, options) for name in (options.parts or PARTS)
    }
    for name, measuring in work.items():
        facts[name] = await measuring
    print(in_lines({**facts, "load at end": load_average()}))


if __name__ == "__main__":
    asyncio.run(main())
