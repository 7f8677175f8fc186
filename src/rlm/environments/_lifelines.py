"""The host's side of a lifeline: orders down to the zygote, reports of deaths up.

No process id is used here, so no other process can ever be hit.
"""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Awaitable, Callable

from msgspec import UNSET, MsgspecError, Struct, UnsetType, json

from rlm.environments._clock import Vitals, until_had
from rlm.worker.bounds import MAX_REASON_CHARS
from rlm.worker.checkpoints import DISMISSED
from rlm.worker.sandbox import orders
from rlm.worker.sandbox.cgroups import GROWTH_BYTES

__all__ = ["Incarnation", "Lifeline"]

_MOST_REPORT_BYTES = 1 << 16
_REPORT_SECONDS = 0.3
_TERMINATION_SECONDS = 1.0
_CEILING_SECONDS = 10.0
_EXPLANATION_SECONDS = 2.0
_MOST_BYTES_PER_BYTE = 16
"""What a context takes as a value of Python, for each byte of it as it is stored."""


class _Fact(Struct, frozen=True, forbid_unknown_fields=True):
    """A line of the zygote's, or of whoever has taken over the sandbox around it."""

    signalled: bool = False
    status: int | None = None
    error: str | None = None
    lost: str | None = None
    cpu_seconds: float | None = None
    looked: Vitals | UnsetType | None = UNSET


_FACT = json.Decoder(_Fact)


class Lifeline:
    """What a session hangs on. It lasts until nobody of the session is left."""

    def __init__(
        self, connection: socket.socket, explain: Callable[[], Awaitable[str]] | None = None
    ) -> None:
        """`explain` tells how the container around it ended, if that is what ended it."""
        connection.setblocking(False)
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self.has_checkpoint = False
        self.deaths = 0
        self.dismissals = 0
        """How many checkpoints were let go and have not ended yet, as far as known."""
        self.cpu_seconds = 0.0
        """The processor time of all processes of the session that have died."""
        self._failed = False
        self.how = "was killed by SIGKILL"
        self.is_over = False
        self._explain = explain
        self._let_go = False
        self._unconfirmed = 0
        self._looks_due = 0
        self._vitals: Vitals | None = None
        self._news = asyncio.Event()
        self._listening = self._loop.create_task(self._listen())

    def interrupt(self) -> None:
        """Send SIGINT to the worker."""
        if self._order(orders.INTERRUPT):
            self._unconfirmed += 1

    async def until_confirmed(self) -> None:
        """Wait until every signal that was ordered has been sent."""
        while self._unconfirmed > 0 and not self.is_over:
            await self._news.wait()

    async def look(self) -> Vitals | None:
        """How the processes of the session fare; None if that can't be known there."""
        if self._order(orders.LOOK):
            self._looks_due += 1
        while self._looks_due and not self.is_over:
            await self._news.wait()
        return self._vitals

    def permit_fork(self) -> None:
        """Let the worker fork once."""
        self._order(orders.PERMIT_FORK)

    def make_room(self, size_bytes: int) -> None:
        """A context of that size will be loaded; where memory is limited by group, raise that."""
        steps = -(-_MOST_BYTES_PER_BYTE * size_bytes // GROWTH_BYTES)
        self._order(orders.GROW * steps)

    def terminate(self) -> None:
        """End the worker, but not a checkpoint of it."""
        if self._order(orders.TERMINATE):
            self._unconfirmed += 1

    def end(self) -> None:
        """End the worker and everything else of the session."""
        self._let_go = True
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)

    async def until_death(self, after: int) -> None:
        """Wait until more than `after` workers have died, or nobody is left."""
        while self.deaths <= after and not self.is_over:
            await self._news.wait()

    async def until_over(self) -> None:
        """Wait until nobody is left."""
        await asyncio.shield(self._listening)

    def _order(self, order: bytes) -> bool:
        try:
            self._connection.send(order)
        except OSError:
            return False  # It is over, or about to be.
        return True

    async def _listen(self) -> None:
        try:
            await self._read_reports()
        except (OSError, MsgspecError, RecursionError, UnicodeError):
            pass  # The zygote is gone, or no longer itself.
        finally:
            await self._note_ending()
            self.end()
            self._connection.close()
            self.is_over = True
            self._tell()

    async def _read_reports(self) -> None:
        pending = b""
        while data := await self._loop.sock_recv(self._connection, 4096):
            *lines, pending = (pending + data)[-_MOST_REPORT_BYTES:].split(b"\n")
            for line in filter(None, lines):
                self._note(_FACT.decode(line))
            self._tell()

    async def _note_ending(self) -> None:
        """The lifeline has ended; whoever ended nobody himself did not end by himself."""
        if self._explain is None or self._let_go or self.deaths:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_EXPLANATION_SECONDS):
                self.how = f"is lost: the container {await self._explain()}"

    def _note(self, fact: _Fact) -> None:
        if fact.signalled:
            self._unconfirmed = max(0, self._unconfirmed - 1)
            return
        if not isinstance(fact.looked, UnsetType):
            self._looks_due = max(0, self._looks_due - 1)
            self._vitals = (
                None if fact.looked is None else Vitals(fact.looked.cpu_seconds, fact.looked.asleep)
            )
            return
        if fact.cpu_seconds is not None:
            self.cpu_seconds = fact.cpu_seconds
        if fact.status == DISMISSED and self.dismissals:
            self.dismissals -= 1
            return
        self.deaths += 1
        if not self._failed:  # Else the reason is known, and better than a status.
            self.how = _described(fact)[:MAX_REASON_CHARS]
            self._failed = fact.error is not None or fact.lost is not None

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


