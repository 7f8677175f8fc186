"""The session of a run: opened, loaded, timed, and replaced when its worker dies.

An error in a cell is a result. A dead worker becomes a result too: its last checkpoint replaces it,
or a new session with the context loaded again, and the model is shown what was lost.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from rlm._util.lazy import pattern
from rlm._util.python_source import names_bound
from rlm.calls.scope import Scope
from rlm.config import RunConfig
from rlm.engine.cell_time import execute_in_time
from rlm.engine.repl_values import ANSWER_AFTER_SETUP, FRESH_ANSWER, Loadable, ReplValue, current
from rlm.errors import CallRefused, ConfigError, SessionError, SessionRestored
from rlm.events import CellEnded, CellOutput, CellStarted, SessionLost, SessionOpened
from rlm.prompts import nudges
from rlm.protocols import BaseEnvironment, BaseSession, ContextSource, Host, Session, Tool
from rlm.results import CellError, CellResult, bounded
from rlm.worker.bounds import (
    MAX_ANSWER_CHARS,
    MAX_DESCRIPTION_CHARS,
    MAX_NAME_CHARS,
    MAX_REASON_CHARS,
    MAX_VARIABLES,
)

__all__ = ["AfterCell", "RunSession"]

Done = TypeVar("Done")

LOOK_SECONDS = 10.0

CANCEL_SECONDS = 5.0
"""How long the cell of a cancelled run may take to unwind if the session outlives the run."""

_WORD = pattern(r"\w++")
RUN_NAME = "_rlm_run"
"""A private REPL variable: the id of the run that `answer` belongs to."""

AfterCell = Callable[[Session, Scope, int], Awaitable[None]]
"""Called after each cell with the worker, the run and the cell's number; raises nothing."""


