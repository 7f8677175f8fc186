"""A client's request for a run, while it waits: for the end, for its own model, or for too long."""

import asyncio
import time

from rlm.errors import ModelError
from rlm.gateway.callers import Asking, Caller, Gone
from rlm.gateway.detached import Detached
from rlm.gateway.ledger import Answer, Ledger
from rlm.gateway.refusals import Refused
from rlm.gateway.runs import QUIET_SECONDS, GatewayRun
from rlm.messages import Request

__all__ = ["MOST_ROUNDS", "Waiter"]

MOST_ROUNDS = 8


class Waiter:
    """Waits for runs, `seconds` at most in one request."""

    def __init__(self, ledger: Ledger, detached: Detached, seconds: float) -> None:
        self._ledger = ledger
        self._detached = detached
        self.seconds = seconds

    async def wait(self, caller: Caller, run: GatewayRun) -> Answer | Asking:
        """Until the run is over, needs the client's model, or the time of this request is."""
        for name, reply in caller.replies.items():
            if run.desk is not None:
                run.desk.deliver(name, reply)
        try:
            return await self._news(caller, run)
        except asyncio.CancelledError:
            run.cancel()
            raise

    async def _news(self, caller: Caller, run: GatewayRun) -> Answer | Asking:
        until = time.monotonic() + self.seconds
        told = 0
        while not run.is_over:
            if run.watch.number > told:
                told = run.watch.number
                await caller.progress(told, run.watch.message)
            if caller.sampling == "rounds" and run.round_is_full:
                return self._asking(run)
            left = until - time.monotonic()
            if left <= 0 or (caller.sampling == "none" and run.desk and run.desk.waiting):
                return self._unfinished(run)
            if caller.sampling == "each":
                self._send_all(caller, run)
            waits = run.desk is not None and caller.sampling == "rounds" and run.desk.waiting
            await run.changed(min(left, QUIET_SECONDS) if waits else left)
        return self._finished(run)

    def _asking(self, run: GatewayRun) -> Answer | Asking:
        """One more round, unless it is one too many: then the client may come back later."""
        if run.rounds >= MOST_ROUNDS:
            return self._unfinished(run)
        assert run.desk is not None
        run.rounds += 1
        return Asking(run.desk.waiting, run.id)

    def _send_all(self, caller: Caller, run: GatewayRun) -> None:
        if run.desk is not None:
            for name, request in run.desk.take().items():
                task = self._detached.start(_send(caller, run, name, request))
                run.sending.add(task)
                task.add_done_callback(run.sending.discard)

    def _unfinished(self, run: GatewayRun) -> Answer:
        waits = run.desk is not None and bool(run.desk.waiting)
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
            "usage": run.watch.facts(is_sampled=run.desk is not None),
            "left": self._ledger.left(run.session),
        }


async def _send(caller: Caller, run: GatewayRun, name: str, request: Request) -> None:
    """Carry one request to the client's model, also when nobody waits for the run any more."""
    assert run.desk is not None
    try:
        run.desk.deliver(name, await caller.sample(request))
    except ModelError as error:
        run.desk.deliver(name, error)
    except Gone:
        run.desk.put_back(name)
