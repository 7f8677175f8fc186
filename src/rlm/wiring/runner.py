"""Start, resume, repeat and stop runs: what `RLM`, the server and the replayer have in common."""

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from rlm.calls.scope import Scope, Tree, new_run_id
from rlm.config import RunConfig, checked_samples
from rlm.context import ContextValue, StoredContext
from rlm.engine.loop import ReplRun
from rlm.engine.run_state import RunState
from rlm.engine.sessions import RunSession
from rlm.engine.strategies import PlainRun, Relayed, RelayRun, choose_strategy
from rlm.engine.task import Objection, Services, Task
from rlm.errors import ConfigError
from rlm.limits import Budget, Limits
from rlm.messages import Reply
from rlm.portal import inside
from rlm.protocols import Recorder, ReplyStore
from rlm.records.journal import Record, how_to_continue, journaled_run
from rlm.records.recorders.in_process import CallbackRecorder
from rlm.results import RunResult, Submission
from rlm.wiring.listeners import Listeners
from rlm.wiring.resources import Resources

if TYPE_CHECKING:  # Imported where they are used: few programs use them.
    from rlm.engine.answer_types import AnswerType
    from rlm.engine.operators import OperatorCall

__all__ = ["Runner"]


class Runner:
    """Runs tasks with one configuration and one set of resources."""

    def __init__(self, config: RunConfig, resources: Resources, listeners: Listeners) -> None:
        self.config = config
        self.resources = resources
        self._listeners = listeners
        self.group: Mapping[str, str] | None = None
        """The kind and name of the group, such as a batch, under which lists show the runs."""
        self._running: dict[str, tuple[RunState, asyncio.AbstractEventLoop]] = {}

    @property
    def running(self) -> dict[str, RunState]:
        """The runs in progress, by their ids."""
        return {run_id: run for run_id, (run, _) in self._running.items()}

    def stop(self, run_id: str | None = None) -> None:
        """Ask every run, or the named one, to end now with its best answer. Thread-safe."""
        for name, (run, loop) in list(self._running.items()):
            if run_id in {None, name}:
                loop.call_soon_threadsafe(run.stop)

    def new_session(self, task: Task) -> RunSession:
        """Return a session that can serve several runs; a chat keeps it open."""
        return self.resources.services().new_session(self.config, task)

    async def answer(
        self,
        task: Task,
        *,
        session: RunSession | None = None,
        response_model: Any = None,
        recorders: Sequence[Recorder] = (),
        run_id: str | None = None,
        config: RunConfig | None = None,
        journaled: bool = True,
        on_budget: Callable[[Budget], None] | None = None,
        budget: Budget | None = None,
        samples: int = 1,
    ) -> RunResult:
        """Run a task, or resume it if the journal knows `run_id`; parse a typed answer.

        `config` applies to this run only. `journaled=False` writes nothing to disk. `on_budget`
        receives the budget of the run, which knows what a cancelled run may have cost. The run
        draws on `budget`, if one is given. With several `samples`, the most frequent answer wins.
        """
        config = config or self.config
        in_chat = session is not None
        task, kind = await self._completed_task(task, response_model, config, in_chat=in_chat)
        if checked_samples(samples) > 1:
            task = replace(task, settings={**task.settings, "samples": samples})
        archive = self.resources.archive if journaled else None
        async with journaled_run(archive, task, run_id, in_chat=in_chat) as record:
            result = record.result
            if result is None:
                self.resources.check_recorded(record.environment, record.run_id)
                listening = (*record.recorders, *self._listeners.recorders, *recorders)
                own_budget = budget.run(config.limits) if budget else Budget(config.limits)
                if on_budget is not None:
                    on_budget(own_budget)
                stop = partial(self.stop, record.run_id)
                async with record.stoppable(stop):
                    result = await self._run(
                        task, session, record.run_id, record.journal, listening, config, own_budget
                    )
                record.keep(result)
            elif budget is not None:
                self._count_stored(record, config, budget)
            result = replace(result, journal_path=record.path)
        if kind is None:
            return result
        from rlm.engine.answer_types import with_typed_answer

        return await with_typed_answer(result, kind)

    @contextmanager
    def continuable(self, run_id: str | None) -> Generator[str | None]:
        """Yield the id for a run; if Ctrl-C interrupts the block, a note says how to continue."""
        archive = self.resources.archive
        if archive is None:
            yield run_id
            return
        run_id = new_run_id() if run_id is None else run_id
        try:
            yield run_id
        except KeyboardInterrupt as interrupt:
            if archive.places.journal_of(run_id).exists():
                interrupt.add_note(how_to_continue(archive.places.journal_of(run_id)))
            raise

    def _count_stored(self, record: Record, config: RunConfig, budget: Budget) -> None:
        """Count what a run cost whose result is stored; nothing is asked again."""
        if record.journal is not None:
            from rlm.calls.paid_earlier import PaidEarlier

            paid = PaidEarlier(record.journal, (config.model, config.sub_model))
            paid.count_all(budget.run(config.limits))

    async def resume_operator(
        self, query: str, context: StoredContext, operator: Mapping[str, Any], run_id: str
    ) -> RunResult:
        """Continue a run of `rlm.operators` from its record."""
        task = Task(query, context, operator=_operator(operator, context))
        return await self.answer(task, run_id=run_id)

    async def begin(self, task: Task, response_model: Any, run_id: str, config: RunConfig) -> None:
        """Write a task to the journal without running it, so that it can be resumed later."""
        task, _ = await self._completed_task(task, response_model, config)
        async with journaled_run(self.resources.archive, task, run_id, in_chat=False):
            pass

    async def relay(
        self,
        task: Task,
        relayed: Relayed,
        recorders: Sequence[Recorder],
        limits: Limits,
        on_budget: Callable[[Budget], None],
    ) -> tuple[RunResult, Reply | None]:
        """Send messages unchanged, as a run of one request. Nothing is journaled."""
        config, calls = replace(self.config, limits=limits), self.resources.services().calls
        if config.call_rules.requires_prices:
            calls.check_prices((config.model,), limits)
        task = replace(task, settings=self.resources.settings(config, None))
        listening = (*self._listeners.recorders, *recorders)
        budget = Budget(config.limits)
        on_budget(budget)
        scope, callbacks = self._scope(config, new_run_id(), None, listening, budget)
        relay = RelayRun(calls, config, scope, task, relayed)
        result = await self._stoppable(relay, scope, callbacks)
        return replace(result, events=tuple(scope.tree.events)), relay.reply

    async def repeat(
        self,
        query: str,
        context: ContextValue | StoredContext,
        run_id: str,
        store: ReplyStore,
        response_model: Any,
        recorder: Recorder,
        config: RunConfig,
        operator: Mapping[str, Any] | None = None,
    ) -> None:
        """Execute a recorded run again; `store` answers instead of models and tools.

        `operator` holds the operator's settings, if the run was one of `rlm.operators`.
        """
        stored = await self.resources.store(context, config)
        await asyncio.wrap_future(stored.hashing())
        task = Task(query, stored, operator=_operator(operator, stored))
        task, _ = await self._completed_task(task, response_model, config)
        budget = Budget(config.limits)
        await self._run(task, None, run_id, store, (recorder,), config, budget)

    async def _completed_task(
        self, task: Task, response_model: Any, config: RunConfig, *, in_chat: bool = False
    ) -> tuple[Task, "AnswerType | None"]:
        """Add settings, instructions and the check of a typed answer to a task."""
        if not isinstance(task.query, str) or not task.query.strip():
            raise ConfigError(f"the query must be a non-empty string, not {task.query!r}")
        kind = None if response_model is None else await _answer_type(response_model)
        if in_chat or (config.strategy == "rlm" and task.operator is None):  # It may use a REPL.
            await self.resources.decide_environment()
        settings = self.resources.settings(config, kind.schema if kind else None)
        if in_chat:
            settings["in_chat"] = True
        if (group := task.settings.get("group", self.group)) is not None:
            settings["group"] = group
        if task.operator is not None:
            settings["operator"] = task.operator.settings
        task = replace(task, settings=settings)
        return _with_instructions(task, config.prologue, kind), kind

    async def _run(
        self,
        task: Task,
        session: RunSession | None,
        run_id: str,
        store: ReplyStore | None,
        recorders: tuple[Recorder, ...],
        config: RunConfig,
        budget: Budget,
    ) -> RunResult:
        """Execute a task once with the strategy of its configuration."""
        services = self.resources.services()
        models = (config.model, config.sub_model, *config.models)
        for each in budget.chain if config.call_rules.requires_prices else ():
            services.calls.check_prices(models, each.limits)
        scope, callbacks = self._scope(config, run_id, store, recorders, budget)
        samples = task.settings.get("samples", 1)
        execution: ReplRun | PlainRun
        if samples > 1:
            from rlm.engine.samples import SampledRun

            start = partial(_new_run, services)
            execution = SampledRun(services.calls, config, scope, task, samples, start)
        else:
            execution = _new_run(services, scope, config, task, session)
        result = await self._stoppable(execution, scope, callbacks)
        return replace(result, events=tuple(scope.tree.events))

    def _scope(
        self,
        config: RunConfig,
        run_id: str,
        store: ReplyStore | None,
        recorders: tuple[Recorder, ...],
        budget: Budget,
    ) -> tuple[Scope, CallbackRecorder | None]:
        """Make the scope of a root run, and the recorder of the callbacks if there are any."""
        callbacks = self._listeners.new_callbacks()
        scope = Scope(
            run_id=run_id,
            budget=budget,
            recorders=(*((callbacks,) if callbacks else ()), *recorders),
            tree=Tree(config.limits.max_child_sessions, store, (config.model, config.sub_model)),
        )
        return scope, callbacks

    async def _stoppable(
        self, execution: ReplRun | PlainRun, scope: Scope, callbacks: CallbackRecorder | None
    ) -> RunResult:
        """Run to the end; until then, `stop` can reach the run."""
        loop = asyncio.get_running_loop()
        self._running[scope.run_id] = execution.run_state, loop
        token = inside.set(inside.get()._replace(loop=loop))
        try:
            return await execution.run()
        finally:
            inside.reset(token)
            del self._running[scope.run_id]
            if callbacks is not None:
                await callbacks.finish()


