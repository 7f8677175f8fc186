"""Runs that outlive the request that started them, and requests that wait for them."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable
from typing import Any

from rlm._util.text import counted
from rlm.errors import ModelError
from rlm.events import CallEnded, CallStarted, Event, ModelAsked, ModelReplied, StepStarted
from rlm.gateway.callers import Caller, ChannelClosed, PendingRequests, RepliesNeeded
from rlm.gateway.errors import Refused
from rlm.gateway.ledger import Answer, Ledger
from rlm.gateway.sessions import GatewaySession
from rlm.gateway.tasks import BackgroundTasks
from rlm.limits import Budget
from rlm.messages import Request

__all__ = ["MAX_ROUNDS", "GatewayRun", "RunCounter", "Runs", "Waiter"]

MAX_AT_ONCE = 4
QUIET_SECONDS = 0.05
PATIENT_SECONDS = 1.0
_ID_BYTES = 12


class RunCounter:
    """A recorder that counts steps, calls, tokens and money. It stores no text."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.number = self.steps = self.calls = self.pending = 0
        self.input_tokens = self.output_tokens = 0
        self.cost_usd = 0.0
        self.is_cost_known = True

    def record(self, event: Event) -> None:
        """Count an event of the run or of its children."""
        if isinstance(event, CallStarted | ModelAsked) and not _is_child(event):
            self.pending += 1
        elif isinstance(event, CallEnded | ModelReplied) and not _is_child(event):
            self.pending -= 1
            self.calls += 1
            self._count_usage(event)
        elif not isinstance(event, StepStarted):
            return
        self.steps += isinstance(event, StepStarted) and event.depth == 0
        self.number += 1
        self._changed()

    def _count_usage(self, event: CallEnded | ModelReplied) -> None:
        if event.usage is None:
            self.is_cost_known &= event.error is not None
            return
        self.input_tokens += event.usage.input_tokens
        self.output_tokens += event.usage.output_tokens
        self.is_cost_known &= event.usage.cost_usd is not None
        self.cost_usd += event.usage.cost_usd or 0.0

    @property
    def message(self) -> str:
        return f"step {self.steps}, {self.calls} model calls"

    def facts(self, *, is_sampled: bool) -> Answer:
        """Return what a run used; for a client's own model, only the number of calls is known."""
        if is_sampled:
            return {"steps": self.steps, "calls": self.calls, "known": False}
        return {
            "steps": self.steps,
            "calls": self.calls,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cost_usd": round(self.cost_usd, 9) if self.is_cost_known else None,
            "known": True,
        }


class GatewayRun:
    """One run of a session."""

    def __init__(
        self,
        session: GatewaySession,
        show: Callable[[Request], None],
        *,
        samples: bool,
        max_cost_usd: float | None = None,
    ) -> None:
        self.id = f"r_{secrets.token_urlsafe(_ID_BYTES)}"
        self.session = session
        self.budget = Budget.shared(max_cost_usd=max_cost_usd)
        self.counter = RunCounter(self._notify)
        self.requests = PendingRequests(show, self._notify) if samples else None
        self.rounds = 0
        self.is_over = False  # True once it has also been counted and recorded.
        self.task: asyncio.Task[Answer] | None = None
        self.sending: set[asyncio.Task[None]] = set()
        self._listening: set[asyncio.Future[None]] = set()

    def start(self, task: "asyncio.Task[Answer]", when_over: Callable[[], None]) -> None:
        self.task = task
        task.add_done_callback(lambda _: self._end(when_over))

    def _end(self, when_over: Callable[[], None]) -> None:
        for each in self.sending:
            each.cancel()
        try:
            when_over()
        finally:
            self.is_over = True
            self._notify()

    @property
    def answer(self) -> Answer:
        """The answer of the run; empty if it was cancelled."""
        assert self.task is not None
        return {} if self.task.cancelled() else self.task.result()

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    @property
    def round_is_full(self) -> bool:
        """Whether all requests of a batch have arrived, as far as that is known."""
        if self.requests is None or not (waiting := self.requests.waiting):
            return False
        quiet = time.monotonic() - self.requests.asked_at
        if quiet >= PATIENT_SECONDS:
            return True
        return quiet >= QUIET_SECONDS and len(waiting) >= self.counter.pending

    async def changed(self, seconds: float) -> None:
        """Wait until something changes, at most for `seconds`."""
        news = asyncio.get_running_loop().create_future()
        self._listening.add(news)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await news
        finally:
            self._listening.discard(news)

    def _notify(self) -> None:
        for news in self._listening:
            if not news.done():
                news.set_result(None)


