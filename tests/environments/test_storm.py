"""Everything that can go wrong with a session, at random and in many sessions at once.

Afterwards nothing may be left: no process, no open file, no mount, no temporary file, no task.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rlm.environments import _clock
from rlm.environments.local import LocalEnvironment
from rlm.errors import SessionError, SessionRestored
from tests.environments.conftest import FakeHost, Repl
from tests.environments.footprint import Footprint, children

if TYPE_CHECKING:
    from rlm.results import CellResult

LANES = 6
MEMORY_BYTES = 200 << 20
WITHOUT = {
    "everything": (),
    "no namespaces": ("namespaces",),
    "sealed": ("namespaces", "landlock"),
}


class Lane:
    """One session after the other, each with whatever the dice say."""

    def __init__(self, storm: Storm, dice: random.Random) -> None:
        self.storm = storm
        self.dice = dice
        self.repl: Repl | None = None
        self.number = 0
        """What the session's variable must hold, once `known`."""
        self.known = False

    async def round(self) -> None:
        name = self.dice.choice(list(EVENTS))
        self.storm.seen[name] += 1
        try:
            async with asyncio.timeout(60):
                repl = self.repl = self.repl or await self.storm.open()
                await EVENTS[name](self, repl)
        except SessionRestored:
            self.storm.seen["restored"] += 1
            self.known = False
        except SessionError:
            self.storm.seen["lost"] += 1
            await self.close()

    async def close(self) -> None:
        if self.repl is not None:
            repl, self.repl, self.known = self.repl, None, False
            async with asyncio.timeout(60):
                await repl.session.close()
            assert repl.host.in_flight == 0

    async def pause(self, max_seconds: float = 0.08) -> None:
        await asyncio.sleep(self.dice.uniform(0, max_seconds))

    @contextlib.asynccontextmanager
    async def running(
        self, repl: Repl, code: str
    ) -> AsyncGenerator[asyncio.Task[CellResult], None]:
        """A cell that runs for a while already, and is always waited for."""
        cell = asyncio.create_task(repl.run(code))
        await self.pause()
        try:
            yield cell
        finally:
            await asyncio.wait([cell])
            if not cell.cancelled():
                cell.exception()  # Every waiting task has asked.