def _operator(settings: Mapping[str, Any] | None, context: StoredContext) -> "OperatorCall | None":
    if settings is None:
        return None
    from rlm.engine.operators import OperatorCall

    return OperatorCall.recorded(settings, context.data)


def _new_run(
    services: Services,
    scope: Scope,
    config: RunConfig,
    task: Task,
    session: RunSession | None = None,
) -> ReplRun | PlainRun:
    """Make the run of a task, with the strategy of its configuration."""
    strategy, task = ("rlm", task) if session else choose_strategy(services.calls, task, config)
    if strategy == "rlm":
        return ReplRun(services, config, scope, task, session)
    return PlainRun(services.calls, config, scope, task, strategy)


async def _answer_type(response_model: Any) -> "AnswerType":
    from rlm.engine.answer_types import aanswer_type

    return await aanswer_type(response_model)


def _with_instructions(task: Task, prologue: str, kind: "AnswerType | None") -> Task:
    parts = [task.prologue, prologue, kind.instructions if kind else ""]
    task = replace(task, prologue="\n\n".join(filter(None, parts)))
    if kind is None:
        return task
    from rlm.engine.answer_types import AnswerMismatch

    async def objection_to(submission: Submission) -> Objection | None:
        try:
            await kind.aparse(submission)
        except AnswerMismatch as mismatch:
            return Objection(str(mismatch), mismatch.kind)
        return None

    return replace(task, objection_to=objection_to)
