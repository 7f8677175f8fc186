"""Measure the cost of forged frames for the host: memory, and how long its loop is blocked.

    python benchmarks/hostile_frames.py

Each case runs in a process of its own. A forked child plays a worker whose code has taken over the
stream; the host is the real `WorkerSession`, and what it lets through goes into the real prompt.
"""

import asyncio
import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from rlm.environments._session import WorkerSession, greeting_of
from rlm.errors import RLMError
from rlm.prompts.observation import observation
from rlm.results import CellResult
from rlm.worker import wire

_MB = 1 << 20
_LLM = wire.to_json({"model": None, "batched": True})
_SCHEMA = b'{"model":null,"batched":true,"schema":{"enum":[%s]}}'
_COUNTS = wire.DONE_COUNTS


def _call(*parts: bytes) -> bytes:
    return wire.encode(wire.CALL, 1, list(parts))


def _tool(items: bytes) -> bytes:
    return _call(b"tool", b'{"name": "t", "arguments": {"a": [' + items + b"]}}")


def _done(
    meta: bytes = b"", stdout: bytes = b"", words: bytes = b"", new: int = 0, changed: int = 0
) -> bytes:
    counts = _COUNTS.pack(len(stdout), 0, new, changed, False)
    return wire.encode(wire.DONE, 2, [counts, meta, stdout, b"", words])


def _names() -> bytes:
    return _done(words=b"\0".join(b"v%x\0i" % n for n in range(5_000_000)), new=5_000_000)


def _message() -> bytes:
    error = {"type": "E", "message": "m" * 4_000_000, "traceback": "t"}
    return _done(wire.to_json({"error": error, "how": None, "texts": []}))


CASES: dict[str, Callable[[], bytes]] = {
    "30 MB of JSON lists as arguments of a tool": lambda: _tool(b"[]," * (10 * _MB) + b"[]"),
    "5 million forged names of variables": _names,
    "an error message of 4 million characters": _message,
    "60 MB of forged output": lambda: _done(stdout=b"x" * (60 * _MB)),
    "8 MB of numbers such as 1.5e300": lambda: _tool(b"1.5e300," * _MB + b"1"),
    "390,000 numbers such as 1e300 in a schema": lambda: _call(
        b"llm", _SCHEMA % b",".join([b"1e300"] * 390_000), b"x"
    ),
    "9,900 such numbers, as many as are allowed": lambda: _call(
        b"llm", _SCHEMA % b",".join([b"1e300"] * 9_900), b"x"
    ),
    "150,000 such numbers in the options of an operator": lambda: _call(
        b"operator",
        b'{"name":"classify","options":{"labels":[%s]},"model":null}'
        % b",".join([b"1E300"] * 150_000),
        b"x",
    ),
    "200,000 forged calls whose answers are not read": lambda: b"".join(
        wire.encode(wire.CALL, number, [b"budget", b"{}"]) for number in range(200_000)
    ),
    "a prompt of 8 million lone surrogates": lambda: _call(
        b"llm", _LLM, b"\xed\xa0\x80" * (8 * _MB)
    ),
}


class _Host:
    async def answer(
        self, kind: str, arguments: dict[str, Any], parts: Sequence[str]
    ) -> tuple[dict[str, Any], Sequence[str]]:
        return {"failed": {}}, [""] * len(parts)


class _Child:
    """The forked process, as far as a session needs it; implements `WorkerProcess`."""

    def __init__(self) -> None:
        self._gone = asyncio.Event()

    def interrupt(self) -> None:
        """Do nothing: the child ignores interrupts."""

    def kill(self) -> None:
        self._gone.set()

    async def wait(self) -> str:
        await self._gone.wait()
        return "was killed"

    async def state(self) -> None:
        """Nothing is known of it, so plain time counts when a cell is stopped."""

    async def signals_sent(self) -> None:
        """Nothing was sent."""

    def stream_ended(self) -> None:
        self._gone.set()

    async def clean_up(self) -> None:
        """Do nothing: nothing is left."""


def _play_worker(line: socket.socket, make: Callable[[], bytes]) -> None:
    data = make()
    decoder = wire.Decoder(wire.TO_WORKER, wire.MAX_TO_WORKER_BYTES)
    while True:
        while (frame := decoder.pop()) is None:
            received = line.recv(1 << 16)
            if not received:
                return
            decoder.feed(received)
        if frame.type == wire.INIT:
            line.sendall(wire.encode(wire.READY, frame.id, [b"{}"]))
        elif frame.type == wire.EXEC:
            line.sendall(data)
            if data[4] == wire.CALL:
                time.sleep(1)  # Threads of the host decode long calls.
                line.sendall(_done())


async def _measure(make: Callable[[], bytes]) -> dict[str, Any]:
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        try:
            _play_worker(theirs, make)
        finally:
            os._exit(0)
    theirs.close()
    session = await WorkerSession.connect(ours, _Host(), _Child(), greeting_of({}))
    before = _peak_bytes()
    watch = asyncio.create_task(_longest_block())
    await asyncio.sleep(0.1)
    started = time.perf_counter()
    outcome, result = "the cell ended", CellResult()
    try:
        result = await session.execute("x", timeout_seconds=30)
    except RLMError as error:
        outcome = f"{type(error).__name__}: {error}"
    shown = observation([result], output_chars=20_000, steps_left=1)
    seconds = time.perf_counter() - started
    watch.cancel()
    block = (await asyncio.gather(watch, return_exceptions=True))[0]
    await session.close()
    return {
        "host memory MB": round((_peak_bytes() - before) / _MB),
        "loop stood still s": round(float(str(block)), 2),
        "seconds": round(seconds, 2),
        "kept chars": len(result.stdout),
        "prompt chars": len(shown),
        "outcome": outcome[:90],
    }


async def _longest_block() -> None:
    longest, last = 0.0, time.perf_counter()
    try:
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
    except asyncio.CancelledError:
        longest = max(longest, time.perf_counter() - last)
        raise RuntimeError(longest) from None


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Run the named case, or each in its own process."""
    if len(sys.argv) > 1:
        print(json.dumps(asyncio.run(_measure(CASES[sys.argv[1]]))))
        return
    for name in CASES:
        done = subprocess.run(  # noqa: S603 - this program itself
            [sys.executable, __file__, name], capture_output=True, text=True, check=True
        )
        facts = json.loads(done.stdout)
        print(f"{name}: " + ", ".join(f"{what} {value}" for what, value in facts.items()))


if __name__ == "__main__":
    main()
