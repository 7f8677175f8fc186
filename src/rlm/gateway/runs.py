"""Runs that outlive the request that began them, and what is known of them meanwhile."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable
from typing import Any

from rlm.events import CallEnded, CallStarted, Event, ModelAsked, ModelReplied, StepStarted
from rlm.gateway.desk import Desk
from rlm.gateway.ledger import Answer
from rlm.gateway.refusals import Refused
from rlm.gateway.sessions import GatewaySession
from rlm.messages import Request

__all__ = ["GatewayRun", "Runs", "Watch"]

MOST_AT_ONCE = 4
QUIET_SECONDS = 0.05
PATIENT_SECONDS = 1.0
_ID_BYTES = 12


class Watch:
    """A recorder that counts: steps, calls, tokens and money. No text is kept."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.number = self.steps = self.calls = self.pending = 0
        self.input_tokens = self.output_tokens = 0
        self.cost_usd = 0.0
        self.is_cost_known = True

    def record(self, event: Event) -> None:
        """Count an event of the run, or of its children."""
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
        """What a run used; of a client's own model only the number of calls is known."""
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
    """One run of a session, going on or over."""

    def __init__(
        self, session: GatewaySession, show: Callable[[Request], None], *, samples: bool
    ) -> None:
        self.id = f"r_{secrets.token_urlsafe(_ID_BYTES)}"
        self.session = session
        self.watch = Watch(self._tell)
        self.desk = Desk(show, self._tell) if samples else None
        self.rounds = 0
        self.is_over = False  # and counted, and on record
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
            self._tell()

    @property
    def answer(self) -> Answer:
        """What it came to; nothing if it was cancelled."""
        assert self.task is not None
        return {} if self.task.cancelled() else self.task.result()

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    @property
    def round_is_full(self) -> bool:
        """Whether all requests of a batch have come in, as far as can be told."""
        if self.desk is None or not (waiting := self.desk.waiting):
            return False
        quiet = time.monotonic() - self.desk.asked_at
        if quiet >= PATIENT_SECONDS:
            return True
        return quiet >= QUIET_SECONDS and len(waiting) >= self.watch.pending

    async def changed(self, seconds: float) -> None:
        """Wait until there is news, or for so long."""
        news = asyncio.get_running_loop().create_future()
        self._listening.add(news)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await news
        finally:
            self._listening.discard(news)

    def _tell(self) -> None:
        for news in self._listening:
            if not news.done():
                news.set_result(None)


class Runs:
    """All runs, by session: somebody else's is as unknown as one that never was."""

    def __init__(self) -> None:
        self._runs: dict[str, dict[str, GatewayRun]] = {}

    def add(self, run: GatewayRun) -> None:
        self._runs.setdefault(run.session.id, {})[run.id] = run

    def check_room(self, session: GatewaySession) -> None:
        going_on = sum(not run.is_over for run in self._runs.get(session.id, {}).values())
        if going_on >= MOST_AT_ONCE:
            raise Refused(f"{going_on} runs of this session go on; wait for one by rlm_continue")

    def get(self, session: GatewaySession, run_id: str) -> GatewayRun:
        found = self._runs.get(session.id, {}).get(run_id)
        if found is None:
            raise Refused("this run is not known in this session; begin one by rlm_complete")
        return found

    def end(self, session: GatewaySession) -> None:
        """Cancel what goes on in a session that is over, and forget the rest."""
        for run in self._runs.pop(session.id, {}).values():
            run.cancel()


def _is_child(event: Any) -> bool:
    """A call that is a run of its own: its requests are counted, not it."""
    return getattr(event, "kind", "llm") == "rlm"
