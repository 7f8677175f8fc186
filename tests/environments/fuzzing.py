"""Lets a hostile worker loose on every host side, again and again, and sees that they hold.

The host may end such a session, by its documented errors; it may not raise anything else, wait
without end, keep more than it allows, or be of no use to the next session.
"""

import argparse
import asyncio
import collections
import logging
import random
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any
from unittest import mock

from rlm.environments import _calls, _frames
from rlm.environments._session import WorkerSession
from rlm.errors import ConfigError, SessionError
from rlm.results import CellResult
from rlm.worker import bounds, wire
from tests.environments.conftest import StoredContext
from tests.environments.host_places import ANSWER_CHARS, KEPT_CHARS, PLACES, MakeWorker
from tests.environments.hostile_worker import HonestWorker, HostileWorker, Worker

__all__ = ["DecodesWatched", "Tally", "attack", "check_result"]

MAX_TRACED_BYTES = 96 << 20
"""All that a session may take at once, with what its worker makes up; a frame has 3 MB at most."""

_SECONDS = 120.0
"""Nothing takes this long, except a wait that never ends."""


class Tally(collections.Counter[str]):
    """What happened, by name: sessions, frames, and how requests ended."""

    def line(self) -> str:
        return ", ".join(f"{count:,} {name}" for name, count in sorted(self.items()))


async def attack(place: str, seed: int, tally: Tally, *, traced: bool = False) -> None:
    """One hostile session, then an honest one on the same place. AssertionError if that shows."""
    workers: list[HostileWorker] = []

    def hostile(write: Any) -> Worker:
        workers.append(HostileWorker(write, seed))
        return workers[-1]

    if traced:
        tracemalloc.start()
    try:
        async with asyncio.timeout(_SECONDS):
            await _session_with(place, hostile, random.Random(seed), tally)
        if traced:
            assert tracemalloc.get_traced_memory()[1] <= MAX_TRACED_BYTES
    finally:
        tracemalloc.stop()
    tally["sessions"] += 1
    tally["frames"] += sum(worker.frames for worker in workers)
    result = await _honest(place)
    assert result is not None
    assert result.error is None


async def _session_with(
    place: str, make: MakeWorker, rng: random.Random, tally: Tally
) -> CellResult | None:
    opened = PLACES[place](make)
    try:
        session = await anext(opened)
    except (SessionError, ConfigError) as error:
        tally[f"opens: {type(error).__name__}"] += 1
        return None
    try:
        for _ in range(rng.randint(1, 6)):
            try:
                await _request(session, rng)
                tally["requests: answered"] += 1
            except SessionError as error:
                tally[f"requests: {type(error).__name__}"] += 1
                _check_reason(str(error))
            _check_kept(session)
        await session.close()
    finally:
        await opened.aclose()
    return None


async def _request(session: Any, rng: random.Random) -> None:
    """Something that an engine asks of a session; what it gets is within the limits."""
    kind = rng.choice(("execute",) * 4 + ("fetch", "load", "files", "file"))
    if kind == "fetch":
        text = await session.fetch("x")
        assert text is None or len(text) <= ANSWER_CHARS
    elif kind == "load":
        await session.load("context", StoredContext("text", b"some text"))
    elif kind == "files" and isinstance(session, WorkerSession):
        assert len(await session.list_files("/tmp")) <= bounds.MAX_FILES
    elif kind == "file" and isinstance(session, WorkerSession):
        assert len(await session.read_file("/tmp", "a", 0)) <= bounds.MAX_PIECE_BYTES
    else:
        check_result(await session.execute("x = 1", timeout_seconds=30))


