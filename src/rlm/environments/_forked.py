"""A session whose worker a zygote forked: a stream to its worker, its lifeline, and a checkpoint.

A checkpoint is a copy of the worker that waits at a stream of its own (`rlm.worker.checkpoints`).
It is taken when the session has been idle for a moment, so that no cell waits for it; when the
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
from rlm.environments._lifelines import Incarnation, Lifeline
from rlm.environments._session import Lend, StreamSession, note_names
from rlm.errors import SessionDied, SessionError, SessionRestored
from rlm.protocols import ContextSource, Host
from rlm.results import CellResult

__all__ = ["ForkedSession", "in_words"]

IDLE_SECONDS = 0.02
"""How long nobody must have wanted anything before a checkpoint is taken."""

_RESTORE_SECONDS = 30.0
_EXPORT_SECONDS = 30.0
_FAREWELL_SECONDS = 1.0
_MOST_EXPORTED_BYTES = 1 << 30

_log = logging.getLogger(__name__)


class _Checkpoint(NamedTuple):
    connection: socket.socket
    variables: tuple[str, ...]


class ForkedSession:
    """Implements `rlm.protocols.Session`."""

    def __init__(
        self,
        stream: StreamSession,
        host: Host,
        lifeline: Lifeline,
        *,
        report: Mapping[str, Any],
        label: str = "session",
        export_to: Path | None = None,
        afterwards: Callable[[], Awaitable[None]] | None = None,
        bounds: SessionBounds | None = None,
    ) -> None:
        self._bounds = bounds
        self.layers = in_words(report)
        self._scratch: str = report["scratch"]
        self._has_cgroup: bool = report.get("cgroup", False)
        self._label = label
        self._export_to = export_to
        self._afterwards = afterwards
        self._stream = stream
        self._host = host
        self._lifeline = lifeline
        self._takes_checkpoints: bool = report["forks"]
        self._loop = asyncio.get_running_loop()
        self._checkpoint: _Checkpoint | None = None
        self._changed: dict[str, None] = {}  # by cells since the checkpoint was taken
        self._idle_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._taking: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._tell_closed: Callable[[ForkedSession], None] = lambda _: None

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
        explain: Callable[[], Awaitable[str]] | None = None,
        afterwards: Callable[[], Awaitable[None]] | None = None,
    ) -> "ForkedSession":
        """Shake hands with the worker at the other end of a session.

        `greeting` is None if it has been greeted. `sends_fds`: descriptors can be sent to where it
        is; `lend` has somebody there send them. Of the sandbox around it, if it has one of its own:
        `explain` tells how that ended, `afterwards` ends it.
        """
        connection, other = ends
        lifeline = Lifeline(other, explain)
        bounds = SessionBounds.of(options)
        stream = await StreamSession.connect(
            connection,
            host,
            Incarnation(lifeline),
            greeting,
            sends_fds=sends_fds,
            lend=lend,
            bounds=bounds,
        )
        label = str(options.get("label", "session"))
        return cls(
            stream,
            host,
            lifeline,
            report=report,
            label=label,
            export_to=export_to,
            afterwards=afterwards,
            bounds=bounds,
        )

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the user's variables, as far as known."""
        return self._stream.variables

    async def load(self, name: str, context: ContextSource) -> None:
        """Bind a stored context to a name in the REPL."""
        self._stay()
        if self._has_cgroup:
            self._lifeline.make_room(context.size_bytes)
        await self._stream.load(name, context)
        if self._checkpoint is not None:
            self._take_when_idle()

    async def set_tools(self, tools: list[dict[str, str]]) -> None:
        """From now on there are these tools, and no others."""
        self._stay()
        await self._stream.set_tools(tools)
        if self._checkpoint is not None:
            self._take_when_idle()

    async def execute(self, code: str, *, timeout_seconds: float) -> CellResult:
        """Run a cell; SessionRestored if the worker was lost in it but its variables were not."""
        self._stay()
        try:
            result = await self._stream.execute(code, timeout_seconds=timeout_seconds)
        except SessionDied as error:
            await self._restore(error)
            raise
        note_names(self._changed, (*result.new_variables, *result.changed_variables))
        self._take_when_idle()
        return result

    async def fetch(self, name: str) -> str | None:
        """The text of a variable; None if there is none or it has no text."""
        self._stay()
        try:
            return await self._stream.fetch(name)
        except SessionDied as error:
            await self._restore(error)
            raise

    async def interrupt(self) -> None:
        """Stop the running cell; its variables stay."""
        await self._stream.interrupt()

    def when_closed(self, tell: Callable[["ForkedSession"], None]) -> None:
        """Have somebody told."""
        self._tell_closed = tell

    async def close(self) -> None:
        """End everything of the session; may be called twice."""
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
            self._closing.add_done_callback(lambda _: self._tell_closed(self))
        await asyncio.shield(self._closing)

    async def export(self, folder: Path) -> Path | None:
        """Copy what cells wrote to a new folder in `folder`; None if there is nothing."""
        if not self._scratch:
            return None
        files = await self._stream.list_files(self._scratch)
        return await export_files(
            files,
            lambda name, offset: self._stream.read_file(self._scratch, name, offset),
            folder,
            label=self._label,
            most_bytes=_MOST_EXPORTED_BYTES,
        )

    async def _export_if_wanted(self) -> None:
        """As the last thing; a session that is busy or lost has nothing to tell."""
        if self._export_to is None or self._stream.is_busy:
            return
        try:
            async with asyncio.timeout(_EXPORT_SECONDS):
                await self.export(self._export_to)
        except (SessionError, TimeoutError, OSError) as error:
            _log.warning("what the session wrote could not be exported: %s", error)

    async def _close(self) -> None:
        self._stay()
        if self._timer is not None:
            self._timer.cancel()
        await self._export_if_wanted()
        self._drop_checkpoint()
        self._takes_checkpoints = False
        self._lifeline.end()
        closing = self._loop.create_task(self._stream.close())
        if self._afterwards is not None:  # Who does not go now goes with what is around it.
            await asyncio.wait([closing], timeout=_FAREWELL_SECONDS)
            await self._afterwards()
        await closing
        if self._taking is not None:
            await asyncio.wait([self._taking])
        await self._lifeline.until_over()

    # Checkpoints.

    def _stay(self) -> None:
        """Somebody wants something: this is no moment for a checkpoint."""
        self._idle_since = None

    def _take_when_idle(self) -> None:
        """One timer stays set, however many cells come; it looks how long ago the last one was."""
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
            self._taking = self._loop.create_task(self._take())

    async def _take(self) -> None:
        """Have the worker fork a copy; the copy before it is not needed any more then."""
        ours, theirs = socket.socketpair()
        taken = False
        try:
            with theirs:
                self._lifeline.permit_fork()
                taken = await self._stream.checkpoint(theirs.fileno()) and self._takes_checkpoints
        except (SessionError, OSError):
            return  # The next request finds out, and tells.
        finally:
            if not taken:
                ours.close()
        if not taken:
            return
        self._drop_checkpoint()
        self._checkpoint = _Checkpoint(ours, self.variables)
        self._lifeline.has_checkpoint = True
        self._changed.clear()

    def _drop_checkpoint(self) -> None:
        """Its process ends when its stream does."""
        self._lifeline.has_checkpoint = False
        if self._checkpoint is not None:
            self._lifeline.dismissals += 1
            self._checkpoint.connection.close()
            self._checkpoint = None

    async def _restore(self, loss: SessionDied) -> None:
        """Go on with the checkpoint and say so by SessionRestored; return if there is none."""
        checkpoint = self._checkpoint
        if checkpoint is None or self._closing is not None:
            return
        try:
            async with asyncio.timeout(_RESTORE_SECONDS):
                await self._stream.close()  # Its worker must be gone before the copy goes on,
                await self._lifeline.until_confirmed()  # and no SIGTERM on its way any more.
                self._lifeline.has_checkpoint = False
                self._checkpoint = None
                self._stream = await StreamSession.resume(
                    checkpoint.connection,
                    self._host,
                    Incarnation(self._lifeline),
                    checkpoint.variables,
                    self._bounds,
                    cpu_seconds=self._lifeline.cpu_seconds,
                )
        except (SessionError, TimeoutError):
            self._drop_checkpoint()
            self._lifeline.end()
            return
        lost = tuple(self._changed)
        self._changed.clear()
        raise SessionRestored(str(loss), lost_variables=lost) from loss


def in_words(report: Mapping[str, Any]) -> tuple[str, ...]:
    """The layers of a report, as events and `rlm doctor` name them."""
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
