"""Contexts: written once, loaded by one session, by further ones, by a hundred at once."""

import asyncio
import os
import time
from contextlib import AsyncExitStack

from benchmarks import processes
from benchmarks.board import Board
from benchmarks.contenders import Contender, Opened
from benchmarks.measures import Bench
from rlm.context import StoredContext, store_context
from rlm.environments._shared import shared_context
from rlm.protocols import Session

__all__ = ["contexts", "crowd"]

_SIZES = {"100 MB": 100_000_000, "1 GiB": 1 << 30}
_LINE = b"%08d a line of a context, as long as the lines of many logs are, more or less ....\n"
_LOOK = "found = context.count('needle')"
_NEEDED_BYTES = 8 << 30
_SETTLE_SECONDS = 0.1
"""Time for a checkpoint to be taken, which belongs to what a session costs."""

STORE = "{size} context: taken in and described"
WRITE = "{size} context: written once"
FIRST = "{size} context: visible in the first session"
NEXT = "{size} context: visible in a further session"
PRIVATE = "{size} context: private memory of a further session's worker"
SHARE = "{size} context: memory of a further session, checkpoint included"
PEAK = "{size} context: peak of the host above what it had"


def _text(size: int) -> str:
    block = b"".join(_LINE % number for number in range(10_000))
    return (block * (size // len(block) + 1))[:size].decode("ascii")


async def contexts(bench: Bench) -> None:
    """Measure each size with one contender at a time, to save memory."""
    sizes = {name: size for name, size in _SIZES.items() if not bench.small or size < 1 << 30}
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    for name, size in sizes.items():
        bench.board.announce("ms", *(row.format(size=name) for row in (STORE, WRITE, FIRST, NEXT)))
        bench.board.announce("MB", *(row.format(size=name) for row in (PRIVATE, SHARE, PEAK)))
        if size >= 1 << 30 and available < _NEEDED_BYTES:
            bench.board.note(f"{name} is left out: only {available / 1e9:.1f} GB of memory is free")
            continue
        text = _text(size)
        # The first to touch so much memory may have to wait for the machine to find it.
        await asyncio.to_thread(shared_context, store_context(text))
        for number in range(1 if size >= 1 << 30 else bench.count(3)):
            for contender in _rotated(bench.contenders, number):
                further = min(bench.count(5), 5 if contender.has_processes else 1)
                await _one_context(bench.board, name, text, contender, further)


def _rotated(contenders: list[Contender], number: int) -> list[Contender]:
    """Rotate the order, so that each contender is first in turn."""
    start = number % max(1, len(contenders))
    return contenders[start:] + contenders[:start]


async def _one_context(
    board: Board, size: str, text: str, contender: Contender, further: int
) -> None:
    before = processes.reset_peak()
    with board.timed(STORE.format(size=size), contender.name):
        source = store_context(text)
    if contender.has_processes:
        with board.timed(WRITE.format(size=size), contender.name):
            await asyncio.to_thread(shared_context, source)
    async with AsyncExitStack() as stack:
        for number in range(1 + further):
            row = (NEXT if number else FIRST).format(size=size)
            base = processes.share_of_memory(_all_of(contender))
            opened = await stack.enter_async_context(contender.opened())
            with board.timed(row, contender.name):
                await opened.session.load("context", source)
            if number == 0:
                peak = processes.peak_bytes() - before
                board.add(PEAK.format(size=size), contender.name, peak)
            await _look(opened, len(text))
            private = processes.private_bytes(opened.pids)
            await asyncio.sleep(_SETTLE_SECONDS)
            share = processes.share_of_memory(_all_of(contender)) - base
            if number:
                board.add(SHARE.format(size=size), contender.name, share)
            if number and contender.has_processes:
                board.add(PRIVATE.format(size=size), contender.name, private)


async def _look(opened: Opened, chars: int) -> None:
    """Read all of the context, and check that it is the right one."""
    output = await opened.run(f"{_LOOK}\nprint(found, len(context))")
    assert output.split() == ["0", str(chars)], output


def _all_of(contender: Contender) -> set[int]:
    """Return the processes in which its sessions may live."""
    return processes.descendants() if contender.has_processes else {os.getpid()}


# -- many at once ---------------------------------------------------------------------------------


async def crowd(bench: Bench) -> None:
    """Open all sessions at the same time; each reads the context."""
    count = bench.count(100)
    total = f"{count} sessions at once, 100 MB context: all have run a cell"
    each = f"{count} sessions at once, 100 MB context: memory of each"
    over = f"{count} sessions at once: all closed"
    bench.board.announce("ms", total, over)
    bench.board.announce("MB", each)
    source = store_context(_text(_SIZES["100 MB"]))
    await asyncio.to_thread(shared_context, source)
    for number in range(bench.count(3)):
        for contender in _rotated(bench.contenders, number):
            if not contender.has_processes:
                continue  # A copy of the context for each would not fit into many machines.
            await (await contender.open()).close()  # so that a zygote is there
            await processes.until_quiet()
            base = processes.share_of_memory(processes.descendants())
            async with AsyncExitStack() as stack:
                with bench.board.timed(total, contender.name):
                    await _open_all(stack, contender, source, count)
                await asyncio.sleep(_SETTLE_SECONDS)
                await processes.until_quiet()
                share = processes.share_of_memory(processes.descendants()) - base
                bench.board.add(each, contender.name, share / count)
                started = time.perf_counter()
            bench.board.add(over, contender.name, time.perf_counter() - started)


async def _open_all(
    stack: AsyncExitStack, contender: Contender, source: StoredContext, count: int
) -> None:
    sessions: list[Session] = []

    async def close_all() -> None:
        await asyncio.gather(*(session.close() for session in sessions))

    async def one() -> None:
        session = await contender.open()
        sessions.append(session)
        await session.load("context", source)
        await session.execute("size = len(context)", timeout_seconds=60)

    stack.push_async_callback(close_all)
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(one())
