"""A session whose worker was forked by a zygote: it can take checkpoints and export files.

A checkpoint is a copy of the worker that waits at a socket of its own (`rlm.worker.checkpoints`).
It is taken when the session has been idle for a moment, so that no cell waits for it. When the
worker is lost, the copy takes its place.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rlm.environments._exports import export_files
from rlm.environments._frames import SessionBounds
from rlm.environments._session import Lend, WorkerSession, note_names
from rlm.environments._worker import WorkerHandle
from rlm.errors import SessionDied, SessionError, SessionRestored
from rlm.protocols import ContextSource, Host
from rlm.results import CellResult
from rlm.worker import wire

__all__ = ["ForkedSession", "in_words"]

IDLE_SECONDS = 0.02
"""How long a session must have been idle before a checkpoint is taken."""

_RESTORE_SECONDS = 30.0
_EXPORT_SECONDS = 30.0
_CLOSE_SECONDS = 1.0
_MAX_EXPORTED_BYTES = 1 << 30

_log = logging.getLogger(__name__)


class _Checkpoint(NamedTuple):
    connection: socket.socket
    variables: tuple[str, ...]


class ForkedSession(WorkerSession):
    """A session with a forked worker; `layers` names what isolates it."""

    def __init__(
        self,
        connection: socket.socket,
        host: Host,
        worker: WorkerHandle,
        *,
        report: Mapping[str, Any],
        label: str = "session",
        export_to: Path | None = None,
        sends_fds: bool = True,
        lend: Lend | None = None,
        close_sandbox: Callable[[], Awaitable[None]] | None = None,
        bounds: SessionBounds | None = None,
    ) -> None:
        super().__init__(connection, host, worker, sends_fds=sends_fds, lend=lend, bounds=bounds)
        self._handle = worker
        self.layers = in_words(report)
        self._scratch: str = report["scratch"]
        self._has_cgroup: bool = report.get("cgroup", False)
        self._label = label
        self._export_to = export_to
        self._close_sandbox = close_sandbox
        self._takes_checkpoints: bool = report["forks"]
        self._checkpoint: _Checkpoint | None = None
        self._changed: dict[str, None] = {}  # by cells since the checkpoint was taken
        self._idle_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._taking: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        ends: tuple[socket.socket, socket.socket],
        host: Host,
        options: dict[str, Any],
        greeting: bytes | None,
        *,
        report: Mapping[str, Any],
        export_to: Path | None = None,
        sends_fds: bool = True,
        lend: Lend | None = None,
        how_sandbox_ended: Callable[[], Awaitable[str]] | None = None,
        close_sandbox: Callable[[], Awaitable[None]] | None = None,
    ) -> "ForkedSession":
        """Shake hands with the worker at the other end of a session's two sockets.

        `greeting` is None if the worker has been greeted. `sends_fds` says whether file descriptors
        can be sent to it; if not, `lend` may have another process send them. The last two are for
        workers in a sandbox of their own, such as a container.
        """
        connection, monitor = ends
        session = cls(
            connection,
            host,
            WorkerHandle(monitor, how_sandbox_ended),
            report=report,
            label=str(options.get("label", "session")),
            export_to=export_to,
            sends_fds=sends_fds,
            lend=lend,
            close_sandbox=close_sandbox,
            bounds=SessionBounds.of(options),
        )
        await session._shake_hands(greeting)
        return session

    async def load(self, name: str, context: ContextSource) -> None:
        """Bind a stored context to a name in the REPL."""
        self._idle_since = None
        if self._has_cgroup:
            self._handle.make_room(context.size_bytes)
        await super().load(name, context)
        if self._checkpoint is not None:
            self._take_when_idle()

    async def set_tools(self, tools: list[dict[str, str]]) -> None:
        """Replace the tools of the session."""
        self._idle_since = None
        await super().set_tools(tools)
        if self._checkpoint is not None:
            self._take_when_idle()

    async def execute(self, code: str, *, timeout_seconds: float) -> CellResult:
        """Run a cell; raise SessionRestored if the worker was lost but a checkpoint took over."""
        self._idle_since = None
        try:
            result = await super().execute(code, timeout_seconds=timeout_seconds)
        except SessionDied as error:
            await self._restore(error)
            raise
        note_names(self._changed, (*result.new_variables, *result.changed_variables))
        self._take_when_idle()
        return result

    async def fetch(self, name: str) -> str | None:
        """Return the text of a variable, or None if there is none or it has no text."""
        self._idle_since = None
        try:
            return await super().fetch(name)
        except SessionDied as error:
            await self._restore(error)
            raise

    async def export(self, folder: Path) -> Path | None:
        """Copy the files that cells wrote to a new folder in `folder`; None if there are none."""
        if not self._scratch:
            return None
        files = await self.list_files(self._scratch)
        return await export_files(
            files,
            lambda name, offset: self.read_file(self._scratch, name, offset),
            folder,
            label=self._label,
            max_bytes=_MAX_EXPORTED_BYTES,
        )

    async def _export_if_wanted(self) -> None:
        """Export files before the end; a session that is busy or lost can't be asked for any."""
        if self._export_to is None or self.is_busy:
            return
        try:
            async with asyncio.timeout(_EXPORT_SECONDS):
                await self.export(self._export_to)
        except (SessionError, TimeoutError, OSError) as error:
            _log.warning("the session's files could not be exported: %s", error)

    def _begin_closing(self) -> "asyncio.Task[None]":
        return self._loop.create_task(self._close())

    async def _close(self) -> None:
        self._idle_since = None
        if self._timer is not None:
            self._timer.cancel()
        await self._export_if_wanted()
        self._drop_checkpoint()
        self._takes_checkpoints = False
        self._handle.end()
        ending = self._loop.create_task(self._end_worker())
        if self._close_sandbox is not None:  # It ends a worker that does not end by itself.
            await asyncio.wait([ending], timeout=_CLOSE_SECONDS)
            await self._close_sandbox()
        await ending
        if self._taking is not None:
            await asyncio.wait([self._taking])
        await self._handle.until_over()

    # Checkpoints.

    def _take_when_idle(self) -> None:
        """Set a timer, unless one is set, that checks how long the session has been idle."""
        if self._takes_checkpoints:
            self._idle_since = self._loop.time()
            if self._timer is None:
                self._timer = self._loop.call_later(IDLE_SECONDS, self._take_if_idle)

    def _take_if_idle(self) -> None:
        self._timer = None
        if self._idle_since is None:
            return
        due = self._idle_since + IDLE_SECONDS
        if due > self._loop.time():
            self._timer = self._loop.call_at(due, self._take_if_idle)
        else:
            self._idle_since = None
            self._taking = self._loop.create_task(self._take_checkpoint())

    async def _take_checkpoint(self) -> None:
        """Have the worker fork a copy, which replaces the checkpoint before it."""
        ours, theirs = socket.socketpair()
        taken = False
        try:
            with theirs:
                self._handle.permit_fork()
                taken = await self.checkpoint(theirs.fileno()) and self._takes_checkpoints
        except (SessionError, OSError):
            return  # The next request will find the session dead, and say so.
        finally:
            if not taken:
                ours.close()
        if not taken:
            return
        self._drop_checkpoint()
        self._checkpoint = _Checkpoint(ours, self.variables)
        self._handle.has_checkpoint = True
        self._changed.clear()

    def _drop_checkpoint(self) -> None:
        """Close the socket of the checkpoint, which ends its process."""
        self._handle.has_checkpoint = False
        if self._checkpoint is not None:
            self._handle.dropped_checkpoints += 1
            self._checkpoint.connection.close()
            self._checkpoint = None

    async def _restore(self, loss: SessionDied) -> None:
        """Continue with the checkpoint and raise SessionRestored; return if there is none."""
        checkpoint = self._checkpoint
        if checkpoint is None or self._closing is not None:
            return
        try:
            async with asyncio.timeout(_RESTORE_SECONDS):
                await self._end_worker()  # It must be gone before the copy continues,
                await self._handle.signals_sent()  # and no SIGTERM may be on its way any more.
                if self._closing is not None:
                    return
                self._handle.has_checkpoint = False
                self._checkpoint = None
                await self._resume(checkpoint)
        except (SessionError, TimeoutError):
            self._drop_checkpoint()
            self._handle.end()
            return
        lost = tuple(self._changed)
        self._changed.clear()
        raise SessionRestored(str(loss), lost_variables=lost) from loss

    async def _resume(self, checkpoint: _Checkpoint) -> None:
        """Let the checkpoint take the place of the worker; it must know the time already used."""
        self._handle.replace_worker()
        self._attach(checkpoint.connection)
        self._variables = dict.fromkeys(checkpoint.variables)
        used = wire.to_json({"cpu_seconds": self._handle.cpu_seconds})
        await self._request(wire.RESUME, [used], wire.VALUE)


def in_words(report: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the layers of a report, as events and `rlm doctor` name them."""
    kinds = {"root": "namespaces", "user": "user namespace"}
    named = {
        "pid namespace": report["pid_namespace"],
        "pivot_root": "pivot_root" in report["file_system"],
        f"Landlock {report['landlock_abi']}": report["landlock_abi"],
        "sealed": report["sealed"],
        "seccomp": report["seccomp"],
        "own uid": report["own_uid"],
        "cgroup": report.get("cgroup"),
    }
    first = [kinds[report["namespaces"]]] if report["namespaces"] else []
    return (*first, *(name for name, active in named.items() if active))
