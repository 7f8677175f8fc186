"""One request of a client that waits: its place, its budget, its run, and the end of all that."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from starlette.types import Receive

from rlm.results import RunResult
from rlm.server.admission import Admission, Place
from rlm.server.answering import Answerer, Outcome
from rlm.server.asked import Asked
from rlm.server.errors import Closing
from rlm.server.ledger import Grant
from rlm.server.outbox import Outbox
from rlm.server.planning import Plan, Planner
from rlm.server.streams import while_connected
from rlm.server.tokens import Token

__all__ = ["Job", "Jobs"]


class Job:
    """A run that goes on in a task. `leave` is called once, whatever came of it."""

    def __init__(self, jobs: "Jobs", plan: Plan, place: Place, grant: Grant | None) -> None:
        self._jobs = jobs
        self._place = place
        self._grant = grant
        self.plan = plan
        self.outbox = Outbox()
        self.task = asyncio.create_task(jobs.answerer.answer(plan, self.outbox, grant))
        jobs.going.add(self.task)

    async def outcome(self) -> Outcome:
        """What came of it; if the server ended it, that is said."""
        await asyncio.wait({self.task})
        if self.task.cancelled():
            raise Closing
        return self.task.result()

    async def leave(self) -> None:
        """Cancel what still goes on, wait for its end, and give everything back."""
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(self.task, return_exceptions=True)
        self._jobs.going.discard(self.task)
        if not self.task.cancelled() and self.task.exception() is None:
            result = self.task.result().result
            if result is not None:
                self._jobs.note(self.plan, result)
        if self._grant is not None:
            self._jobs.answerer.release(self._grant)  # Of a task that never began; else nothing.
        await self.plan.cleanup.aclose()
        self._place.release()


class Jobs:
    """All of them, so that a server that stops can end those that are left."""

    def __init__(
        self,
        planner: Planner,
        admission: Admission,
        answerer: Answerer,
        note: Callable[[Plan, RunResult], None],
    ) -> None:
        self._planner = planner
        self._admission = admission
        self.answerer = answerer
        self.note = note
        self.going: set[asyncio.Task[Outcome]] = set()

    async def start(
        self, asked: Asked, token: Token, receive: Receive, check: Callable[[Plan], None]
    ) -> Job:
        """Plan it, wait for a place, hold back its budget, and begin; or an ApiError."""
        plan = await self._planner.plan(asked, token)
        try:
            check(plan)
            place = await while_connected(receive, self._admission.enter(token))
            try:
                return Job(self, plan, place, self.answerer.hold(plan))
            except BaseException:
                place.release()
                raise
        except BaseException:
            await plan.cleanup.aclose()
            raise

    def cancel_all(self) -> None:
        for task in self.going:
            task.cancel()
