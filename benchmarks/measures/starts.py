"""Starts: the zygote in a fresh interpreter, sessions with nothing ready and from the pool."""

import asyncio
import json
import sys

from benchmarks.contenders import OPTIONS
from benchmarks.measures import Bench
from benchmarks.processes import until_quiet
from benchmarks.round_trips import InstantHost

__all__ = ["sessions", "zygote"]

ZYGOTE = "zygote start, once per process"
FIRST = "first session of a process, zygote included"
COLD = "session, nothing kept ready"
WARM = "session, from the pool"
CLOSE = "session, closing"

_FRESH = """
import asyncio, json, sys, time
from benchmarks.round_trips import InstantHost
from rlm.environments.local import LocalEnvironment

async def main():
    environment = LocalEnvironment(warm_sessions=0)
    started = time.perf_counter()
    await environment.describe()
    described = time.perf_counter()
    await environment.open(InstantHost(), json.loads(sys.argv[1]))
    opened = time.perf_counter()
    await environment.close()
    print(json.dumps([described - started, opened - started]))

asyncio.run(main())
"""


async def zygote(bench: Bench) -> None:
    """Measure in a new interpreter each time, without its own start and imports."""
    bench.board.announce("ms", ZYGOTE, FIRST)
    if any(each.name == "local" for each in bench.contenders):
        for _ in range(bench.count(10)):
            zygote_seconds, session_seconds = await _in_fresh_interpreter()
            bench.board.add(ZYGOTE, "local", zygote_seconds)
            bench.board.add(FIRST, "local", session_seconds)


async def _in_fresh_interpreter() -> list[float]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        f"import sys; sys.path[:0] = {sys.path!r}\n{_FRESH}",
        json.dumps(OPTIONS),
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is ours to handle.
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise RuntimeError(f"a fresh interpreter exited with status {process.returncode}")
    times: list[float] = json.loads(output)
    return times


async def sessions(bench: Bench) -> None:
    """Measure all contenders in each round; every session is closed before the next."""
    board = bench.board
    board.announce("ms", COLD, WARM, CLOSE)
    for contender in bench.contenders:
        await (await contender.open()).close()
        if contender.warm is not None:
            await (await contender.warm.open(InstantHost(), OPTIONS)).close()
    for _ in range(bench.count(50)):
        for contender in bench.contenders:
            await until_quiet()
            with board.timed(COLD, contender.name):
                session = await contender.open()
            with board.timed(CLOSE, contender.name):
                await session.close()
            if contender.warm is not None:
                await until_quiet()
                with board.timed(WARM, contender.name):
                    session = await contender.warm.open(InstantHost(), OPTIONS)
                await session.close()
