"""A session whose worker was forked by a zygote, and the handle of that worker.

A checkpoint is a copy of the worker that waits at its own socket (`rlm.worker.checkpoints`).
It is taken when the session has been idle for a moment, so that no cell waits for it. When the
worker is lost, the copy takes its place.

Orders to the worker and reports of its death go through the monitor socket of the session. No
process id is used here, so a signal can't reach another process.
"""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from msgspec import UNSET, MsgspecError, Struct, UnsetType, json

from rlm.environments._clock import ProcessState, until_had
from rlm.environments._exports import export_files
from rlm.environments._forkserver import layers_in
from rlm.environments._frames import SessionBounds
from rlm.environments._session import Lend, WorkerSession, note_names
from rlm.errors import SessionDied, SessionError, SessionRestored
from rlm.protocols import ContextSource, Host
from rlm.results import CellResult
from rlm.worker import wire
from rlm.worker.bounds import MAX_REASON_CHARS
from rlm.worker.sandbox import orders

__all__ = ["ForkedSession", "WorkerHandle"]

IDLE_SECONDS = 0.02
"""How long a session must have been idle before a checkpoint is taken."""

_RESTORE_SECONDS = 30.0
_EXPORT_SECONDS = 30.0
_CLOSE_SECONDS = 1.0
_MAX_EXPORTED_BYTES = 1 << 30

_MAX_REPORT_BYTES = 1 << 16
_REPORT_SECONDS = 0.3
_TERMINATION_SECONDS = 1.0
_CEILING_SECONDS = 10.0
_EXPLANATION_SECONDS = 2.0
_MAX_BYTES_PER_BYTE = 16
"""The most bytes of memory that a Python value takes for each byte of a stored context."""

_log = logging.getLogger(__name__)


class _Fact(Struct, frozen=True, forbid_unknown_fields=True):
    """A report of the zygote, or of the relay to the sandbox around it."""

    signalled: bool = False
    status: int | None = None
    error: str | None = None
    lost: str | None = None
    cpu_seconds: float | None = None
    state: ProcessState | UnsetType | None = UNSET


_FACT = json.Decoder(_Fact)


