"""Requests that are being answered, each as a task."""

import asyncio
from collections.abc import Callable

from starlette.types import Receive

from rlm._util.limited import owner
from rlm.results import RunResult
from rlm.server.admission import Admission, Place
from rlm.server.answering import Answerer, Outcome
from rlm.server.conversation import Asked
from rlm.server.errors import Closing
from rlm.server.ledger import Grant
from rlm.server.planning import Plan, Planner
from rlm.server.progress import Outbox
from rlm.server.tokens import Token
from rlm.web.events import while_connected

__all__ = ["Job", "Jobs"]


class Job:
    """A run that goes on in a task. `leave` is called once, whatever came of it.

    The task's end gives back what was held, also if it was cancelled before its first step.
    """

    def __init__(self, jobs: "Jobs", plan: Plan, place: Place, grant: Grant | None) -> None:
        self._jobs = jobs
        self._place = place
        self._grant = grant
        self._left = False
        self.plan = plan
        self.outbox = Outbox()
        self.task = asyncio.create_task(jobs.answerer.answer(plan, self.outbox, grant))
        jobs.going.add(self.task)
        self.task.add_done_callback(self._ended)

    async def outcome(self) -> Outcome:
        """What came of it; if the server ended it, that is said."""
        await asyncio.wait({self.task})
        if self.task.cancelled():
            raise Closing
        return self.task.result()

    async def leave(self) -> None:
        """Cancel what still goes on, and give its place back once it has ended."""
        self._left = True
        self.task.cancel()
        if self.task.done():
            self._place.release()
        else:
            await asyncio.wait({self.task})

    def _ended(self, task: "asyncio.Task[Outcome]") -> None:
        self._jobs.going.discard(task)
        self._jobs.answerer.release(self._grant)  # Of a task that never began; else it is settled.
        if not task.cancelled() and task.exception() is None:
            result = task.result().result
            if result is not None:
                self._jobs.note(self.plan, result)
        self.plan.cleanup.close()
        if self._left:
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
        self,
        asked: Asked,
        token: Token,
        receive: Receive,
        claim: Callable[[Plan], bool],
        place: Place | None = None,
    ) -> Job:
        """Plan it, wait for a place, hold back its budget, and begin; or an ApiError.

        `claim` reserves the run's name and returns whether that run continues. A `place` that the
        request has already is released with the job, or here if there is none.
        """
        owner.set(token.name)  # Planning is a task of its own; what is started here inherits this.
        try:
            plan = await while_connected(receive, self._planner.plan(asked, token))
            try:
                continues = claim(plan)
                if place is None:
                    place = await while_connected(receive, self._admission.enter(token))
                grant = self.answerer.hold(plan, plan.asked.rlm.run_id, continues=continues)
            except BaseException:
                plan.cleanup.close()
                raise
            return Job(self, plan, place, grant)
        except BaseException:
            if place is not None:
                place.release()
            raise

    def cancel_all(self) -> None:
        for task in self.going:
            task.cancel()