class RunSession:
    """The REPL of a run, or of all runs of a chat if it is kept open.

    It is the Host of its worker and passes requests to the current run.
    """

    def __init__(
        self,
        environment: BaseEnvironment,
        config: RunConfig,
        contexts: Mapping[str, ContextSource],
        tools: Sequence[Tool] = (),
        after_cell: "AfterCell | None" = None,
    ) -> None:
        self.contexts: dict[str, Loadable] = {**contexts}
        self._after_cell = after_cell
        self._environment = environment
        self._config = config
        self._tools = tools
        self._session: BaseSession | None = None
        self.loss = ""  # what to show a model about a worker that died between two runs
        self._scope: Scope | None = None
        self._host: Host | None = None
        self.outlives_runs = False
        """Whether the session is kept after a run, so that cancelling one keeps the variables."""
        self.restore: Callable[[Session], Awaitable[str]] | None = None
        """Called with the first worker after its contexts are loaded; returns what was lost."""
        self._answering: set[asyncio.Task[Any]] = set()
        self._cancelling = False
        self._is_stopped = False
        self._pending: _Pending | None = None
        self._earlier: frozenset[str] = frozenset()  # variables from before the current run
        self._rebound: set[str] = set()  # those of `_earlier` that this run has bound again
        self._words: set[str] = set()  # every word in the code of this run
        self._is_reused = False
        self.prepared: dict[str, str] = {}
        """The variables that `setup_code` left, with their descriptions."""

    def serve(self, scope: Scope, host: Host) -> None:
        """Run cells for this run from now on; until the worker knows of it, refuse all calls."""
        self._scope, self._host = scope, host
        self._is_stopped = False
        self._is_renewing = self._session is not None

    def stop(self, cancel: Callable[[], object]) -> None:
        """Refuse the calls of this run from now on, interrupt its cell, and then call `cancel`.

        The variables that the cell has bound so far stay and can still answer the query.
        """
        self._is_stopped = True
        if self._pending is None:
            cancel()
        elif self._pending.stopping is None:
            self._pending.stopping = asyncio.create_task(self._stop_cell(self._pending, cancel))

    async def leave(self, host: Host, *, close: bool) -> None:
        """Stop answering for a run that has ended: threads of its cells may still send requests."""
        if close:
            await self.close()
        if self._host is not host:
            return
        self._host = None
        if self._answering:
            self._cancelling = True
            for each in self._answering:
                each.cancel()
            await asyncio.wait(self._answering, timeout=CANCEL_SECONDS)
            self._cancelling = False
        self.scope.report_reads()  # of a cell that did not end

    @property
    def scope(self) -> Scope:
        assert self._scope is not None, "call serve() before the first cell"
        return self._scope

    async def answer(
        self, kind: str, arguments: dict[str, Any], parts: Sequence[str]
    ) -> tuple[dict[str, Any], Sequence[str]]:
        """Pass a request to the current run (the Host protocol)."""
        if self._host is None or self._cancelling or self._is_stopped or self._is_renewing:
            raise CallRefused("the run has ended", limit="cancelled")
        task = asyncio.current_task()
        if task is None:
            return await self._host.answer(kind, arguments, parts)
        self._answering.add(task)
        try:
            return await self._host.answer(kind, arguments, parts)
        except asyncio.CancelledError:
            if not self._cancelling:
                raise
            task.uncancel()  # The cell continues until it has unwound.
            raise CallRefused("the run has ended", limit="cancelled") from None
        finally:
            self._answering.discard(task)

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the variables as the worker reports them, limited in number and length."""
        names = self._session.variables[:MAX_VARIABLES] if self._session else ()
        if max(map(len, names), default=0) > MAX_NAME_CHARS:  # Fast: this is asked in every step.
            names = tuple(name for name in names if len(name) <= MAX_NAME_CHARS)
        return names

    @property
    def own_variables(self) -> tuple[str, ...]:
        """The variables that the current run has bound, without those of earlier runs."""
        stale = self._earlier - self._rebound
        return tuple(name for name in self.variables if name not in stale)

    async def open(self) -> None:
        """Make sure there is a worker with its contexts and a fresh `answer`."""
        self._is_reused = self._session is not None or self.restore is not None
        if self._session is not None:
            await self._renew_answer()
        self._is_renewing = False
        if self._session is None:
            await self._start()
        self._earlier, self._rebound = frozenset(self.variables), set()
        self._words = set()

    async def _renew_answer(self) -> None:
        """Bind a fresh `answer`; close the session if its worker died since the last run."""
        assert self._session is not None
        run_id = ReplValue("text", self.scope.run_id)
        try:
            await self._uninterrupted(self._session.load("answer", FRESH_ANSWER))
            await self._uninterrupted(self._session.load(RUN_NAME, run_id))
        except SessionError as error:
            self.loss = nudges.session_lost(str(error)[:MAX_REASON_CHARS], self.variables)
            await self.close()

    async def _start(self) -> None:
        limits = self._config.limits
        options = {
            "seed": self._config.seed,
            "tools": _describe_tools(self._tools),
            "kept_output_chars": limits.kept_output_chars,
            "cell_memory_bytes": limits.cell_memory_bytes,
            "label": self.scope.run_id,
        }
        started = time.monotonic()
        self._session = await self._environment.open(self, options)
        self.scope.emit(
            SessionOpened,
            environment=self._environment.name,
            layers=self._session.layers,
            seconds=time.monotonic() - started,
        )
        for name, context in self.contexts.items():
            await self._session.load(name, await current(context))
        if self._config.setup_code.strip():
            await self._set_up(self._session)
        if self.restore is not None:
            self.loss = await self.restore(self._session)
            self.restore = None
            await self._renew_answer()  # a saved chat may have had its own

    async def _set_up(self, session: BaseSession) -> None:
        """Run `setup_code` in a new worker; its output is dropped, its variables stay.

        An answer that it submits is ignored.
        """
        try:
            result = await self._execute(self._config.setup_code)
            self.scope.report_reads()
            if result.error is not None:
                report = (result.error.traceback or result.error.message).strip()
                raise ConfigError(f"setup_code failed, so the run did not start:\n{report}")
            await session.load("answer", ANSWER_AFTER_SETUP)
        except SessionError as error:
            await self.close()
            raise SessionError(f"setup_code ended its session: {error}") from error
        except BaseException:  # Half of it ran: the next run needs a new worker.
            await self.close()
            raise
        self.prepared = dict(result.new_variables)

    async def add_context(self, name: str, context: ContextSource) -> None:
        """Bind another value; it is bound again whenever the worker is replaced."""
        self.contexts[name] = context
        if self._session is None:
            return
        try:
            await self._uninterrupted(self._session.load(name, context))
        except SessionError as error:  # the worker died since the last run
            self.loss = nudges.session_lost(str(error)[:MAX_REASON_CHARS], self.variables)
            await self.close()

    async def set_tools(self, tools: Sequence[Tool]) -> None:
        """Offer these tools from the next cell on; some sessions offer them only by `call_tool`."""
        if tuple(tools) == tuple(self._tools):
            return
        self._tools = tools
        await self._bind_tools()

    async def _bind_tools(self) -> None:
        if self._session is None:
            return
        try:
            await self._session.set_tools(_describe_tools(self._tools))
        except SessionError as error:
            self.loss = nudges.session_lost(str(error)[:MAX_REASON_CHARS], self.variables)
            await self.close()

    async def run_cell(self, number: int, code: str) -> CellResult:
        """Execute one cell and emit its events."""
        self.scope.emit(CellStarted, cell=number, code=code)
        self.scope.begin_cell()
        self.scope.cell = number
        started = time.monotonic()
        try:
            result = await self._execute(code)
        except SessionRestored as error:
            self.scope.lose_cell()
            result = self._note_restored(error, time.monotonic() - started)
            await self._catch_up()
        except SessionError as error:
            self.scope.lose_cell()
            result = await self._recover(str(error), time.monotonic() - started)
        result = bounded(result, self._config.limits.kept_output_chars)
        for stream, text, written in (
            ("stdout", result.stdout, result.stdout_chars),
            ("stderr", result.stderr, result.stderr_chars),
        ):
            if text:
                self.scope.emit(
                    CellOutput, cell=number, stream=stream, text=text, written_chars=written
                )
        if self._after_cell is not None and self._session is not None:
            await self._after_cell(self._session, self.scope, number)
        self.scope.report_reads()
        failure = result.error
        self.scope.emit(
            CellEnded,
            cell=number,
            seconds=result.seconds,
            calls=result.calls,
            error_type=failure and failure.type,
            error_message=failure and failure.message,
            traceback=failure and failure.traceback,
            interrupted=result.interrupted,
            new_variables=result.new_variables,
            changed_variables=result.changed_variables,
            submitted=result.submission is not None,
        )
        return result

    async def lookup(self, name: str) -> str | None:
        """Return the text of a variable, or None if it does not exist."""
        if self._session is None:
            return None
        try:
            text = await self._uninterrupted(self._session.fetch(name))
        except SessionRestored:
            await self._catch_up()
            return None
        except SessionError:
            return None  # the next cell finds the session dead and recovers
        return None if text is None else text[:MAX_ANSWER_CHARS]

    async def described_variables(self) -> dict[str, str]:
        """Return variables and their descriptions from `SHOW_VARS()`; empty without a worker."""
        if self._session is None:
            return {}
        try:
            look = self._session.execute("print(SHOW_VARS())", timeout_seconds=LOOK_SECONDS)
            shown = await self._uninterrupted(look, self._session.interrupt)
        except SessionError:
            return {}  # the next cell finds the session dead and recovers
        pairs = (line.partition(": ") for line in shown.stdout.splitlines()[:MAX_VARIABLES])
        return {
            name: description[:MAX_DESCRIPTION_CHARS]
            for name, colon, description in pairs
            if colon and len(name) <= MAX_NAME_CHARS and name.isidentifier()
        }

    def take_loss(self) -> str:
        """Return, once, what the model must be shown about lost variables."""
        loss, self.loss = self.loss, ""
        return loss

    @property
    def worker(self) -> Session | None:
        """The session of the environment, if there is one."""
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def _execute(self, code: str) -> CellResult:
        """Run a cell within its own time limit and that of the run."""
        if self._session is None:
            raise SessionError("there was no session")
        work = self._execute_and_note(self._session, code)
        return await self._uninterrupted(work, interrupt=self._session.interrupt)

    async def _execute_and_note(self, session: Session, code: str) -> CellResult:
        """Run a cell and note what it bound, even if the run was stopped meanwhile."""
        limits, left = self._config.limits, self.scope.budget.seconds_left
        if left == math.inf:
            result = await session.execute(code, timeout_seconds=limits.cell_seconds)
        else:
            result = await execute_in_time(session, code, limits, left)
        self._note_bound(code, result)
        return result

    async def _uninterrupted(
        self,
        work: Coroutine[Any, Any, Done],
        interrupt: Callable[[], Awaitable[None]] | None = None,
    ) -> Done:
        """Await a worker request; stopping the run interrupts the cell, and its variables stay.

        So does cancelling the run if the session outlives it; otherwise that kills the worker.
        """
        if self.outlives_runs:
            return await self._shielded(work, interrupt)
        pending = self._pending = _Pending(interrupt)
        try:
            return await work
        finally:
            self._pending = None
            if pending.stopping is not None:
                pending.ended.set()
                await pending.stopping  # It cancels this task, unless it has already done so.

    async def _shielded(
        self, work: Coroutine[Any, Any, Done], interrupt: Callable[[], Awaitable[None]] | None
    ) -> Done:
        """Await a worker request; cancelling interrupts the cell instead of killing the worker.

        This needs a task, which costs more than some cells.
        """
        task = asyncio.create_task(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                try:
                    await self._unwind(interrupt, asyncio.wait([task]))
                finally:
                    await _cancel(task)
            raise

    async def _stop_cell(self, pending: "_Pending", cancel: Callable[[], object]) -> None:
        try:
            await self._unwind(pending.interrupt, pending.ended.wait())
        finally:
            cancel()

    async def _unwind(
        self, interrupt: Callable[[], Awaitable[None]] | None, ended: Awaitable[object]
    ) -> None:
        """Interrupt a cell and cancel its calls; wait until it has ended, but not for long."""
        self._cancelling = True
        try:
            if interrupt is not None:
                await interrupt()
            for each in self._answering:
                each.cancel()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended, CANCEL_SECONDS)
        finally:
            self._cancelling = False

    def _note_bound(self, code: str, result: CellResult) -> None:
        """Note which earlier variables a cell has bound again, even to an equal value."""
        if not self._is_reused and not self._earlier:
            return
        found = {*result.new_variables, *result.changed_variables}
        if self._is_reused:
            self._words |= set(_WORD.findall(code))
            unnamed = found - self._words  # bound by a thread or task of an earlier run
            self._earlier |= unnamed
            found -= unnamed
        if self._earlier:
            self._rebound |= self._earlier & {*found, *names_bound(code)}

    async def _catch_up(self) -> None:
        """Bring a session that was restored from a checkpoint up to date with this run.

        The checkpoint may be older than the run, with the `answer` and tools of an earlier one.
        """
        self._rebound.clear()
        if self._is_reused and not await self._is_of_this_run():
            await self._renew_answer()
        if self._session is None:
            await self._start()
        await self._bind_tools()

    async def _is_of_this_run(self) -> bool:
        """Whether the checkpoint has the `answer` of this run."""
        assert self._session is not None
        try:
            return await self._session.fetch(RUN_NAME) == self.scope.run_id
        except SessionError:
            return False

    def _note_restored(self, error: SessionRestored, seconds: float) -> CellResult:
        reason, lost = str(error)[:MAX_REASON_CHARS], error.lost_variables[:MAX_VARIABLES]
        self.scope.emit(SessionLost, reason=reason, lost_variables=lost, restored=True)
        text = nudges.session_restored(reason, lost)
        return CellResult(error=CellError("SessionRestored", reason, text), seconds=seconds)

    async def _recover(self, reason: str, seconds: float) -> CellResult:
        reason, lost = reason[:MAX_REASON_CHARS], self.variables
        await self.close()
        self.scope.emit(SessionLost, reason=reason, lost_variables=lost)
        await self._start()
        self._earlier, self._rebound = frozenset(self.variables), set()
        text = nudges.session_lost(reason, lost)
        return CellResult(error=CellError("SessionLost", reason, text), seconds=seconds)


class _Pending:
    """A worker request that is being awaited."""

    def __init__(self, interrupt: Callable[[], Awaitable[None]] | None) -> None:
        self.interrupt = interrupt
        self.ended = asyncio.Event()
        self.stopping: asyncio.Task[None] | None = None


def _describe_tools(tools: Sequence[Tool]) -> list[dict[str, str]]:
    """Return names and descriptions of tools, as the worker gets them."""
    return [{"name": tool.name, "description": tool.description} for tool in tools]


async def _cancel(task: "asyncio.Task[Any]") -> None:
    """Give up a worker request; this kills the worker if it is still busy."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