class Runs:
    """All runs by session; the runs of other sessions are unknown."""

    def __init__(self) -> None:
        self._runs: dict[str, dict[str, GatewayRun]] = {}

    def add(self, run: GatewayRun) -> None:
        self._runs.setdefault(run.session.id, {})[run.id] = run

    def check_room(self, session: GatewaySession) -> None:
        going_on = sum(not run.is_over for run in self._runs.get(session.id, {}).values())
        if going_on >= MAX_AT_ONCE:
            raise Refused(
                f"this session has {counted(going_on, 'run')} in progress; "
                "wait for one with rlm_continue"
            )

    def get(self, session: GatewaySession, run_id: str) -> GatewayRun:
        found = self._runs.get(session.id, {}).get(run_id)
        if found is None:
            raise Refused("this session has no such run; start one with rlm_complete")
        return found

    def end(self, session: GatewaySession) -> None:
        """Cancel and forget the runs of a session that has ended."""
        for run in self._runs.pop(session.id, {}).values():
            run.cancel()


def _is_child(event: Any) -> bool:
    """Return whether a call is a child run, whose own requests are counted instead."""
    return getattr(event, "kind", "llm") == "rlm"


MAX_ROUNDS = 8


class Waiter:
    """Waits for runs, at most `seconds` in one request."""

    def __init__(self, ledger: Ledger, tasks: BackgroundTasks, seconds: float) -> None:
        self._ledger = ledger
        self._tasks = tasks
        self.seconds = seconds

    async def wait(self, caller: Caller, run: GatewayRun) -> Answer | RepliesNeeded:
        """Wait until the run ends or needs the client's model, or this request's time is up."""
        for name, reply in caller.replies.items():
            if run.requests is not None:
                run.requests.deliver(name, reply)
        try:
            return await self._news(caller, run)
        except asyncio.CancelledError:
            run.cancel()
            raise

    async def _news(self, caller: Caller, run: GatewayRun) -> Answer | RepliesNeeded:
        until = time.monotonic() + self.seconds
        reported = 0
        while not run.is_over:
            if run.counter.number > reported:
                reported = run.counter.number
                await caller.progress(reported, run.counter.message)
            if caller.sampling == "rounds" and run.round_is_full:
                return self._asking(run)
            left = until - time.monotonic()
            if left <= 0 or (caller.sampling == "none" and run.requests and run.requests.waiting):
                return self._unfinished(run)
            if caller.sampling == "each":
                self._send_all(caller, run)
            waits = (
                run.requests is not None and caller.sampling == "rounds" and run.requests.waiting
            )
            await run.changed(min(left, QUIET_SECONDS) if waits else left)
        return self._finished(run)

    def _asking(self, run: GatewayRun) -> Answer | RepliesNeeded:
        """Ask for another round; after `MAX_ROUNDS` the client has to come back later."""
        if run.rounds >= MAX_ROUNDS:
            return self._unfinished(run)
        assert run.requests is not None
        run.rounds += 1
        return RepliesNeeded(run.requests.waiting, run.id)

    def _send_all(self, caller: Caller, run: GatewayRun) -> None:
        if run.requests is not None:
            for name, request in run.requests.take().items():
                task = self._tasks.start(_send(caller, run, name, request))
                run.sending.add(task)
                task.add_done_callback(run.sending.discard)

    def _unfinished(self, run: GatewayRun) -> Answer:
        waits = run.requests is not None and bool(run.requests.waiting)
        return {
            "status": "paused" if waits else "running",
            "run_id": run.id,
            "left": self._ledger.left(run.session),
        }

    def _finished(self, run: GatewayRun) -> Answer:
        answer = run.answer
        if not answer or run.session.is_closed:
            raise Refused("this run was cancelled")
        if "problem" in answer:
            raise Refused(answer["problem"])
        quotes = sum(len(each["quote"].encode()) for each in answer["citations"])
        run.session.count_bytes(len(answer["answer"].encode()) + quotes)
        return {
            "status": "done",
            "run_id": run.id,
            **answer,
            "usage": run.counter.facts(is_sampled=run.requests is not None),
            "left": self._ledger.left(run.session),
        }


async def _send(caller: Caller, run: GatewayRun, name: str, request: Request) -> None:
    """Send one request to the client's model, even if no request is waiting for the run."""
    assert run.requests is not None
    try:
        run.requests.deliver(name, await caller.sample(request))
    except ModelError as error:
        run.requests.deliver(name, error)
    except ChannelClosed:
        run.requests.put_back(name)
