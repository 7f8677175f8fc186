"""Background runs: started, listed, cancelled, resumed. They outlive connections and servers.

A run is in the journal and in the store before its client gets a reply.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from rlm._util.slow_numbers import decode
from rlm.calls.scope import new_run_id
from rlm.errors import ConfigError, RLMError
from rlm.events import Event
from rlm.records.journal import Archive
from rlm.records.recorders.console import one_line
from rlm.results import RunResult
from rlm.server.admission import Admission, Slot
from rlm.server.answering import Answerer
from rlm.server.bodies import Share
from rlm.server.conversation import from_run
from rlm.server.engines import PREFIX
from rlm.server.errors import ApiError, Closing, api_error, bad_request, not_found
from rlm.server.ledger import Grant
from rlm.server.planning import Plan, Planner
from rlm.server.progress import Meter
from rlm.server.replies import RunObject, RunState
from rlm.server.requests import LimitsField, RunRequest
from rlm.server.run_records import RunRow, RunStore, completed, failed, run_exists, run_object
from rlm.server.tokens import ANYBODY, Token
from rlm.web.responses import json_bytes

__all__ = ["LiveRun", "Runs"]

CANCEL_SECONDS = 5.0
MAX_PAGE_BYTES = 4 << 20
_log = logging.getLogger("rlm.server")


class LiveRun:
    """A run of this process. `changed` is set at every event, and when the run ends."""

    def __init__(self, row: RunRow, plan: Plan, grant: Grant | None, slot: Slot) -> None:
        self.row = row
        self.plan = plan
        self.grant = grant
        self.slot = slot
        self.meter = Meter()
        self.changed = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def record(self, event: Event) -> None:
        self.changed.set()


class Runs:
    """All background runs of one server."""

    def __init__(
        self,
        store: RunStore,
        archive: Archive,
        planner: Planner,
        admission: Admission,
        answerer: Answerer,
    ) -> None:
        self._store = store
        self._archive = archive
        self._planner = planner
        self._admission = admission
        self._answerer = answerer
        self._live: dict[str, LiveRun] = {}
        self._named: set[str] = set()  # Runs that a request is starting or waiting for.
        self.closing = False

    # -- beginning ---------------------------------------------------------------------------

    async def create(
        self, request: RunRequest, token: Token, keep: Callable[[], Share | None]
    ) -> RunObject:
        """Start a run; from then on it will be finished, whatever happens.

        `keep` hands over the memory of its body that the run still needs.
        """
        run_id = request.run_id or new_run_id()
        self._check_free(run_id)
        with self._naming(run_id), self._lining_up(token) as slot:
            wanted = replace(from_run(request), model=_with_repl(request.model))
            plan = await self._planner.plan(wanted, token)
            grant = None
            try:
                grant = self._answerer.hold(plan, run_id, background=True)
                await plan.engine.runner.begin(plan.task, plan.request.schema, run_id, plan.config)
                shown = plan.task.prologue or None  # Long instructions are in the context.
                kept = replace(
                    request, context=None, file_ids=None, run_id=run_id, instructions=shown
                )
                row = self._store.add(run_id, token.name, request.model, kept)
            except BaseException:
                self._answerer.release(grant)
                plan.cleanup.close()
                raise
            if (share := keep()) is not None:
                plan.cleanup.callback(share.release)
            return self._start(LiveRun(row, plan, grant, slot))

    def _check_free(self, run_id: str) -> None:
        known = run_id in self._named or self._store.get(run_id) is not None
        if known or self._journal_of(run_id).exists():
            raise run_exists(run_id)

    @contextmanager
    def _naming(self, run_id: str) -> Generator[None, None, None]:
        """Reserve a name for one request while it starts a run."""
        self._named.add(run_id)
        try:
            yield
        finally:
            self._named.discard(run_id)

    @contextmanager
    def _lining_up(self, token: Token, *, checked: bool = True) -> Generator[Slot, None, None]:
        """Count a run that is being started; if it does not start, count it no more."""
        slot = self._admission.line_up(token, checked=checked)
        try:
            yield slot
        except BaseException:
            slot.release(has_run=False)
            raise

    def _start(self, run: LiveRun) -> RunObject:
        self._live[run.row.run_id] = run
        run.task = asyncio.create_task(self._go(run))
        return self._run_object(run.row)

    async def _go(self, run: LiveRun) -> None:
        """Wait for a slot, then execute a run."""
        started = time.monotonic()
        try:
            await run.slot.wait(patient=True)
            started = time.monotonic()
            result = await self._answerer.run(run.plan, run.meter, run, run.row.run_id, run.grant)
            self._end(run, completed(run.row, result))
        except asyncio.CancelledError:
            if not self.closing:
                self._end(run, failed(run.row, "cancelled", None))
            raise
        except Closing:
            pass  # It is still waiting for a slot; the next server continues it.
        except ApiError as error:
            self._end(run, failed(run.row, "failed", error))
        except RLMError as error:
            _log.warning("run %s failed: %s", run.row.run_id, one_line(str(error), 1_000))
            self._end(run, failed(run.row, "failed", api_error(error)))
        finally:
            if not (self.closing and self._store_is_open(run.row.run_id)):
                self._answerer.settle(run.plan, run.meter, run.grant, time.monotonic() - started)
            run.slot.release()
            run.plan.cleanup.close()
            self._live.pop(run.row.run_id, None)
            run.changed.set()

    def _store_is_open(self, run_id: str) -> bool:
        """Return whether a run has not ended; it will continue when the server starts again."""
        row = self._store.get(run_id)
        return row is not None and row.ended is None

    def _end(self, run: LiveRun, ended: RunObject) -> None:
        self._store.end(run.row.run_id, json_bytes(ended))

    # -- looking -----------------------------------------------------------------------------

    def get(self, run_id: str, token: Token) -> RunObject:
        return self._run_object(self._row(run_id, token))

    def listed(self, token: Token, most: int, after: str | None) -> tuple[dict[str, bytes], bool]:
        """Return this token's runs as JSON by id, newest first, and whether there are more.

        Long answers make a page shorter. What is stored is JSON already.
        """
        before = None if after is None else self._row(after, token, "after")
        rows = self._store.of_token(token.name, most + 1, before)
        page: dict[str, bytes] = {}
        size = 0
        for row in rows[:most]:
            told = json_bytes(self._run_object(row)) if row.reply is None else row.reply
            size += len(told)
            if page and size > MAX_PAGE_BYTES:
                break
            page[row.run_id] = told
        return page, len(rows) > len(page)

    def live(self, run_id: str) -> LiveRun | None:
        return self._live.get(run_id)

    def journal(self, run_id: str, token: Token) -> Path:
        self._row(run_id, token)
        return self._journal_of(run_id)

    def _journal_of(self, run_id: str) -> Path:
        return self._archive.places.journal_of(run_id)

    def _row(self, run_id: str, token: Token, param: str = "run_id") -> RunRow:
        """Return one of this token's runs; for a token, the runs of others do not exist."""
        row = self._store.get(run_id)
        if row is None or row.token != token.name:
            raise not_found("there is no such run", param, "run_not_found")
        return row

    def _run_object(self, row: RunRow) -> RunObject:
        if row.reply is not None:
            return decode(row.reply, RunObject)
        live = self._live.get(row.run_id)
        state: RunState = "running" if row.run_id in self._named else "interrupted"
        if live is not None:
            state = "running" if live.slot.may_run else "queued"
        return run_object(row, state)

    # -- changing ----------------------------------------------------------------------------

    async def cancel(self, run_id: str, token: Token) -> RunObject:
        """End a run with the best answer it has; a run that has ended stays unchanged."""
        row = self._row(run_id, token)
        live = self._live.get(run_id)
        if live is None and run_id in self._named:
            raise _busy(run_id)
        if live is None or live.task is None:
            if row.ended is None:
                self._answerer.abandon(token, run_id)
                self._store.end(run_id, json_bytes(failed(row, "cancelled", None)))
            return self.get(run_id, token)
        await asyncio.sleep(0)  # A task cancelled before its first step would end nothing.
        if run_id in live.plan.engine.runner.running:
            live.plan.engine.stop(run_id)
        else:
            live.task.cancel()
        await asyncio.wait({live.task}, timeout=CANCEL_SECONDS)
        return self.get(run_id, token)

    async def resume(
        self,
        run_id: str,
        token: Token,
        limits: LimitsField | None = None,
        *,
        checked: bool = True,
    ) -> RunObject:
        """Continue a run that was interrupted, cancelled, failed or ended at a limit.

        It is refused if the token has too many, unless `checked` is False.
        """
        row = self._row(run_id, token)
        current = self._run_object(row)
        if run_id in self._live or run_id in self._named or current.status == "completed":
            return current
        if not row.has_request:
            raise bad_request(
                "this run was started at another endpoint: repeat that request instead"
            )
        request = self._store.request_of(run_id)
        if limits is not None:
            request = replace(request, limits=limits)
        with self._naming(run_id), self._lining_up(token, checked=checked) as slot:
            plan = await self._again(request, token)
            try:
                grant = self._answerer.hold(plan, run_id, background=True, continues=True)
            except BaseException:
                plan.cleanup.close()
                raise
            self._store.reopen(run_id, request)
            return self._start(LiveRun(self._row(run_id, token), plan, grant, slot))

    async def _again(self, request: RunRequest, token: Token) -> Plan:
        """Plan a run that was started before, with the context from the journal."""
        wanted = from_run(replace(request, run_id=None))
        plan = await self._planner.plan(replace(wanted, model=_with_repl(request.model)), token)
        run = self._archive.places.find(request.run_id or "")
        facts = await asyncio.to_thread(self._archive.facts, run)
        context = await asyncio.to_thread(self._archive.context_of, facts)
        task = replace(plan.task, query=facts.query, context=context)
        return replace(plan, task=task)

    # -- ids for waiting requests ------------------------------------------------------------

    def claim(self, plan: Plan) -> bool:
        """Reserve the id that a waiting request gives its run; return whether that run continues.

        It must be new, or a run of the same token that no other request is answering now. The
        plan's cleanup releases the id, and forgets a new one if no run was stored under it.
        """
        run_id, token = plan.request.rlm.run_id, plan.token
        if run_id is None:
            return False
        row, is_begun = self._store.get(run_id), self._journal_of(run_id).exists()
        if run_id in self._named or run_id in self._live:
            raise _busy(run_id)
        if row is None and not is_begun:
            self._store.add(run_id, token.name, plan.request.model, None)
        elif row is None or row.token != token.name or row.has_request:
            raise run_exists(run_id)
        self._named.add(run_id)
        plan.cleanup.callback(self._unclaim, run_id)
        return is_begun

    def _unclaim(self, run_id: str) -> None:
        self._named.discard(run_id)
        row = self._store.get(run_id)
        if row is not None and row.ended is None and not self._journal_of(run_id).exists():
            self._store.remove(run_id)

    def note(self, plan: Plan, result: RunResult) -> None:
        """Store how a waiting request's run with an id has ended."""
        run_id = plan.request.rlm.run_id
        row = None if run_id is None else self._store.get(run_id)
        if row is not None:
            self._store.end(row.run_id, json_bytes(completed(row, result)))

    # -- from start to end -------------------------------------------------------------------

    async def resume_all(self, tokens: Mapping[str, Token]) -> int:
        """Continue the runs that the last server left; return their number."""
        count = 0
        for row in self._store.unended():
            token = tokens.get(row.token) or (ANYBODY if row.token == ANYBODY.name else None)
            if not row.has_request or token is None:
                continue
            try:
                await self.resume(row.run_id, token, checked=False)
                count += 1
            except (ApiError, ConfigError) as error:
                _log.warning("run %s can't continue: %s", row.run_id, error)
        return count

    def shut(self) -> None:
        """End the event streams; clients can continue with the next server."""
        self.closing = True
        for run in self._live.values():
            run.changed.set()

    async def close(self) -> None:
        """Leave runs in progress to the next server: all of them are in the journal."""
        self.shut()
        tasks = [run.task for run in self._live.values() if run.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._store.close()


def _busy(run_id: str) -> ApiError:
    return ApiError(
        409,
        f"another request is answering the run {run_id}; wait for it, or choose another run_id",
        param="run_id",
        code="run_exists",
        headers={"Retry-After": "1"},
    )


def _with_repl(model: str) -> str:
    return model if model.startswith(PREFIX) else PREFIX + model
