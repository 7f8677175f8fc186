"""The parts of the load test, and what its cases share."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from typing import NamedTuple
from urllib.parse import urlsplit

__all__ = ["Attack", "Part", "process", "raw", "slow_clients"]

Ask = Callable[[], Awaitable[bool]]


class Attack(NamedTuple):
    """One hostile case: `send` runs it once and returns its outcome."""

    name: str
    send: Callable[[], Awaitable[str]]
    max_seconds: float = 10.0
    pause_seconds: float = 0.05


class Part(NamedTuple):
    """A running program. `other` is an ordinary client: it asks once and returns success."""

    address: str
    other: Callable[[], AbstractAsyncContextManager[Ask]]


@contextmanager
def process(arguments: list[str], **variables: str) -> Generator[subprocess.Popen[str], None, None]:
    """Run an `rlm` command until the block ends."""
    started = subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-m", "rlm", *arguments],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield started
    finally:
        started.send_signal(signal.SIGTERM)
        try:
            started.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            started.kill()
            started.communicate()


async def raw(base: str, data: bytes, *, waits: bool = True) -> str:
    """Send raw bytes; return the status of the response, or none."""
    parts = urlsplit(base)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        writer.write(data)
        await writer.drain()
        line = await reader.readline() if waits else b""
        return line.split()[1].decode() if len(line.split()) > 1 else "no answer"
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def slow_clients(base: str, head: bytes, count: int = 50, seconds: float = 2.0) -> str:
    """Open connections that start a request and do not finish it."""
    parts = urlsplit(base)
    opened = [await asyncio.open_connection(parts.hostname, parts.port) for _ in range(count)]
    try:
        for _ in range(10):
            for _, writer in opened:
                writer.write(head[:1])
            head = head[1:] or b"x"
            await asyncio.sleep(seconds / 10)
    finally:
        for _, writer in opened:
            writer.close()
    return "left"
