"""Stopping cells that do not end, and the checkpoints that help if one must be killed."""

import asyncio
import socket
import time

from benchmarks.contenders import Contender, Opened
from benchmarks.measures import Bench
from benchmarks.processes import descendants, until_quiet
from rlm.environments._forked import ForkedSession
from rlm.errors import SessionDied, SessionRestored

__all__ = ["checkpoints", "interrupts"]

LOOP = "time limit to result: `while True: pass`"
SLEEP = "time limit to result: `time.sleep(60)`"
C_LOOP = "time limit to result: a loop in C, killed and restored"
RESTORE = "worker lost to session restored"
BUSY = "checkpoint, {heap}: the worker is busy"
AFTER = "checkpoint, {heap}: the cell `x = 1` after it"

_LIMIT_SECONDS = 0.05
_CHECKPOINT_SECONDS = 2.0
_LOST = "import os; os._exit(1)"
_LOST_IN_C = "sum(range(10 ** 12))"
_HEAPS = {
    "empty heap": "pass",
    "100 MB of objects": "objects = [f'{n:043}' for n in range(1_000_000)]",
}


async def interrupts(bench: Bench) -> None:
    """Measure the time after the limit, which is 50 ms here."""
    bench.board.announce("ms", LOOP, SLEEP, RESTORE, C_LOOP)
    for _ in range(bench.count(20)):
        for contender in bench.contenders:
            if contender.has_processes:
                await _stopped(bench, contender)
    for contender in bench.contenders:
        if contender.has_checkpoints:
            await _restored(bench, contender)


async def _stopped(bench: Bench, contender: Contender) -> None:
    async with contender.opened() as opened:
        for row, code in ((LOOP, "while True: pass"), (SLEEP, "import time; time.sleep(60)")):
            started = time.perf_counter()
            result = await opened.session.execute(code, timeout_seconds=_LIMIT_SECONDS)
            seconds = time.perf_counter() - started
            assert result.error is not None, f"{code} has ended"
            bench.board.add(row, contender.name, seconds - _LIMIT_SECONDS)


async def _restored(bench: Bench, contender: Contender) -> None:
    """Run a loop in C, which ignores the host's three interrupts, a second apart, and is killed."""
    async with contender.opened() as opened:
        for row, code, limit in ((RESTORE, _LOST, 60.0), (C_LOOP, _LOST_IN_C, _LIMIT_SECONDS)):
            for _ in range(bench.count(20)):
                if not await _has_checkpoint(opened):
                    bench.board.note("this system has no checkpoints: nothing can be restored")
                    return
                started = time.perf_counter()
                try:
                    await opened.session.execute(code, timeout_seconds=limit)
                except SessionRestored:
                    seconds = time.perf_counter() - started
                    bench.board.add(row, contender.name, seconds - (limit if limit < 1 else 0))
                except SessionDied as error:
                    bench.board.note(f"a session was lost and not restored: {error}")
                    return
                await opened.run("assert kept == 1")


async def _has_checkpoint(opened: Opened) -> bool:
    """Set a variable, then wait until the session has taken its checkpoint."""
    await until_quiet()
    before = descendants()
    await opened.run("kept = 1")
    until = time.perf_counter() + _CHECKPOINT_SECONDS
    while time.perf_counter() < until:
        await asyncio.sleep(0.01)
        if descendants() - before:
            await until_quiet()
            return True
    return False


async def checkpoints(bench: Bench) -> None:
    """Measure from the host's request to the worker's answer; in a run nothing waits for it."""
    for heap in _HEAPS:
        bench.board.announce("ms", BUSY.format(heap=heap), AFTER.format(heap=heap))
    for contender in bench.contenders:
        if contender.has_checkpoints:
            for heap, code in _HEAPS.items():
                async with contender.opened() as opened:
                    await opened.run(code)
                    await _taken(bench, contender, opened, heap)


async def _taken(bench: Bench, contender: Contender, opened: Opened, heap: str) -> None:
    """Take a checkpoint without interference from the session's own timer."""
    session = opened.session
    assert isinstance(session, ForkedSession)
    for _ in range(bench.count(20)):
        session._idle_since = None
        await until_quiet()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            session._handle.permit_fork()
            started = time.perf_counter()
            taken = await session.checkpoint(theirs.fileno())
            seconds = time.perf_counter() - started
            if not taken:
                bench.board.note("this system has no checkpoints: none was measured")
                return
            bench.board.add(BUSY.format(heap=heap), contender.name, seconds)
            with bench.board.timed(AFTER.format(heap=heap), contender.name):
                await opened.run("x = 1")
            session._idle_since = None
            session._handle.dropped_checkpoints += 1  # It ends when `ours` is closed.
