"""A server as a child process: messages are lines of JSON on its stdin and stdout.

The SDK has such a transport too. This one takes lines in time linear in their length and with a
limit, keeps the last words of stderr, and leaves nothing of the process's group behind.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncGenerator
from typing import Any

from rlm.tools._mcp.address import Address
from rlm.tools._texts import one_line

__all__ = ["MAX_MESSAGE_BYTES", "LastWords", "child_process"]

MAX_MESSAGE_BYTES = 64 << 20
GRACE_SECONDS = 2.0
"""How long a server may take to leave after its stdin is closed, and again after a SIGTERM."""

POLL_SECONDS = 0.01
KEPT_BYTES = 4_000
MOST_WORDS_CHARS = 300


class LastWords:
    """The end of what a server wrote to its stderr, and how it ended."""

    def __init__(self) -> None:
        self._kept = b""
        self.status: int | None = None

    def add(self, data: bytes) -> None:
        self._kept = (self._kept + data)[-KEPT_BYTES:]

    def __str__(self) -> str:
        lines = self._kept.decode("utf-8", "replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "")
        status = "" if self.status is None else f" with status {self.status}"
        return status + (f"; it wrote: {one_line(last, MOST_WORDS_CHARS)}" if last else "")


@contextlib.asynccontextmanager
async def child_process(
    address: Address, words: LastWords
) -> AsyncGenerator[tuple[Any, Any], None]:
    """Streams of messages from and to a program. Of our variables it gets PATH, HOME and so on."""
    import anyio
    from mcp.client.stdio import get_default_environment

    process = await asyncio.create_subprocess_exec(
        *address.command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=get_default_environment() | address.environment,
        cwd=address.folder,
        start_new_session=True,
        limit=MAX_MESSAGE_BYTES,
    )
    arriving, messages = anyio.create_memory_object_stream[Any](0)
    requests, leaving = anyio.create_memory_object_stream[Any](0)
    tasks = [
        asyncio.create_task(_read(process, arriving)),
        asyncio.create_task(_write(process, leaving)),
        asyncio.create_task(_listen(process, words)),
    ]
    try:
        yield messages, requests
    finally:
        for stream in (messages, requests):
            stream.close()
        await asyncio.shield(asyncio.create_task(_end(process, tasks, words)))


async def _read(process: asyncio.subprocess.Process, arriving: Any) -> None:
    """Lines that are no messages are passed over: many programs greet on stdout."""
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp.types import jsonrpc_message_adapter

    assert process.stdout is not None
    with arriving, contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        while True:
            try:
                line = await process.stdout.readuntil(b"\n")
            except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                return
            with contextlib.suppress(ValueError):
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                await arriving.send(SessionMessage(message))


async def _write(process: asyncio.subprocess.Process, leaving: Any) -> None:
    assert process.stdin is not None
    with leaving, contextlib.suppress(OSError):
        async for each in leaving:
            text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(text.encode("utf-8", "replace") + b"\n")
            await process.stdin.drain()


async def _listen(process: asyncio.subprocess.Process, words: LastWords) -> None:
    """Read stderr always, so that a server never has to wait for somebody to do so."""
    assert process.stderr is not None
    while data := await process.stderr.read(1 << 16):
        words.add(data)


async def _end(
    process: asyncio.subprocess.Process, tasks: list[asyncio.Task[None]], words: LastWords
) -> None:
    """Close stdin and wait, then ask its whole group to leave, then make it."""
    assert process.stdin is not None
    process.stdin.close()
    if not await _has_ended(process):
        _signal(process, signal.SIGTERM)
        await _has_ended(process)
    words.status = process.returncode
    _signal(process, signal.SIGKILL)
    await _has_ended(process)
    await asyncio.wait(tasks[-1:], timeout=POLL_SECONDS)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    transport = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()  # A grandchild that left the group may still hold a pipe.


async def _has_ended(process: asyncio.subprocess.Process) -> bool:
    """Not `process.wait()`: that waits for the pipes too, which others may have inherited."""
    loop = asyncio.get_running_loop()
    last = loop.time() + GRACE_SECONDS
    while process.returncode is None and loop.time() < last:  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(POLL_SECONDS)
    return process.returncode is not None


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    """To all of its group, which outlives it if it left children behind."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
