"""One run's parts in one place, and its first and last word to everyone who listens."""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from rlm.calls import Calls
from rlm.config import RunConfig
from rlm.context import StoredContext
from rlm.decide import Progress, Turn
from rlm.errors import CallRefused, ModelError
from rlm.events import BudgetChanged, Diverged, Planned, RunEnded, RunStarted
from rlm.history import History
from rlm.protocols import Environment, Tool
from rlm.results import (
    AnswerSource,
    RunResult,
    StopReason,
    Submission,
    Told,
    UsageSummary,
    total_of,
)
from rlm.scope import Scope
from rlm.sessions import RunSession

__all__ = ["Ending", "ReplRun", "Run", "Services", "Task"]

SHOWN_CHARS = 4_000
"""Of each text that a `Diverged` event puts side by side."""


class Task(Struct, frozen=True):
    """What is asked, over what; for a child run, by which call of its parent.

    `description` stands in for the context's own, `prologue` is shown below the query, `settings`
    are what it takes to run it again, `objection_to` says what is wrong with a submitted answer,
    if anything is, and `chosen_because` why `auto` took the strategy it took.
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
    environment: Environment
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
        added = getattr(self.environment, "repl_names", ())
        names = (f"`{name.usage}`: {name.description}" for name in added)
        return (*names, *(tool.description for tool in self.tools), *self.value_lines)

    def new_session(self, config: RunConfig, task: Task) -> RunSession:
        contexts = {"context": task.context, **task.context.beside(), **self.values}
        return RunSession(self.environment, config, contexts, self.tools)


class Ending(Struct, frozen=True):
    """Why a run stopped and with what. `limit` names the limit reached; `detail` is for people."""

    stop_reason: StopReason
    source: AnswerSource
    submission: Submission | None = None
    limit: str | None = None
    detail: str = ""


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
        self.scope.emit(
            RunStarted,
            query=self.task.query,
            model=self.config.model,
            sub_model=self.config.sub_model,
            strategy=strategy,
            environment=environment,
            context_kind=context.kind,
            context_bytes=context.size_bytes,
            context_sha256=context.sha256,
            context_description=context.description,
            parent_call_id=self.task.parent_call_id,
            path=self.scope.path,
            settings=dict(self.task.settings),
        )
        if self.task.chosen_because:
            self.scope.emit(Planned, strategy=strategy, reason=self.task.chosen_because)

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
        submission = ending.submission
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
        )


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
