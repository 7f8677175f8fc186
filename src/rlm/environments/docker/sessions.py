"""Opens sessions in containers, through a socket in a mounted folder or through standard streams.

Through the socket, the zygote in the container works like a local one: it takes descriptors, so
contexts are in shared memory and checkpoints are possible.
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

__all__ = ["NotReached", "SessionRequest", "open_by_socket", "open_by_stdio"]

_SOCKET = "host"
_MAGIC_BYTES = 4
_HANDSHAKE_SECONDS = 60.0
_EXPLANATION_SECONDS = 5.0

Opened = tuple[ForkedSession, dict[str, Any]]
"""A session, and the report of its zygote."""


class NotReached(Exception):
    """The container ended before it connected; the text says how."""


class SessionRequest(Struct, frozen=True):
    """What is needed to open a session."""

    engine: Engine
    container: Container
    python: str
    settings: str
    host: Host
    options: dict[str, Any]


async def open_by_stdio(wanted: SessionRequest) -> Opened:
    """Open a session over the container's input and output."""
    command = bootstrap_command(wanted.python, "introduced")
    running = await wanted.engine.run(
        replace(wanted.container, command=tuple(command), attached=True)
    )
    try:
        data = await _packed_for(running)
    except BaseException:
        await asyncio.shield(running.close())
        raise
    relay = Relay(running)
    try:
        report = await relay.set_up(struct.pack("<I", len(data)) + data, wanted.settings)
        session = await ForkedSession(
            await relay.open(),
            wanted.host,
            wanted.options,
            report={**report, "forks": False},  # Checkpoints need descriptors, which can't be sent.
            sends_fds=False,
            close_sandbox=relay.close,
        ).start(greeting_of(wanted.options))
    except BaseException:
        await asyncio.shield(relay.close())
        raise
    return session, report


async def _packed_for(running: Running) -> bytes:
    """Return the worker packed for the container's Python, which first sends its magic number."""
    magic = b""
    while len(magic) < _MAGIC_BYTES:
        piece = await running.receive()
        if not piece:
            raise SessionDied(f"the worker did not start: the container {await running.ending()}")
        magic += piece
    return await asyncio.to_thread(archive, magic)


async def open_by_socket(wanted: SessionRequest) -> Opened:
    """Open a session over a socket to which the zygote in the container connects."""
    async with contextlib.AsyncExitStack() as stack:
        folder = _new_folder(stack.callback)
        listener = stack.enter_context(_listener(folder))
        command = bootstrap_command(wanted.python, "socket", f"{PLACE}/{_SOCKET}")
        # Making the first archive takes as long as starting the container.
        packing = asyncio.ensure_future(asyncio.to_thread(archive, importlib.util.MAGIC_NUMBER))
        running = await wanted.engine.run(
            replace(wanted.container, command=tuple(command), folder=str(folder))
        )
        stack.push_async_callback(running.close)
        control = stack.enter_context(await _connected(listener, running))
        await packing
        try:
            report = await asyncio.to_thread(_welcome, control, wanted.settings)
        except OSError as error:
            how = await asyncio.wait_for(running.ending(), _EXPLANATION_SECONDS)
            raise SessionDied(f"the worker did not start: {error}; the container {how}") from error
        greeting = greeting_of(wanted.options)
        until_closed = stack.pop_all()
        try:
            session = await ForkedSession(
                request(control, orders.NOW, greeting),
                wanted.host,
                wanted.options,
                report=report,
                how_sandbox_ended=running.ending,
                close_sandbox=until_closed.aclose,
            ).start(None if is_greeted(greeting) else greeting)
        except BaseException:
            await asyncio.shield(until_closed.aclose())
            raise
    return session, report


def _new_folder(when_over: Callable[..., Any]) -> Path:
    """Make a folder to mount, inside one that no other user can enter."""
    outer = tempfile.mkdtemp(prefix="rlm-")
    when_over(shutil.rmtree, outer, ignore_errors=True)
    inner = Path(outer) / "s"
    inner.mkdir()
    inner.chmod(0o755)  # The container has another user.
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
        raise NotReached(f"no socket could be created in {folder}: {error}") from error
    return listener


async def _connected(listener: socket.socket, running: Running) -> socket.socket:
    """Return the connection from the container; raise NotReached if it ends before connecting."""
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
    """Send the worker, packed for the container's Python, and shake hands with the zygote."""
    control.settimeout(_HANDSHAKE_SECONDS)
    data = archive(control.recv(_MAGIC_BYTES, socket.MSG_WAITALL))
    control.sendall(struct.pack("<I", len(data)) + data)
    report = handshake(control, settings)
    control.settimeout(None)
    return report