class Storm:
    """The environment, its zygote, and what has happened."""

    def __init__(self, environment: LocalEnvironment, zygote: int) -> None:
        self.environment = environment
        self.zygote = zygote
        self.seen: Counter[str] = Counter()

    async def open(self) -> Repl:
        host = FakeHost()
        options: dict[str, Any] = {"cell_memory_bytes": MEMORY_BYTES}
        return Repl(await self.environment.open(host, options), host)

    async def rage(self, rounds: int, seed: int) -> None:
        async def lane(number: int) -> None:
            each = Lane(self, random.Random(f"{seed} {number}"))
            for _ in range(rounds // LANES):
                await each.round()
            await each.close()

        await asyncio.gather(*[lane(number) for number in range(LANES)])

    async def calm(self) -> None:
        """A few sessions like any other; what was kept ready and killed is replaced by them."""
        for _ in range(4):
            repl = await self.open()
            await repl.load("text " * 1000)
            assert await repl.show("len(context), llm_query('a')") == "(5000, 're:a')"
            await asyncio.sleep(0.1)  # Time for a checkpoint.
            assert await repl.show("len(context)") == "5000"
            await repl.session.close()


# -- what happens ----------------------------------------------------------------------------------


def answer_nothing(host: FakeHost) -> None:
    """Until `release` is set again; what was asked before is still counted."""
    host.release = asyncio.Event()
    host.hold_until = 1_000


EVENTS: dict[str, Callable[[Lane, Repl], Awaitable[None]]] = {}
Event = Callable[[Lane, Repl], Awaitable[None]]


def event(function: Event) -> Event:
    EVENTS[getattr(function, "__name__", "")] = function
    return function


@event
async def a_cell(lane: Lane, repl: Repl) -> None:
    """Variables of a cell exist in the next one, whatever other sessions do meanwhile."""
    if lane.known:
        assert await repl.show("kept") == str(lane.number)
    lane.number = lane.dice.randrange(10**6)
    lane.known = False
    assert await repl.show(f"kept = {lane.number}") == ""
    lane.known = True


@event
async def some_calls(lane: Lane, repl: Repl) -> None:
    names = [f"{lane.dice.random()}" for _ in range(5)]
    assert await repl.show(f"llm_query_batched({names})") == str([f"re:{each}" for each in names])


@event
async def a_context(lane: Lane, repl: Repl) -> None:
    size = lane.dice.choice([0, 10, 100_000, 3_000_000])
    await repl.load("x" * size)
    assert await repl.show("len(context)") == str(size)


@event
async def an_idle_moment(lane: Lane, repl: Repl) -> None:
    await asyncio.sleep(0.06)


@event
async def a_time_out(lane: Lane, repl: Repl) -> None:
    code = lane.dice.choice(["while True: pass", "import time\ntime.sleep(100)", "print(1)"])
    await repl.run(code, timeout_seconds=lane.dice.choice([0.001, 0.05, 0.1]))


@event
async def an_interrupt(lane: Lane, repl: Repl) -> None:
    async with lane.running(repl, "while True: pass") as cell:
        await repl.session.interrupt()
        while not (await asyncio.wait([cell], timeout=1))[0]:
            await repl.session.interrupt()  # The first may have come before the cell.
    assert (await cell).interrupted


@event
async def an_interrupted_call(lane: Lane, repl: Repl) -> None:
    answer_nothing(repl.host)
    async with lane.running(repl, "llm_query('never')") as cell:
        while not (await asyncio.wait([cell], timeout=0.2))[0]:
            await repl.session.interrupt()
    repl.host.release.set()
    repl.host.hold_until = 0


@event
async def a_close_in_a_cell(lane: Lane, repl: Repl) -> None:
    async with lane.running(repl, lane.dice.choice(["while True: pass", "sum(range(10**12))"])):
        await lane.close()


@event
async def a_close_in_a_call(lane: Lane, repl: Repl) -> None:
    answer_nothing(repl.host)
    code = "import asyncio\nawait asyncio.gather(*[llm_query(str(i)) for i in range(20)])"
    async with lane.running(repl, code):
        await lane.close()


@event
async def two_closes_at_once(lane: Lane, repl: Repl) -> None:
    await asyncio.gather(lane.close(), repl.session.close(), repl.session.close())


@event
async def a_cancelled_cell(lane: Lane, repl: Repl) -> None:
    async with lane.running(repl, "while True: pass") as cell:
        cell.cancel()
    await lane.close()


@event
async def a_cancelled_open(lane: Lane, repl: Repl) -> None:
    opening = asyncio.create_task(lane.storm.open())
    await lane.pause(0.02)
    opening.cancel()
    await asyncio.wait([opening])
    if not opening.cancelled() and opening.exception() is None:
        await opening.result().session.close()


@event
async def an_exit(lane: Lane, repl: Repl) -> None:
    await repl.run(f"import os\nos._exit({lane.dice.randrange(256)})")


@event
async def a_crash(lane: Lane, repl: Repl) -> None:
    await repl.run(
        lane.dice.choice(["import os\nos.abort()", "import ctypes\nctypes.string_at(1)"])
    )


@event
async def a_later_exit(lane: Lane, repl: Repl) -> None:
    """Between two cells, or in the middle of whatever comes next."""
    seconds = lane.dice.uniform(0, 0.05)
    await repl.run(f"import os, threading\nthreading.Timer({seconds}, os._exit, [7]).start()")


@event
async def a_memory_bomb(lane: Lane, repl: Repl) -> None:
    bomb = "heap = []\nwhile True: heap.append(bytes(1 << 20))"
    result = await repl.run(lane.dice.choice(["x = b'x' * (1 << 40)", bomb]), timeout_seconds=20)
    assert result.error is not None
    assert result.error.type in ("MemoryError", "TimeoutError")
    await repl.run("heap = None")


@event
async def a_spin_in_c(lane: Lane, repl: Repl) -> None:
    await repl.run("sum(range(10**12))", timeout_seconds=0.05)


@event
async def threads_left_behind(lane: Lane, repl: Repl) -> None:
    await repl.run(
        "import threading, time\n"
        "def idle():\n    while True: time.sleep(0.01)\n"
        "for _ in range(3): threading.Thread(target=idle, daemon=True).start()"
    )


@event
async def a_kill_of_anybody(lane: Lane, repl: Repl) -> None:
    """A worker, a checkpoint or a session kept ready, of whichever lane."""
    workers = sorted(children(lane.storm.zygote))
    if workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(lane.dice.choice(workers), signal.SIGKILL)


# -- the tests -------------------------------------------------------------------------------------


async def find_zygote(environment: LocalEnvironment) -> int:
    """The process that forks: our child, or with a pid namespace the child of that."""
    before = children(os.getpid())
    report = await environment.describe()
    (started,) = children(os.getpid()) - before
    if not report["pid_namespace"]:
        return started
    (zygote,) = children(started)
    return zygote


async def same_again(before: Footprint, zygote: int, temporary: Path) -> Footprint:
    """The footprint once it is as before, or what it is after a long while."""
    for _ in range(600):
        now = Footprint.now(zygote, temporary)
        if now == before:
            break
        await asyncio.sleep(0.05)
    return now


async def storm(rounds: int, without: Sequence[str], temporary: Path, seed: int) -> Counter[str]:
    # A size that no other test uses, so that no other test shares this zygote.
    environment = LocalEnvironment(without=without, scratch_bytes=(32 << 20) + rounds)
    zygote = await find_zygote(environment)
    raging = Storm(environment, zygote)
    await raging.rage(4 * LANES, seed=0)  # What is opened once and kept is open now.
    await raging.calm()
    await asyncio.sleep(0.5)
    before = Footprint.now(zygote, temporary)
    raging.seen.clear()
    await raging.rage(rounds, seed)
    await raging.calm()
    assert await same_again(before, zygote, temporary) == before, raging.seen
    await environment.close()
    return raging.seen


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private folder for temporary files; and a cell that hangs is killed soon."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(_clock, "_GRACE_SECONDS", 0.1)
    return tmp_path


async def test_a_storm_of_kills_and_interrupts_leaves_nothing(temporary: Path) -> None:
    seen = await storm(30, (), temporary, seed=1)
    assert sum(seen[name] for name in EVENTS) == 30


@pytest.mark.heavy
@pytest.mark.parametrize("without", WITHOUT.values(), ids=WITHOUT)
async def test_a_long_storm_of_kills_and_interrupts_leaves_nothing(
    without: tuple[str, ...], temporary: Path
) -> None:
    seen = await storm(1_002, without, temporary, seed=2)
    assert sum(seen[name] for name in EVENTS) == 1_002
    assert {*EVENTS, "restored", "lost"} == set(seen)
