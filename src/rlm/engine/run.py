"""One run's parts in one place, and its first and last word to everyone who listens."""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from rlm.calls.calls import Calls
from rlm.calls.scope import Scope
from rlm.config import RunConfig
from rlm.context import StoredContext
from rlm.engine.decide import Answered, Decision, Progress, Turn, decide, of_wrong_shape
from rlm.engine.history import History
from rlm.engine.sessions import RunSession
from rlm.errors import CallRefused, ConfigError, ModelError
from rlm.events import BudgetChanged, ContextHashed, Diverged, Planned, RunEnded, RunStarted
from rlm.protocols import BaseEnvironment, Tool
from rlm.results import (
    AnswerSource,
    RunResult,
    StopReason,
    Submission,
    Told,
    UsageSummary,
    total_of,
)

__all__ = ["Ending", "ReplRun", "Run", "Services", "Task"]

SHOWN_CHARS = 4_000
"""Of each text that a `Diverged` event puts side by side."""


class Task(Struct, frozen=True):
    """What is asked, over what; for a child run, by which call of its parent.

    `description` stands in for the context's own, `prologue` is shown below the query, `settings`
    are what it takes to run it again, `objection_to` says what is wrong with the shape of an
    answer, if anything is, and `chosen_because` why `auto` took the strategy it took.
    """

    query: str
    context: StoredContext
    parent_call_id: str | None = None
    description: str = ""
    prologue: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    objection_to: Callable[[Submission], Awaitable[str | None]] | None = None
    chosen_because: str = ""


class Services(Struct, frozen=True):
    """What all runs of a tree share. `fallback` answers without code when a model is stuck.

    `values` are REPL variables besides the context, told to the model as `value_lines`;
    `for_children` may grant a child less.
    """

    calls: Calls
    environment: BaseEnvironment
    tools: tuple[Tool, ...] = ()
    values: Mapping[str, StoredContext] = field(default_factory=dict)
    value_lines: tuple[str, ...] = ()
    for_children: "Services | None" = None
    fallback: "Callable[[Task, Scope, RunConfig], Awaitable[str | None]] | None" = None

    @property
    def childrens(self) -> "Services":
        """What children share."""
        return self.for_children or self

    @property
    def names(self) -> frozenset[str]:
        """The names of tools and values."""
        return frozenset({*(tool.name for tool in self.tools), *self.values})

    def granted(self, names: Collection[str] | None) -> "Services":
        """The same with only these tools and values, for children too; None changes nothing."""
        if names is None:
            return self
        lines = zip(self.values, self.value_lines, strict=True)
        return replace(
            self,
            tools=tuple(tool for tool in self.tools if tool.name in names),
            values={name: value for name, value in self.values.items() if name in names},
            value_lines=tuple(line for name, line in lines if name in names),
            for_children=None,
        )

    @property
    def tool_lines(self) -> tuple[str, ...]:
        """What the prompt says about tools, values and what the environment adds, a line each."""
        added = self.environment.repl_names
        names = (f"`{name.usage}`: {name.description}" for name in added)
        return (*names, *(tool.description for tool in self.tools), *self.value_lines)

    def new_session(self, config: RunConfig, task: Task) -> RunSession:
        contexts = {"context": task.context, **task.context.beside(), **self.values}
        return RunSession(self.environment, config, contexts, self.tools)


class Ending(Struct, frozen=True):
    """Why a run stopped and with what. `limit` names the limit reached; `detail` is for people.

    `rejected` is an answer that there was, but not of the shape that was asked for.
    """

    stop_reason: StopReason
    source: AnswerSource
    submission: Submission | None = None
    limit: str | None = None
    detail: str = ""
    rejected: Submission | None = None

    def without_answer(self, rejected: Submission, problem: str) -> "Ending":
        """The same, if the answer that there is has the wrong shape."""
        told = f"the answer has the wrong shape: {problem}"
        if self.stop_reason == "answer":
            return Ending("error", "none", None, "wrong_shape", told, rejected)
        detail = f"{self.detail}; {told}" if self.detail else told
        return Ending(self.stop_reason, "none", None, self.limit, detail, rejected)


