"""`class RLM`: the door most people use. Wiring only; the loop is in engine.py."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from rlm import compat
from rlm.calls.cache import ReplyCache
from rlm.calls.pacing import RateLimit
from rlm.calls.scope import Scope, Tree, new_run_id
from rlm.compat import Completion
from rlm.config import Guards, RunConfig
from rlm.context import ContextValue, StoredContext
from rlm.engine.loop import Engine
from rlm.engine.run import Run, Task
from rlm.engine.sessions import RunSession
from rlm.engine.strategies import PlainRun, Relayed, RelayRun, choose_strategy
from rlm.errors import ConfigError
from rlm.events import Event
from rlm.limits import Budget, Limits
from rlm.messages import Price, Reply
from rlm.portal import in_a_run, portal
from rlm.prompts import FIXED_QUERY
from rlm.protocols import Client, Environment, Recorder, ReplyStore
from rlm.records.journal import kept
from rlm.records.recorders.in_process import CallbackRecorder, MemoryRecorder, events_of
from rlm.results import RunResult, Submission
from rlm.typed import AnswerMismatch, AnswerType, aanswer_type, with_typed_answer
from rlm.wiring.listeners import Listeners
from rlm.wiring.resources import House, Model, Traffic

if TYPE_CHECKING:  # What many programs never use is imported where it is.
    from rlm.chat import Spending
    from rlm.chat.chat import Chat
    from rlm.logger import RLMLogger

__all__ = ["RLM", "acompletion", "completion"]

RUN_OPTIONS = frozenset(RunConfig.__struct_fields__)


class RLM:
    """Right answers about contexts far larger than the model's window.

    `RLM("provider/model").ask(query, context)`. `clients={"mine": client}` adds a provider of
    your own, used as "mine/model"; a Client object, or a function that takes a prompt, may also
    stand in place of a model's name.
    The reference engine's keywords are accepted too; see docs/reference/compatibility.md.
    """

    @compat.accepts_reference_keywords
    def __init__(
        self,
        model: Model | None = None,
        *,
        sub_model: Model | None = None,
        models: Sequence[Model] = (),
        clients: Mapping[str, Client] | None = None,
        environment: str | Environment = "local",
        environment_kwargs: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        strategy: Literal["rlm", "direct", "mapreduce", "auto"] = "rlm",
        protocol: Literal["fences", "tools"] = "fences",
        profile: Literal["frontier", "standard", "small", "tiny"] | None = None,
        guards: Guards | None = None,
        system_prompt: str | None = None,
        prologue: str = "",
        orchestrator: bool = True,
        preview_chars: int = 0,
        sampling: dict[str, Any] | None = None,
        sub_sampling: dict[str, Any] | None = None,
        compaction: bool = True,
        compaction_fraction: float = 0.85,
        prices: Mapping[str, tuple[float, float] | Price] | None = None,
        windows: Mapping[str, int] | None = None,
        tools: Any = None,
        sub_tools: Any = None,
        persistent: bool = False,
        recorders: Sequence[Recorder] = (),
        logger: "RLMLogger | None" = None,
        verbose: bool = False,
        on_iteration_start: Callable[[int, int], Any] | None = None,
        on_iteration_complete: Callable[[int, int, float], Any] | None = None,
        on_subcall_start: Callable[[int, str, str], Any] | None = None,
        on_subcall_complete: Callable[[int, str, float, str | None], Any] | None = None,
        journal: bool | str | Path | None = None,
        cache: bool | str | Path | ReplyCache | None = None,
        rate_limits: Mapping[str, RateLimit] | None = None,
        hedge_after_seconds: float | None = None,
        client_options: Mapping[str, Mapping[str, Any]] | None = None,
        variables: Mapping[str, str] | None = None,
        seed: int = 0,
    ) -> None:
        # Keywords that RunConfig has go there under their own names: nothing is listed twice.
        options: dict[str, Any] = {n: v for n, v in locals().items() if n in RUN_OPTIONS}
        variables = os.environ if variables is None else variables
        traffic = Traffic(cache, rate_limits or {}, hedge_after_seconds)
        self._house = House(clients, prices, windows, client_options, variables, journal, traffic)
        root = self._house.adopt(model if model is not None else _model_from(variables))
        options["sub_model"] = root if sub_model is None else self._house.adopt(sub_model)
        options["models"] = tuple(self._house.adopt(each) for each in models)
        options["model"] = root
        self.config = RunConfig(**{n: v for n, v in options.items() if v is not None})
        self._house.furnish(environment, environment_kwargs, self.config, tools, sub_tools)
        self.logger = logger
        self._listeners = Listeners(recorders, logger, verbose)
        self._listeners.call_back(
            on_iteration_start, on_iteration_complete, on_subcall_start, on_subcall_complete
        )
        self._running: dict[str, tuple[Run, asyncio.AbstractEventLoop]] = {}
        self._conversation = self._new_chat(keeps_messages=True) if persistent else None

    # -- asking ------------------------------------------------------------------------------

    async def aask(
        self,
        query: str,
        context: ContextValue = None,
        *,
        response_model: Any = None,
        recorders: Sequence[Recorder] = (),
        run_id: str | None = None,
        limits: Limits | None = None,
        budget: Budget | None = None,
        strict: bool = False,
    ) -> RunResult:
        """Answer `query` about `context`; ends with the best answer at every limit.

        With `response_model` (a pydantic model, a dataclass, a JSON schema …) the answer is a
        value of that type, or None if no valid one was found; with `strict`, a run without an
        answer raises NoAnswerError. With `journal=`, a `run_id` names the run: one that was
        interrupted goes on where it was, one that has answered answers again.
        `limits` are those of this run, in place of the ones that this object was made with; a
        `budget` is one that it draws on together with other runs (`Budget.shared`).
        """
        config = self._config(limits)
        stored = await self._house.store(context, config)
        result = await self._answer(
            Task(query, stored), None, response_model, recorders, run_id, config, budget=budget
        )
        return result.strictly(strict)

    def ask(
        self,
        query: str,
        context: ContextValue = None,
        *,
        response_model: Any = None,
        run_id: str | None = None,
        limits: Limits | None = None,
        strict: bool = False,
    ) -> RunResult:
        """The blocking form of `aask`; works in scripts, threads and notebooks alike."""
        named: dict[str, Any] = {"response_model": response_model, "run_id": run_id}
        return portal().call(
            lambda: self.aask(query, context, **named, limits=limits, strict=strict)
        )

    async def stream(
        self,
        query: str,
        context: ContextValue = None,
        *,
        response_model: Any = None,
        run_id: str | None = None,
        limits: Limits | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Every event of a run while it goes on; leaving the loop cancels the run."""

        def start(recorder: Recorder) -> Coroutine[Any, Any, RunResult]:
            return self.aask(
                query,
                context,
                response_model=response_model,
                recorders=(recorder,),
                run_id=run_id,
                limits=limits,
            )

        async with aclosing(events_of(start)) as events:
            async for event in events:
                yield event

    def chat(
        self,
        context: ContextValue = None,
        *,
        load: str | Path | None = None,
        max_tokens: int | None = None,
        max_cost_usd: float | None = None,
    ) -> "Chat":
        """Several runs over one session; close it, or use it as a context manager.

        `load` goes on with a saved one. `max_tokens` and `max_cost_usd` are for all its turns
        together, those of a loaded chat included; each turn has the limits of a run besides.
        """
        from rlm.chat import Spending

        spending = Spending(self.config.limits, max_tokens=max_tokens, max_cost_usd=max_cost_usd)
        return self._new_chat(context, load, spending)

    def _new_chat(
        self,
        context: ContextValue = None,
        load: str | Path | None = None,
        spending: "Spending | None" = None,
        keeps_messages: bool = False,
    ) -> "Chat":
        from rlm.chat.chat import Chat

        async def start(
            task: Task,
            session: RunSession,
            response_model: Any,
            recorders: Sequence[Recorder],
            limits: Limits | None,
        ) -> RunResult:
            await session.set_tools(self._house.services().tools)
            config = self._config(limits)
            return await self._answer(task, session, response_model, recorders, None, config)

        def new_session(task: Task) -> RunSession:
            return self._house.services().new_session(self.config, task)

        keeper = self._house.new_keeper(self.config.model)
        chat = Chat(
            start,
            new_session,
            lambda value: self._house.store(value, self.config),
            context,
            spending=spending,
            keeper=keeper,
            keeps_messages=keeps_messages,
        )
        if load is not None:
            chat.load(load)
        return chat

    @property
    def conversation(self) -> "Chat":
        """The chat behind `persistent=True`: its turns, and its `save` and `load`."""
        if self._conversation is None:
            raise ConfigError("only RLM(persistent=True) has a conversation; see rlm.chat()")
        return self._conversation

    def grant_tools(self, tools: Any, sub_tools: Any = None) -> None:
        """Change what cells may call from the next run or turn on; see `tools=`, `sub_tools=`."""
        self._house.grant(tools, sub_tools)

    # -- the reference's spelling ------------------------------------------------------------

    async def acompletion(self, prompt: ContextValue, root_prompt: str | None = None) -> Completion:
        """The prompt is the context; with no `root_prompt`, the task is read from it.

        Raises the reference's named errors, with `.partial_answer`, where a limit ended the run.
        """
        if self._conversation is not None:
            result = await self._conversation.aask(root_prompt, "" if prompt is None else prompt)
        else:
            result = await self.aask(FIXED_QUERY if root_prompt is None else root_prompt, prompt)
        compat.raise_if_ended_early(result, self.config.limits)
        metadata = None
        if self.logger:
            from rlm.logger import trajectory

            metadata = trajectory(list(result.events))
        return Completion.of(result, prompt, self.config.model, metadata)

    def completion(self, prompt: ContextValue, root_prompt: str | None = None) -> Completion:
        """The blocking form of `acompletion`; Ctrl-C ends it with CancellationError."""
        return portal().call(lambda: self.acompletion(prompt, root_prompt), self.stop)

    # -- ending ------------------------------------------------------------------------------

    def stop(self, run_id: str | None = None) -> None:
        """Ask every run of this object, or one of them, to end now with its best answer.

        Safe from any thread.
        """
        for name, (run, loop) in list(self._running.items()):
            if run_id in {None, name}:
                loop.call_soon_threadsafe(run.stop)

    async def aclose(self) -> None:
        """Close connections and sessions of this event loop."""
        if self._conversation is not None:
            await self._conversation.aclose()
        await self._house.close()

    def close(self) -> None:
        """The blocking form of `aclose`."""
        portal().call(self.aclose)

    def __enter__(self) -> "RLM":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> "RLM":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # -- one run -----------------------------------------------------------------------------

    async def _answer(
        self,
        task: Task,
        session: RunSession | None,
        response_model: Any,
        recorders: Sequence[Recorder],
        run_id: str | None = None,
        config: RunConfig | None = None,
        journaled: bool = True,
        on_budget: Callable[[Budget], None] | None = None,
        budget: Budget | None = None,
    ) -> RunResult:
        """Run a task, or go on with it; a typed answer is checked on the way and parsed.

        `config` holds for this run only. `journaled=False` keeps nothing of it on disk. `on_budget`
        is handed the run's ledger: only that knows what a run that is cancelled may have cost. It
        draws on `budget`, if there is one.
        """
        config = config or self.config
        task, kind = await self._ready(task, response_model, config)
        archive = self._house.archive if journaled else None
        async with kept(archive, task, run_id, in_chat=session is not None) as record:
            result = record.result
            if result is None:
                heard_by = (*record.recorders, *self._listeners.recorders, *recorders)
                ledger = budget.run(config.limits) if budget else Budget(config.limits)
                if on_budget is not None:
                    on_budget(ledger)
                result = await self._run(
                    task, session, record.run_id, record.journal, heard_by, config, ledger
                )
                record.keep(result)
        return result if kind is None else await with_typed_answer(result, kind)

    async def _begin(self, task: Task, response_model: Any, run_id: str, config: RunConfig) -> None:
        """Journal what is asked and over what, and no more: from now on the run can go on."""
        task, _ = await self._ready(task, response_model, config)
        async with kept(self._house.archive, task, run_id, in_chat=False):
            pass

    async def _relay(
        self,
        task: Task,
        relayed: Relayed,
        recorders: Sequence[Recorder],
        limits: Limits,
        on_budget: Callable[[Budget], None],
    ) -> tuple[RunResult, Reply | None]:
        """Send messages as they are; `rlm.server` is who does. Nothing is journaled."""
        config, calls = self._config(limits), self._house.services().calls
        calls.check_prices((config.model,), limits)
        task = replace(task, settings=self._house.settings(config, None))
        heard_by = (*self._listeners.recorders, *recorders)
        ledger = Budget(config.limits)
        on_budget(ledger)
        scope, memory, callbacks = self._scope(config, new_run_id(), None, heard_by, ledger)
        runner = RelayRun(calls, config, scope, task, relayed)
        result = await self._through(runner, scope, callbacks)
        return replace(result, events=tuple(memory.events)), runner.reply

    def _config(self, limits: Limits | None) -> RunConfig:
        return self.config if limits is None else replace(self.config, limits=limits)

    async def _again(
        self,
        query: str,
        context: ContextValue | StoredContext,
        run_id: str,
        store: ReplyStore,
        response_model: Any,
        recorder: Recorder,
    ) -> None:
        """Execute a run once more with what a store knows of it; `rlm.replay` is who does."""
        stored = await self._house.store(context, self.config)
        await asyncio.wrap_future(stored.hashing())
        task, _ = await self._ready(Task(query, stored), response_model, self.config)
        ledger = Budget(self.config.limits)
        await self._run(task, None, run_id, store, (recorder,), self.config, ledger)

    async def _ready(
        self, task: Task, response_model: Any, config: RunConfig
    ) -> tuple[Task, AnswerType | None]:
        """The task with everything that is told and checked besides."""
        if not isinstance(task.query, str) or not task.query.strip():
            raise ConfigError(f"the query must be a text that asks something, not {task.query!r}")
        kind = None if response_model is None else await aanswer_type(response_model)
        settings = self._house.settings(config, kind.schema if kind else None)
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
        """One execution, with everybody listening."""
        services = self._house.services()
        models = (config.model, config.sub_model, *config.models)
        for each in budget.chain:
            services.calls.check_prices(models, each.limits)
        scope, memory, callbacks = self._scope(config, run_id, store, recorders, budget)
        strategy, task = ("rlm", task) if session else choose_strategy(services.calls, task, config)
        runner: Engine | PlainRun
        if strategy == "rlm":
            runner = Engine(services, config, scope, task, session)
        else:
            runner = PlainRun(services.calls, config, scope, task, strategy)
        result = await self._through(runner, scope, callbacks)
        return replace(result, events=tuple(memory.events))

    def _scope(
        self,
        config: RunConfig,
        run_id: str,
        store: ReplyStore | None,
        recorders: tuple[Recorder, ...],
        budget: Budget,
    ) -> tuple[Scope, MemoryRecorder, CallbackRecorder | None]:
        """The place of a root run, and who of ours listens there."""
        memory, callbacks = MemoryRecorder(), self._listeners.new_callbacks()
        scope = Scope(
            run_id=run_id,
            budget=budget,
            recorders=(memory, *((callbacks,) if callbacks else ()), *recorders),
            tree=Tree(config.limits.max_child_sessions, store),
        )
        return scope, memory, callbacks

    async def _through(
        self, runner: Engine | PlainRun, scope: Scope, callbacks: CallbackRecorder | None
    ) -> RunResult:
        """A run from its start to its end; meanwhile it can be stopped."""
        self._running[scope.run_id] = runner.state, asyncio.get_running_loop()
        token = in_a_run.set(True)
        try:
            return await runner.run()
        finally:
            in_a_run.reset(token)
            del self._running[scope.run_id]
            if callbacks is not None:
                await callbacks.finish()


