"""Requests that are being answered, each as a task."""

import asyncio
from collections.abc import Callable

from starlette.types import Receive

from rlm._util.limited import owner
from rlm.results import RunResult
from rlm.server.admission import Slot
from rlm.server.answering import Answerer, Outcome
from rlm.server.conversation import AnswerRequest
from rlm.server.errors import Closing
from rlm.server.ledger import Grant
from rlm.server.planning import Plan, Planner
from rlm.server.progress import Outbox
from rlm.server.tokens import Token
from rlm.web.events import while_connected

__all__ = ["Job", "Jobs"]


class Job:
    """A run in a task. `leave` is called once, however it ended.

    The end of the task releases what was reserved, even if it was cancelled before its first step.
    """

    def __init__(self, jobs: "Jobs", plan: Plan, slot: Slot, grant: Grant | None) -> None:
        self._jobs = jobs
        self._slot = slot
        self._grant = grant
        self._left = False
        self.plan = plan
        self.outbox = Outbox()
        self.task = asyncio.create_task(jobs.answerer.answer(plan, self.outbox, grant))
        jobs.running.add(self.task)
        self.task.add_done_callback(self._ended)

    async def outcome(self) -> Outcome:
        """Wait for the outcome; raise Closing if the server ended it."""
        await asyncio.wait({self.task})
        if self.task.cancelled():
            raise Closing
        return self.task.result()

    async def leave(self) -> None:
        """Cancel the run if it is in progress, and release its slot once it has ended."""
        self._left = True
        self.task.cancel()
        if self.task.done():
            self._slot.release()
        else:
            await asyncio.wait({self.task})

    def _ended(self, task: "asyncio.Task[Outcome]") -> None:
        self._jobs.running.discard(task)
        self._jobs.answerer.release(
            self._grant
        )  # Only if the task never started; otherwise it is settled.
        if not task.cancelled() and task.exception() is None:
            result = task.result().result
            if result is not None:
                self._jobs.note(self.plan, result)
        self.plan.cleanup.close()
        if self._left:
            self._slot.release()


class Jobs:
    """All jobs, so that a server can end the remaining ones when it stops."""

    def __init__(
        self,
        planner: Planner,
        answerer: Answerer,
        note: Callable[[Plan, RunResult], None],
    ) -> None:
        self._planner = planner
        self.answerer = answerer
        self.note = note
        self.running: set[asyncio.Task[Outcome]] = set()

    async def start(
        self,
        request: AnswerRequest,
        token: Token,
        slot: Slot,
        receive: Receive,
        claim: Callable[[Plan], bool],
    ) -> Job:
        """Plan a request, reserve its budget and start it; or raise ApiError.

        `claim` reserves the id of a run and returns whether that run continues. The slot is
        released with the job, or by the caller if no job starts.
        """
        owner.set(token.name)  # Planning is a separate task, which inherits this.
        plan = await while_connected(receive, self._planner.plan(request, token))
        try:
            continues = claim(plan)
            grant = self.answerer.hold(plan, plan.request.rlm.run_id, continues=continues)
        except BaseException:
            plan.cleanup.close()
            raise
        return Job(self, plan, slot, grant)

    def cancel_all(self) -> None:
        for task in self.running:
            task.cancel()