def check_result(result: CellResult) -> None:
    """Whatever was claimed, this is all that is kept of a cell."""
    for text in (result.stdout, result.stderr):
        assert len(text) <= KEPT_CHARS + 100
    assert 0 <= result.stdout_chars <= bounds.MAX_REPORTED_CHARS
    for variables in (result.new_variables, result.changed_variables):
        assert len(variables) <= bounds.MAX_CHANGED_VARIABLES
        assert max(map(len, variables), default=0) <= bounds.MAX_NAME_CHARS
        assert max(map(len, variables.values()), default=0) <= bounds.MAX_DESCRIPTION_CHARS
    if result.error is not None:
        assert len(result.error.type) <= bounds.MAX_ERROR_TYPE_CHARS + 100
        assert len(result.error.message) <= bounds.MAX_MESSAGE_CHARS + 100
        assert len(result.error.traceback) <= bounds.MAX_TRACEBACK_CHARS + 100
    if result.submission is not None:
        assert len(result.submission.text) <= ANSWER_CHARS
        assert len(result.submission.json or "") <= 2 * ANSWER_CHARS
    assert len(result.answer_content or "") <= ANSWER_CHARS


def _check_reason(text: str) -> None:
    assert len(text) <= bounds.MAX_MESSAGE_CHARS


def _check_kept(session: Any) -> None:
    assert len(session.variables) <= bounds.MAX_VARIABLES
    if isinstance(session, WorkerSession):
        assert len(session._calls._tasks) <= _calls._MAX_PENDING_CALLS
        pending_bytes = session._calls._pending_bytes
        assert pending_bytes <= _calls._MAX_PENDING_BYTES + wire.MAX_TO_HOST_BYTES
        held_bytes = session._calls._held_bytes
        assert held_bytes <= _calls._MAX_HELD_BYTES + wire.MAX_TO_WORKER_BYTES


async def _honest(place: str) -> CellResult | None:
    opened = PLACES[place](HonestWorker)
    session = await anext(opened)
    try:
        async with asyncio.timeout(_SECONDS):
            result: CellResult = await session.execute("x = 1", timeout_seconds=30)
            assert place == "inprocess" or result.stdout == "ok\n"
            await session.close()
    finally:
        await opened.aclose()
    return result


class DecodesWatched:
    """Notes how much is decoded at once on the thread of the event loop."""

    def __init__(self) -> None:
        self.max_bytes = 0
        self._patches = [
            mock.patch.object(module, name, self._watching(getattr(module, name)))
            for module, names in (
                (_calls, ("read_call",)),
                (_frames, ("read_done", "read_value", "read_files", "read_piece")),
            )
            for name in names
        ]

    def _watching(self, read: Callable[..., Any]) -> Callable[..., Any]:
        def watched(frame: wire.Frame, *given: Any, **named: Any) -> Any:
            if threading.current_thread() is threading.main_thread():
                self.max_bytes = max(self.max_bytes, frame.size_bytes)
            return read(frame, *given, **named)

        return watched

    def __enter__(self) -> "DecodesWatched":
        for each in self._patches:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._patches:
            each.stop()
        assert self.max_bytes <= _calls.OFF_LOOP_BYTES


def main() -> None:
    """Attack every place, session after session, until the time is up."""
    parser = argparse.ArgumentParser(description="Speak the worker's protocol, as an enemy would.")
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long (default 60)")
    parser.add_argument("--seed", type=int, help="only the session of this seed")
    parser.add_argument("--place", choices=PLACES, help="only on this host side")
    given = parser.parse_args()
    places = [given.place] if given.place else list(PLACES)
    until = time.monotonic() + given.seconds
    tallies = {place: Tally() for place in places}
    logging.getLogger("rlm").setLevel(logging.ERROR)  # What is no sandbox says so each time.
    seed = given.seed or 0
    started = time.monotonic()
    with DecodesWatched():
        while time.monotonic() < until or seed == 0:
            for place in places:
                try:
                    asyncio.run(attack(place, seed, tallies[place], traced=seed % 20 == 0))
                except BaseException:
                    print(f"FAILED: --seed {seed} --place {place}", file=sys.stderr)
                    raise
            seed += 1
            if given.seed is not None:
                break
    for place, tally in tallies.items():
        print(f"{place}: {tally.line()}")
    total = sum(tallies.values(), Tally())
    minutes = (time.monotonic() - started) / 60
    print(f"in all: {total['sessions']:,} sessions, {total['frames']:,} frames, {minutes:.1f} min")