def completion(prompt: ContextValue, model: Model | None = None, **options: Any) -> Completion:
    """`rlm.completion(prompt, model)` in place of `llm.completion(prompt, model)`."""
    return portal().call(lambda: acompletion(prompt, model, **options))


async def acompletion(
    prompt: ContextValue, model: Model | None = None, **options: Any
) -> Completion:
    """The same, to be awaited. `root_prompt` is the query; other options are those of `RLM`."""
    root_prompt = options.pop("root_prompt", None)
    one = RLM(model, **options)
    try:
        return await one.acompletion(prompt, root_prompt)
    finally:
        await one.aclose()


def _with_instructions(task: Task, prologue: str, kind: AnswerType | None) -> Task:
    told = [task.prologue, prologue, kind.instructions if kind else ""]
    task = replace(task, prologue="\n\n".join(filter(None, told)))
    if kind is None:
        return task

    async def objection_to(submission: Submission) -> str | None:
        try:
            await kind.aparse(submission)
        except AnswerMismatch as mismatch:
            return str(mismatch)
        return None

    return replace(task, objection_to=objection_to)


def _model_from(variables: Mapping[str, str]) -> str:
    if model := variables.get("RLM_MODEL"):
        return model
    raise ConfigError("no model: pass RLM('provider/model') or set RLM_MODEL=provider/model")