class Incarnation:
    """One worker of a session: the first, or one that was resumed; implements `WorkerProcess`."""

    def __init__(self, lifeline: Lifeline) -> None:
        self._lifeline = lifeline
        self._loop = asyncio.get_running_loop()
        self._deaths_before = lifeline.deaths
        self._ending: asyncio.Task[None] | None = None

    def interrupt(self) -> None:
        """Send it SIGINT."""
        self._lifeline.interrupt()

    def kill(self) -> None:
        """End it; its checkpoint lives on, unless the worker does not go."""
        if self._lifeline.has_checkpoint:
            self._lifeline.terminate()
            self._ending = self._loop.create_task(self._end_all_unless_it_dies())
        else:
            self._lifeline.end()

    async def settle(self) -> None:
        """Wait until every interrupt that was sent has arrived."""
        await self._lifeline.until_confirmed()

    async def look(self) -> Vitals | None:
        """How it fares; its checkpoint, if there is one, is asleep and uses no time."""
        return await self._lifeline.look()

    def stream_ended(self) -> None:
        """Its stream is gone: it is dying, or has closed the stream itself and must die."""
        self._loop.call_later(_REPORT_SECONDS, self._kill_unless_dead)

    async def wait(self) -> str:
        """Wait for its end and say how it came, as in `was killed by SIGSEGV`."""
        await self._lifeline.until_death(self._deaths_before)
        return self._lifeline.how

    async def clean_up(self) -> None:
        """Nothing is left: what a session wrote was in a file system of its own."""

    @property
    def _is_dead(self) -> bool:
        return self._lifeline.is_over or self._lifeline.deaths > self._deaths_before

    def _kill_unless_dead(self) -> None:
        if not self._is_dead:
            self.kill()

    async def _end_all_unless_it_dies(self) -> None:
        """A worker that has blocked SIGTERM would otherwise live on beside its checkpoint."""
        ways = [self._loop.create_task(each) for each in (self._had_its_time(), self.wait())]
        await asyncio.wait(ways, timeout=_CEILING_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for each in ways:
            each.cancel()
        if not self._is_dead:
            self._lifeline.end()

    async def _had_its_time(self) -> str:
        await self.settle()
        await until_had(self, _TERMINATION_SECONDS)
        return "had its time"


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
