"""The two ways from a container to this process: a socket in a mounted folder, or standard streams.

By the socket the zygote in the container talks to this process as a local one does: descriptors can
be handed over, so contexts are shared memory and checkpoints are possible.
"""

import asyncio
import contextlib
import importlib.util
import os
import shutil
import socket
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from rlm.environments._forked import ForkedSession
from rlm.environments._forkserver import handshake, is_greeted, request
from rlm.environments._relay import Relay
from rlm.environments._session import greeting_of
from rlm.environments._shipping import archive, bootstrap_command
from rlm.environments.docker.containers import PLACE, Container, Engine, Running
from rlm.errors import SessionDied
from rlm.protocols import Host
from rlm.worker.sandbox import orders

__all__ = ["NotReached", "Wish", "open_by_socket", "open_by_stdio"]

_SOCKET = "host"
_MAGIC_BYTES = 4
_HANDSHAKE_SECONDS = 60.0
_EXPLANATION_SECONDS = 5.0

Opened = tuple[ForkedSession, dict[str, Any]]
"""A session, and what its zygote reported about its inside."""


class NotReached(Exception):
    """The container ended without having connected; the text says how."""


class Wish(Struct, frozen=True):
    """What a session is to be."""

    engine: Engine
    container: Container
    python: str
    settings: str
    host: Host
    options: dict[str, Any]


async def open_by_stdio(wish: Wish) -> Opened:
    """Everything goes through the container's input and output."""
    command = bootstrap_command(wish.python, "introduced")
    running = await wish.engine.run(replace(wish.container, command=tuple(command), attached=True))
    try:
        data = await _packed_for(running)
    except BaseException:
        await asyncio.shield(running.close())
        raise
    relay = Relay(running)
    try:
        report = await relay.set_up(struct.pack("<I", len(data)) + data, wish.settings)
        session = await ForkedSession.open(
            await relay.open(),
            wish.host,
            wish.options,
            greeting_of(wish.options),
            report={**report, "forks": False},  # No descriptor gets there, so no checkpoint.
            sends_fds=False,
            close_sandbox=relay.close,
        )
    except BaseException:
        await asyncio.shield(relay.close())
        raise
    return session, report


async def _packed_for(running: Running) -> bytes:
    """The worker in the form that the Python there understands; it says which, first of all."""
    magic = b""
    while len(magic) < _MAGIC_BYTES:
        piece = await running.receive()
        if not piece:
            raise SessionDied(f"the worker did not start: the container {await running.ending()}")
        magic += piece
    return await asyncio.to_thread(archive, magic)


async def open_by_socket(wish: Wish) -> Opened:
    """The zygote in the container connects to a socket of this process."""
    async with contextlib.AsyncExitStack() as stack:
        folder = _new_folder(stack.callback)
        listener = stack.enter_context(_listener(folder))
        command = bootstrap_command(wish.python, "socket", f"{PLACE}/{_SOCKET}")
        # The first archive takes as long to make as the container takes to start.
        packing = asyncio.ensure_future(asyncio.to_thread(archive, importlib.util.MAGIC_NUMBER))
        running = await wish.engine.run(
            replace(wish.container, command=tuple(command), folder=str(folder))
        )
        stack.push_async_callback(running.close)
        control = stack.enter_context(await _connected(listener, running))
        await packing
        try:
            report = await asyncio.to_thread(_welcome, control, wish.settings)
        except OSError as error:
            how = await asyncio.wait_for(running.ending(), _EXPLANATION_SECONDS)
            raise SessionDied(f"the worker did not start: {error}; the container {how}") from error
        greeting = greeting_of(wish.options)
        until_closed = stack.pop_all()
        try:
            session = await ForkedSession.open(
                request(control, orders.NOW, greeting),
                wish.host,
                wish.options,
                None if is_greeted(greeting) else greeting,
                report=report,
                how_sandbox_ended=running.ending,
                close_sandbox=until_closed.aclose,
            )
        except BaseException:
            await asyncio.shield(until_closed.aclose())
            raise
    return session, report


def _new_folder(when_over: Callable[..., Any]) -> Path:
    """A folder to mount, in one that nobody else on this machine can enter."""
    outer = tempfile.mkdtemp(prefix="rlm-")
    when_over(shutil.rmtree, outer, ignore_errors=True)
    inner = Path(outer) / "s"
    inner.mkdir()
    inner.chmod(0o755)  # The container's user is another one.
    return inner


def _listener(folder: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(folder / _SOCKET))
        os.chmod(folder / _SOCKET, 0o666)  # noqa: PTH101, S103 - the folder around it is closed
        listener.listen(1)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise NotReached(f"no socket could be made in {folder}: {error}") from error
    return listener


async def _connected(listener: socket.socket, running: Running) -> socket.socket:
    """Who connects; NotReached if the container ends before."""
    loop = asyncio.get_running_loop()
    accepting = loop.create_task(_accepted(listener))
    ending = loop.create_task(running.ending())
    try:
        await asyncio.wait([accepting, ending], return_when=asyncio.FIRST_COMPLETED)
        if accepting.done():
            return accepting.result()
        raise NotReached(f"the container {await ending}")
    finally:
        for task in (accepting, ending):
            task.cancel()
        await asyncio.gather(accepting, ending, return_exceptions=True)


async def _accepted(listener: socket.socket) -> socket.socket:
    connection, _ = await asyncio.get_running_loop().sock_accept(listener)
    return connection


def _welcome(control: socket.socket, settings: str) -> dict[str, Any]:
    """Send the worker in the form that the Python there understands; then it is a zygote."""
    control.settimeout(_HANDSHAKE_SECONDS)
    data = archive(control.recv(_MAGIC_BYTES, socket.MSG_WAITALL))
    control.sendall(struct.pack("<I", len(data)) + data)
    report = handshake(control, settings)
    control.settimeout(None)
    return report
