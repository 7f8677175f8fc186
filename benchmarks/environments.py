"""Measure the environments: `python benchmarks/environments.py local docker wasm`.

Without names it takes those that can be used here and cost no money. Options of an environment are
given as `--option docker.image=IMAGE`. No model is called. Each environment is measured from its
first session to its last, one after the other.
"""

import argparse
import asyncio
import logging
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: its folder is on the path, but not the one above
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.machine import describe_machine, in_lines, load_average
from benchmarks.measures.talk import CALLBACKS
from rlm.cli._environment_checks import options_of
from rlm.cli._options import key_and_value
from rlm.errors import RLMError
from rlm.protocols import Environment, Session
from rlm.testing.conformance.bench import stored
from rlm.wiring.registry import environments, make_environment

_OPTIONS = {"seed": 0, "tools": [], "cell_memory_bytes": 512 << 20}
_CONTEXT_CHARS = 10_000_000
_SETTLE_SECONDS = 0.5
ROWS = (
    "first session, ms",
    "later session, ms",
    "cell, µs",
    "cell after a pause, µs",
    "callback, µs",
    "batch of 100, ms",
    "context of 10 MB, ms",
    "close, ms",
)


class _Host:
    """A host that answers at once."""

    async def answer(
        self, kind: str, arguments: dict[str, Any], parts: Sequence[str]
    ) -> tuple[dict[str, Any], Sequence[str]]:
        return {}, list(parts)


async def measured(environment: Environment, rounds: int) -> dict[str, float]:
    """Return the median of each row, in the unit of its name."""
    found: dict[str, float] = {}
    started = time.perf_counter()
    session = await environment.open(_Host(), dict(_OPTIONS))
    await session.execute("x = 1", timeout_seconds=60)
    found["first session, ms"] = 1e3 * (time.perf_counter() - started)
    await asyncio.sleep(_SETTLE_SECONDS)
    found.update(await _talk(session, rounds))
    found["context of 10 MB, ms"] = 1e3 * await _context(session)
    await session.close()
    opened, closed = [], []
    for _ in range(max(3, rounds // 5)):
        await asyncio.sleep(_SETTLE_SECONDS)
        started = time.perf_counter()
        session = await environment.open(_Host(), dict(_OPTIONS))
        opened.append(time.perf_counter() - started)
        started = time.perf_counter()
        await session.close()
        closed.append(time.perf_counter() - started)
    found["later session, ms"] = 1e3 * statistics.median(opened)
    found["close, ms"] = 1e3 * statistics.median(closed)
    return found


async def _talk(session: Session, rounds: int) -> dict[str, float]:
    cells, paused = [], []
    for pause, samples in ((0.0, cells), (0.05, paused)):
        for _ in range(rounds):
            await asyncio.sleep(pause)
            started = time.perf_counter()
            await session.execute("x = 1", timeout_seconds=60)
            samples.append(time.perf_counter() - started)
    await session.execute("prompts = ['x'] * 100", timeout_seconds=60)
    batch = await _timed_inside(session, "llm_query_batched(prompts)", rounds)
    return {
        "cell, µs": 1e6 * statistics.median(cells),
        "cell after a pause, µs": 1e6 * statistics.median(paused),
        "callback, µs": 1e6 * await _timed_inside(session, "llm_query('x')", rounds),
        "batch of 100, ms": 1e3 * batch,
    }


async def _timed_inside(session: Session, call: str, count: int) -> float:
    """Measure inside the cell, so that the round trip of the cell does not count."""
    result = await session.execute(CALLBACKS.format(call=call, count=count), timeout_seconds=600)
    if result.error is not None:
        raise RuntimeError(result.error.traceback)
    return statistics.median(map(float, result.stdout.split()))


async def _context(session: Session) -> float:
    """Measure until the cell has read the end of a context; counting and hashing do not count."""
    context = stored("0123456789" * (_CONTEXT_CHARS // 10))
    started = time.perf_counter()
    await session.load("context", context)
    result = await session.execute("context[-1]", timeout_seconds=60)
    seconds = time.perf_counter() - started
    assert result.stdout == "'9'\n"
    return seconds


async def _one(name: str, options: dict[str, Any], rounds: int) -> dict[str, float] | str:
    environment = make_environment(name, options)
    ask = getattr(environment, "problem", None)
    if ask is not None and (problem := ask()) is not None:
        return str(problem)
    try:
        return await measured(environment, rounds)
    except (RLMError, OSError) as error:
        return str(error)
    finally:
        await environment.close()


def _free() -> list[str]:
    """Names of environments that cost no money."""
    return [name for name in environments() if name not in ("modal", "prime", "e2b", "daytona")]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="environments, by default all that are free")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--option", type=key_and_value, action="append", default=[])
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    found = {}
    for name in given.names or _free():
        print(f"{name} …", file=sys.stderr, flush=True)
        options = options_of(name, tuple(given.option))
        found[name] = asyncio.run(_one(name, options, given.rounds))
    measured_ones = {name: each for name, each in found.items() if not isinstance(each, str)}
    print(in_lines({**describe_machine(), "load": load_average()}), end="\n\n")
    print("| |", " | ".join(measured_ones), "|")
    print("|---|" + "---:|" * len(measured_ones))
    for row in ROWS:
        print(f"| {row} |", " | ".join(f"{each[row]:,.3g}" for each in measured_ones.values()), "|")
    for name, each in found.items():
        if isinstance(each, str):
            print(f"\nNot measured: {name}: {each}")


if __name__ == "__main__":
    main()
