"""The host's handle of a worker that a zygote forked: orders to it, and reports of its death.

Both go through the monitor socket of the session. No process id is used here, so a signal can't
reach another process.
"""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Awaitable, Callable

from msgspec import UNSET, MsgspecError, Struct, UnsetType, json

from rlm.environments._clock import ProcessState, until_had
from rlm.worker.bounds import MAX_REASON_CHARS
from rlm.worker.sandbox import orders

__all__ = ["WorkerHandle"]

_MAX_REPORT_BYTES = 1 << 16
_REPORT_SECONDS = 0.3
_TERMINATION_SECONDS = 1.0
_CEILING_SECONDS = 10.0
_EXPLANATION_SECONDS = 2.0
_MAX_BYTES_PER_BYTE = 16
"""Bytes of memory that a Python value takes at most, for each byte of a stored context."""


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
        """`how_sandbox_ended` is asked if the container around the worker ended, not the worker."""
        monitor.setblocking(False)
        self._monitor = monitor
        self._how_sandbox_ended = how_sandbox_ended
        self._loop = asyncio.get_running_loop()
        self.has_checkpoint = False
        self.dropped_checkpoints = 0
        """How many checkpoints were dropped and are not yet known to have ended."""
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
        """Wait until every signal that was ordered has been sent."""
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
        """Do nothing: what a session wrote was in a file system of its own."""

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
        return "had its time"

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
            pass  # The zygote is gone, or does not follow the protocol any more.
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
        """If no death was reported, the container itself ended: ask how."""
        if self._how_sandbox_ended is None or self._is_ending or self._deaths:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_EXPLANATION_SECONDS):
                self._how = f"is lost: the container {await self._how_sandbox_ended()}"

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
            self._how = _described(fact)[:MAX_REASON_CHARS]
            self._has_failed = fact.error is not None or fact.lost is not None

    def _wake_waiting(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


def _described(fact: _Fact) -> str:
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