class WorkerHandle:
    """The worker of a session and its checkpoint, if it has one; implements `WorkerProcess`.

    It lasts until no process of the session is left. When a worker has died and its checkpoint
    continues, `replace_worker` makes that the worker.
    """

    def __init__(
        self,
        monitor: socket.socket,
        how_sandbox_ended: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        """`how_sandbox_ended` is called if the container ended, rather than the worker in it."""
        monitor.setblocking(False)
        self._monitor = monitor
        self._how_sandbox_ended = how_sandbox_ended
        self._loop = asyncio.get_running_loop()
        self.has_checkpoint = False
        self.dropped_checkpoints = 0
        """How many dropped checkpoints are not yet known to have ended."""
        self.cpu_seconds = 0.0
        """The processor time of all processes of the session that have died."""
        self._deaths = 0
        self._earlier_deaths = 0  # of workers that were replaced
        self._has_failed = False
        self._how = "was killed by SIGKILL"
        self._is_over = False
        self._is_ending = False
        self._unconfirmed_signals = 0
        self._awaited_states = 0
        self._state: ProcessState | None = None
        self._news = asyncio.Event()
        self._listening = self._loop.create_task(self._listen())
        self._terminating: asyncio.Task[None] | None = None

    def interrupt(self) -> None:
        """Send SIGINT to the worker."""
        self._signal(orders.INTERRUPT)

    async def signals_sent(self) -> None:
        """Wait until every requested signal has been sent."""
        while self._unconfirmed_signals > 0 and not self._is_over:
            await self._news.wait()

    async def state(self) -> ProcessState | None:
        """Return the processor time and state of the worker, or None if they can't be known.

        Its checkpoint, if there is one, is asleep and uses no time.
        """
        if self._order(orders.STATE):
            self._awaited_states += 1
        while self._awaited_states and not self._is_over:
            await self._news.wait()
        return self._state

    def permit_fork(self) -> None:
        """Let the worker fork once."""
        self._order(orders.PERMIT_FORK)

    def make_room(self, size_bytes: int) -> None:
        """Raise the memory limit of the session's control group for a context of this size."""
        steps = -(-_MAX_BYTES_PER_BYTE * size_bytes // orders.GROWTH_BYTES)
        self._order(orders.GROW * steps)

    def kill(self) -> None:
        """End the worker; its checkpoint lives on, unless the worker does not end."""
        if self.has_checkpoint:
            self._signal(orders.TERMINATE)
            self._terminating = self._loop.create_task(
                self._end_unless_dead_soon(self._earlier_deaths)
            )
        else:
            self.end()

    def end(self) -> None:
        """End every process of the session."""
        self._is_ending = True
        with contextlib.suppress(OSError):
            self._monitor.shutdown(socket.SHUT_WR)

    def stream_ended(self) -> None:
        """Kill the worker unless its death is reported soon: its stream is gone."""
        self._loop.call_later(_REPORT_SECONDS, self._kill_unless_dead, self._earlier_deaths)

    async def wait(self) -> str:
        """Wait until the worker has died; return how, as in `was killed by SIGSEGV`."""
        earlier = self._earlier_deaths
        while not self._is_dead(earlier):
            await self._news.wait()
        return self._how

    async def until_over(self) -> None:
        """Wait until no process of the session is left."""
        await asyncio.shield(self._listening)

    async def clean_up(self) -> None:
        """Do nothing: what the session wrote was in its own file system."""

    def replace_worker(self) -> None:
        """Make the checkpoint the worker; pending kills of the old worker do not affect it."""
        self._earlier_deaths = self._deaths

    def _is_dead(self, earlier_deaths: int) -> bool:
        """Return whether the worker that came after this many deaths has died."""
        return self._is_over or self._deaths > earlier_deaths

    def _kill_unless_dead(self, earlier_deaths: int) -> None:
        if not self._is_dead(earlier_deaths):
            self.kill()

    async def _end_unless_dead_soon(self, earlier_deaths: int) -> None:
        """End everything if the worker blocks SIGTERM and would live on beside its checkpoint."""
        ways = [self._loop.create_task(each) for each in (self._had_its_time(), self.wait())]
        await asyncio.wait(ways, timeout=_CEILING_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for each in ways:
            each.cancel()
        if not self._is_dead(earlier_deaths):
            self.end()

    async def _had_its_time(self) -> str:
        await self.signals_sent()
        await until_had(self, _TERMINATION_SECONDS)
        return "used up its time"

    # Orders to the zygote, and its reports.

    def _signal(self, order: bytes) -> None:
        if self._order(order):
            self._unconfirmed_signals += 1

    def _order(self, order: bytes) -> bool:
        try:
            self._monitor.send(order)
        except OSError:
            return False  # The session is over, or about to be.
        return True

    async def _listen(self) -> None:
        try:
            await self._read_reports()
        except (OSError, MsgspecError, RecursionError, UnicodeError):
            pass  # The zygote is gone, or no longer follows the protocol.
        finally:
            await self._explain_end()
            self.end()
            self._monitor.close()
            self._is_over = True
            self._wake_waiting()

    async def _read_reports(self) -> None:
        pending = b""
        while data := await self._loop.sock_recv(self._monitor, 4096):
            *lines, pending = (pending + data)[-_MAX_REPORT_BYTES:].split(b"\n")
            for line in filter(None, lines):
                self._note(_FACT.decode(line))
            self._wake_waiting()

    async def _explain_end(self) -> None:
        """Ask how the container ended, if no death of a worker was reported."""
        if self._how_sandbox_ended is None or self._is_ending or self._deaths:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_EXPLANATION_SECONDS):
                self._how = f"was lost: the container {await self._how_sandbox_ended()}"

    def _note(self, fact: _Fact) -> None:
        if fact.signalled:
            self._unconfirmed_signals = max(0, self._unconfirmed_signals - 1)
            return
        if not isinstance(fact.state, UnsetType):
            self._awaited_states = max(0, self._awaited_states - 1)
            self._state = fact.state
            return
        if fact.cpu_seconds is not None:
            self.cpu_seconds = fact.cpu_seconds
        if fact.status == orders.UNUSED_CHECKPOINT and self.dropped_checkpoints:
            self.dropped_checkpoints -= 1
            return
        self._deaths += 1
        if not self._has_failed:  # Otherwise the reason is known, and better than a status.
            self._how = _how_it_ended(fact)[:MAX_REASON_CHARS]
            self._has_failed = fact.error is not None or fact.lost is not None

    def _wake_waiting(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


def _how_it_ended(fact: _Fact) -> str:
    if fact.error is not None:
        return f"could not be started: {fact.error}"
    if fact.lost is not None:
        return fact.lost
    status = fact.status
    if status is None:
        return "ended"
    if status >= 0:
        return f"exited with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"was killed by {name}"


class _Checkpoint(NamedTuple):
    connection: socket.socket
    variables: tuple[str, ...]


class ForkedSession(WorkerSession):
    """A session with a forked worker; `layers` names what isolates it."""

    def __init__(
        self,
        ends: tuple[socket.socket, socket.socket],
        host: Host,
        options: Mapping[str, Any],
        *,
        report: Mapping[str, Any],
        export_to: Path | None = None,
        sends_fds: bool = True,
        lend: Lend | None = None,
        how_sandbox_ended: Callable[[], Awaitable[str]] | None = None,
        close_sandbox: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`ends` are the host's two sockets of the session: its stream and its monitor.

        `sends_fds` says whether file descriptors can be sent to the worker; if not, `lend` may have
        another process send them. The last two are for workers that have their own sandbox, such as
        a container.
        """
        connection, monitor = ends
        self._handle = WorkerHandle(monitor, how_sandbox_ended)
        bounds = SessionBounds.of(options)
        super().__init__(
            connection, host, self._handle, sends_fds=sends_fds, lend=lend, bounds=bounds
        )
        self.layers = layers_in(report)
        self._scratch: str = report["scratch"]
        self._has_cgroup: bool = report.get("cgroup", False)
        self._label = str(options.get("label", "session"))
        self._export_to = export_to
        self._close_sandbox = close_sandbox
        self._takes_checkpoints: bool = report["forks"]
        self._checkpoint: _Checkpoint | None = None
        self._changed: dict[str, None] = {}  # by cells since the checkpoint was taken
        self._idle_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._taking: asyncio.Task[None] | None = None

    async def start(self, greeting: bytes | None) -> Self:
        """Shake hands with the worker; `greeting` is None if it has been greeted."""
        await self._shake_hands(greeting)
        return self

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
        """Export files before the end; a session that is busy or lost can't list any."""
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
        """Set a timer, if none is set, that checks how long the session has been idle."""
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
        """Have the worker fork a copy, which replaces the previous checkpoint."""
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
                await self._handle.signals_sent()  # and no SIGTERM may still be on its way.
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
        """Let the checkpoint replace the worker, and send it the time already used."""
        self._handle.replace_worker()
        self._attach(checkpoint.connection)
        self._variables = dict.fromkeys(checkpoint.variables)
        used = wire.to_json({"cpu_seconds": self._handle.cpu_seconds})
        await self._request(wire.RESUME, [used], wire.VALUE)