class Run:
    """A run in progress, whatever its strategy."""

    def __init__(self, task: Task, config: RunConfig, scope: Scope, calls: Calls) -> None:
        self.task = task
        self.config = config
        self.scope = scope
        self.calls = calls
        self.started = time.monotonic()
        self.stop_asked = False
        self._task: asyncio.Task[Any] | None = None
        self._hashing: asyncio.Task[None] | None = None
        self._objections: dict[Submission, str | None] = {}

    def stop(self) -> None:
        """Ask the run to end now, with the best answer it has; nothing more is sent."""
        self.stop_asked = True
        if self._task is not None:
            self._task.cancel()

    def limit_reached(self, error: BaseException) -> str | None:
        """The name of the limit that this error means; None for errors that mean trouble."""
        if isinstance(error, CallRefused):
            return error.limit
        too_late = self.scope.budget.seconds_left == 0
        return "seconds" if too_late and isinstance(error, ModelError) else None

    def was_stopped(self, error: BaseException) -> bool:
        """Whether this error is what `stop` asked for; if so, the run may still await things."""
        if not (self.stop_asked and isinstance(error, asyncio.CancelledError)):
            return False
        if self._task is not None:
            self._task.uncancel()
        return True

    def announce(self, environment: str, strategy: str) -> None:
        self._task = asyncio.current_task()
        context = self.task.context
        sha256 = context.known_sha256
        self.scope.emit(
            RunStarted,
            query=self.task.query,
            model=self.config.model,
            sub_model=self.config.sub_model,
            strategy=strategy,
            environment=environment,
            context_kind=context.kind,
            context_bytes=context.size_bytes,
            context_sha256=sha256 or "",
            context_description=context.description,
            parent_call_id=self.task.parent_call_id,
            path=self.scope.path,
            settings=dict(self.task.settings),
        )
        if sha256 is None and self.scope.needs_context_hash:
            self._hashing = asyncio.create_task(self._tell_hash())
        if self.task.chosen_because:
            self.scope.emit(Planned, strategy=strategy, reason=self.task.chosen_because)

    async def _tell_hash(self) -> None:
        """Beside the run's first requests: nothing of the run itself waits for the hash."""
        with suppress(ConfigError):  # A file changed: the session, which needs it, will tell.
            sha256 = await asyncio.wrap_future(self.task.context.hashing())
            self.scope.emit(ContextHashed, context_sha256=sha256)

    async def finish(self, ending: Ending) -> RunResult:
        """End the run like this; an answer of the wrong shape is none.

        The end is the last event, so the context's hash is waited for, unless the run was stopped.
        """
        if ending.submission is not None and (problem := await self.objection(ending.submission)):
            ending = ending.without_answer(ending.submission, problem)
        if self._hashing is not None and not self.stop_asked:
            await self._hashing
        return self.end(ending)

    def tell_budget(self) -> None:
        tree = self.scope.budget.root
        self.scope.emit(
            BudgetChanged,
            calls=tree.used.calls,
            tokens=tree.used.tokens,
            cost_usd=total_of(tree.usage.values()).cost_usd,
            overshoot_tokens=tree.overshoot.tokens,
        )

    def end(self, ending: Ending, *, failed: bool = False) -> RunResult:
        """The last event of the run, and what its caller gets."""
        if self._hashing is not None:
            self._hashing.cancel()
        submission, rejected = ending.submission, ending.rejected
        answer = submission.text if submission else None
        usage = UsageSummary.of(self.scope.budget.usage)
        seconds = time.monotonic() - self.started
        self.scope.emit(
            RunEnded,
            stop_reason=ending.stop_reason,
            answer_source=ending.source,
            answer=answer,
            steps=self.scope.step,
            usage=usage.total,
            seconds=seconds,
            limit=ending.limit,
            error=ending.detail if failed else None,
            detail=ending.detail,
            answer_json=submission.json if submission else None,
        )
        return RunResult(
            answer=answer,
            stop_reason=ending.stop_reason,
            answer_source=ending.source,
            run_id=self.scope.run_id,
            steps=self.scope.step,
            usage=usage,
            cost_usd=usage.total.cost_usd,
            seconds=seconds,
            limit=ending.limit,
            detail=ending.detail,
            answer_json=submission.json if submission else None,
            rejected_answer=rejected.text if rejected else None,
        )

    async def objection(self, submission: Submission) -> str | None:
        """What is wrong with the shape of an answer; it is checked once, however often asked."""
        if self.task.objection_to is None:
            return None
        if submission not in self._objections:
            self._objections[submission] = await self.task.objection_to(submission)
        return self._objections[submission]


class ReplRun(Run):
    """A run of the engine's loop: it also has a session, a history, and something to remember."""

    def __init__(
        self,
        task: Task,
        config: RunConfig,
        scope: Scope,
        calls: Calls,
        session: RunSession,
        history: History,
    ) -> None:
        super().__init__(task, config, scope, calls)
        self.session = session
        self.history = history
        self.progress = Progress()

    async def decide(self, turn: Turn) -> Decision:
        """What follows from a turn; an answer is taken only if it has the shape asked for."""
        self.progress.note(turn)
        progress, guards = self.progress, self.config.guards
        decision = decide(turn, progress, guards, self.scope.step, self.session.variables)
        if not isinstance(decision, Answered):
            return decision
        submission = decision.submission
        if (problem := await self.objection(submission)) is None:
            return decision
        return of_wrong_shape(turn, submission, problem, progress, guards)

    async def already_told(self, turn: Turn) -> Told | None:
        """What the model was told of this step on an earlier execution, if it was.

        The cells have run again only to make their variables: what they print now is of interest
        only if it is something else.
        """
        known = await self.scope.recorded("observation")
        if known is not None and known.outputs != _outputs(turn):
            printed = "\n".join(result.stdout for result in turn.results)
            self.scope.emit(Diverged, recorded=known.text[:SHOWN_CHARS], now=printed[:SHOWN_CHARS])
        return known

    async def tell(self, turn: Turn, text: str) -> str:
        """What the model is told of this step, remembered."""
        if not self.scope.is_kept:
            return text
        return await self.scope.tell("observation", text, _outputs(turn))


def _outputs(turn: Turn) -> str:
    """A digest of what the cells printed, and of how they ended."""
    parts = [
        (result.stdout, result.stderr, result.error and (result.error.type, result.error.message))
        for result in turn.results
    ]
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]
