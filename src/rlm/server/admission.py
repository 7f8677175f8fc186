"""Limits how many runs are in progress and how many wait: first come, first served."""

import asyncio
import math
import time
from collections import Counter, deque

from rlm._util.text import counted
from rlm.server.errors import Closing, too_many, unavailable
from rlm.server.settings import Settings
from rlm.server.tokens import Token

__all__ = ["Admission", "Slot"]

MAX_RETRY_SECONDS = 60
INITIAL_SECONDS = 1.0


class Slot:
    """A place in line, then the right to run. Releasing it a second time does nothing."""

    def __init__(self, admission: "Admission", token: Token) -> None:
        self._admission = admission
        self._token = token
        self._since: float | None = None
        self._open = True

    @property
    def may_run(self) -> bool:
        return self._since is not None

    async def wait(self, *, patient: bool = False) -> None:
        """Return when it is the turn of this request; raise ApiError if that takes too long.

        A background run has already been accepted, so it waits as long as it takes.
        """
        await self._admission._turn(patient)
        self._since = time.monotonic()

    def release(self, *, has_run: bool = True) -> None:
        """Leave; without `has_run`, how long it took says nothing about other requests."""
        if self._open:
            self._open = False
            self._admission._left(self._token, self._since, has_run)


class Admission:
    """Gives out slots, on one event loop."""

    def __init__(self, settings: Settings) -> None:
        self._most = settings.max_concurrent_runs
        self._most_queued = settings.max_queued
        self._queue_seconds = settings.queue_seconds
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._of_token: Counter[str] = Counter()
        self._seconds = INITIAL_SECONDS
        self._closing = False
        self.running = 0

    @property
    def queued(self) -> int:
        return sum(not each.done() for each in self._waiting)

    def check(self, token: Token) -> None:
        """Raise ApiError if a request could not even wait."""
        if self._closing:
            raise Closing
        most = token.max_concurrent_runs
        if most is not None and self._of_token[token.name] >= most:
            raise too_many(
                f"this token may have {counted(most, 'request')} at once; wait for one to end",
                "concurrency_exceeded",
                self._patience(1),
            )
        if self._of_token.total() >= self._most + self._most_queued:
            raise too_many(
                f"{counted(self._most, 'request')} running and {self._most_queued} waiting; "
                "try again later",
                "queue_full",
                self._patience(self._most_queued + 1),
            )

    def line_up(self, token: Token, *, checked: bool = True) -> Slot:
        """Count a request, which waits for its turn later; raise ApiError if it can't even wait."""
        if checked:
            self.check(token)
        self._of_token[token.name] += 1
        return Slot(self, token)

    async def enter(self, token: Token) -> Slot:
        """Return a slot, at once or after waiting in line; raise ApiError if it can't wait."""
        slot = self.line_up(token)
        try:
            await slot.wait()
        except BaseException:
            slot.release()
            raise
        return slot

    def close(self) -> None:
        """Admit no more requests, and refuse those that wait."""
        self._closing = True
        for each in self._waiting:
            if not each.done():
                each.set_exception(Closing())

    async def _turn(self, patient: bool) -> None:
        if self.running < self._most and not self.queued:
            self.running += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(None if patient else self._queue_seconds):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._next()  # The slot had just gone to a request that has left.
            if isinstance(error, TimeoutError):
                raise unavailable(
                    f"no slot was free within {self._queue_seconds:g} s; try again later",
                    "queue_timeout",
                    self._patience(self.queued),
                ) from None
            raise
        finally:
            turn.cancel()
            if turn in self._waiting:
                self._waiting.remove(turn)

    def _left(self, token: Token, since: float | None, has_run: bool) -> None:
        self._of_token[token.name] -= 1
        if not self._of_token[token.name]:
            del self._of_token[token.name]
        if since is not None:
            if has_run:
                self._seconds = 0.9 * self._seconds + 0.1 * (time.monotonic() - since)
            self._next()

    def _next(self) -> None:
        """Give a released slot to the first request in line."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.running -= 1

    def _patience(self, ahead: int) -> int:
        """Return after how many seconds to try again, judging by how long recent runs took."""
        return max(1, min(MAX_RETRY_SECONDS, math.ceil(ahead * self._seconds / self._most)))
