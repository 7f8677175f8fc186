"""Round trips: cells, and callbacks from cells to a host that answers at once."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from benchmarks.board import Board
from benchmarks.contenders import Contender, Opened
from benchmarks.measures import Bench
from benchmarks.round_trips import FIVE_LINES

__all__ = ["CALLBACKS", "callbacks", "cells"]

CELL = "cell `x = 1`"
FIVE = "cell of five lines"
PAUSED = "cell `x = 1` after a pause of 50 ms"
CALLBACK = "callback `llm_query('x')`, one after the other"
BATCH = "batch of 1,000 prompts"

_AT_A_TIME = 25
_WARM_UP = 5
_PAUSE_SECONDS = 0.05

# Timed where the cell waits for it: the way of the cell itself does not count.
CALLBACKS = """\
import time
samples = []
for _ in range({count}):
    started = time.perf_counter()
    {call}
    samples.append(time.perf_counter() - started)
print(*samples)
"""
_PROMPTS = "prompts = [f'prompt {n}' for n in range(1000)]"

Pair = tuple[Contender, Opened]


@asynccontextmanager
async def _all_open(bench: Bench) -> AsyncGenerator[list[Pair], None]:
    async with AsyncExitStack() as stack:
        yield [(each, await stack.enter_async_context(each.opened())) for each in bench.contenders]


async def cells(bench: Bench) -> None:
    """Run a few dozen cells with one contender, then the next, and repeat."""
    bench.board.announce("µs", CELL, FIVE, PAUSED)
    async with _all_open(bench) as pairs:
        for row, code in ((CELL, "x = 1"), (FIVE, FIVE_LINES)):
            left = bench.count(500)
            while left > 0:
                for contender, opened in pairs:
                    await _cells(bench.board, row, code, contender, opened, min(left, _AT_A_TIME))
                left -= _AT_A_TIME
        for _ in range(bench.count(100)):
            for contender, opened in pairs:
                await asyncio.sleep(_PAUSE_SECONDS)
                with bench.board.timed(PAUSED, contender.name):
                    await opened.session.execute("x = 1", timeout_seconds=60)


async def _cells(
    board: Board, row: str, code: str, contender: Contender, opened: Opened, count: int
) -> None:
    for _ in range(_WARM_UP):
        await opened.run(code)
    with board.cpu_metered(row, contender.name, opened.pids):
        for _ in range(count):
            with board.timed(row, contender.name):
                await opened.session.execute(code, timeout_seconds=60)


async def callbacks(bench: Bench) -> None:
    """Use the same order; a cell of callbacks counts as one visit."""
    bench.board.announce("µs", CALLBACK)
    bench.board.announce("ms", BATCH)
    async with _all_open(bench) as pairs:
        left = bench.count(500)
        while left > 0:
            for contender, opened in pairs:
                count = min(left, _AT_A_TIME)
                await _called(bench.board, CALLBACK, "llm_query('x')", contender, opened, count)
            left -= _AT_A_TIME
        for _, opened in pairs:
            await opened.run(_PROMPTS)
        for _ in range(bench.count(20)):
            for contender, opened in pairs:
                call = "llm_query_batched(prompts)"
                await _called(bench.board, BATCH, call, contender, opened, 1)


async def _called(
    board: Board, row: str, call: str, contender: Contender, opened: Opened, count: int
) -> None:
    await opened.run(call)
    with board.cpu_metered(row, contender.name, opened.pids):
        output = await opened.run(CALLBACKS.format(count=count, call=call))
    board.add(row, contender.name, *map(float, output.split()))
