"""The `RLM` class, for most programs. It only connects parts; the loop is in engine/loop.py."""

import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from msgspec.structs import asdict

from rlm import compat
from rlm._util.public_calls import public_call
from rlm.calls.cache import ReplyCache
from rlm.calls.rate_limits import RateLimit
from rlm.compat import late
from rlm.config import CallRules, Guards, RunChanges, RunConfig, as_asked
from rlm.context import ContextValue, warn_of_path
from rlm.engine.sessions import RunSession
from rlm.engine.task import Task
from rlm.errors import ConfigError
from rlm.events import Event
from rlm.limits import IN_LIMITS, Budget, Limits, limits_of
from rlm.messages import Price
from rlm.portal import portal
from rlm.prompts import FIXED_QUERY
from rlm.protocols import Client, Environment, Recorder
from rlm.records.recorders.in_process import events_of
from rlm.results import RunResult
from rlm.wiring.listeners import Listeners
from rlm.wiring.registry import setup_code_of
from rlm.wiring.resources import CallPolicy, Model, ModelSettings, Resources

if TYPE_CHECKING:  # Imported where they are used, because many programs never use them.
    from rlm.chat import Spending

__all__ = ["RLM", "acompletion", "completion"]

with_context = public_call(ConfigError, before=warn_of_path, inside=IN_LIMITS)
"""Mark a public call that takes a context; warn if the context is the name of a file."""
with_prompt = public_call(ConfigError, before=warn_of_path, argument="prompt")

RUN_OPTIONS = RunConfig.__struct_fields__
CALLBACKS = (
    *("on_iteration_start", "on_iteration_complete"),
    *("on_subcall_start", "on_subcall_complete"),
)
RESOURCE_OPTIONS = (
    *("sub_model", "models", "environment", "environment_kwargs"),
    *("tools", "sub_tools", "journal"),
)


class RLM(compat.ReferenceAttributes):
    """An engine that answers queries about contexts far larger than the model's window.

    `RLM("provider/model").ask(query, context)`; without a model, it uses RLM_MODEL, the model that
    `rlm setup` stored, or the first provider with a key. `clients={"mine": client}` adds your own
    provider, used as "mine/model"; instead of a model's name you may pass a Client, or a function
    that takes a prompt. The keywords of the reference engine are accepted too; see
    docs/guides/migrating.md.
    """

    @compat.accepts_reference_keywords
    def __init__(
        self,
        model: Model | None = None,
        *positions: Any,
        sub_model: Model | None = None,
        models: Sequence[Model] = (),
        clients: Mapping[str, Client] | None = None,
        environment: str | Environment = "auto",
        environment_kwargs: Mapping[str, Any] | None = None,
        limits: Limits | Mapping[str, Any] | None = None,
        strategy: Literal["rlm", "direct", "mapreduce", "auto"] | None = None,
        protocol: Literal["fences", "tools"] = "fences",
        profile: Literal["frontier", "standard", "small", "tiny"] | None = None,
        guards: Guards | None = None,
        system_prompt: str | None = None,
        prologue: str = "",
        setup_code: str | None = None,
        orchestrator: bool = True,
        preview_chars: int | None = None,
        sampling: dict[str, Any] | None = None,
        sub_sampling: dict[str, Any] | None = None,
        compaction: bool = True,
        compaction_fraction: float = 0.85,
        call_rules: CallRules | None = None,
        prices: Mapping[str, tuple[float, float] | Price] | None = None,
        windows: Mapping[str, int] | None = None,
        tools: Any = None,
        sub_tools: Any = None,
        persistent: bool = False,
        recorders: Sequence[Recorder] = (),
        logger: "late.RLMLogger | None" = None,
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
        **reference: Unpack[compat.ReferenceKeywords],
    ) -> None:
        # The decorator has read `positions` and `reference`. Options that `Resources` and
        # `RunConfig` take under the same names are not listed again.
        taken = None if limits is None else limits_of(limits)
        given: dict[str, Any] = {**locals(), "limits": taken}
        resources = _resources(given := given | setup_code_of(setup_code, environment_kwargs))
        given |= {name: getattr(resources, name) for name in ("model", "sub_model", "models")}
        self.config = RunConfig(**{n: given[n] for n in RUN_OPTIONS if given[n] is not None})
        self.logger = logger
        callbacks, is_reference = [given[name] for name in CALLBACKS], self.spelling.is_reference
        open_to_ask = () if is_reference else ("strategy", "preview_chars")
        self._left_open = tuple(name for name in open_to_ask if given[name] is None)
        listeners = Listeners(recorders, logger, verbose, callbacks, is_reference)
        self.runner = _runner(self.config, resources, listeners)
        listeners.add(compat.announce(self) if is_reference or logger is not None else ())
        self._conversation = self._new_chat(keeps_messages=True) if persistent else None

    def __repr__(self) -> str:
        config = self.config
        calls = "" if config.sub_model == config.model else f", sub_model={config.sub_model!r}"
        changed = [
            f", {name}={value!r}"
            for name, value in asdict(config.limits).items()
            if value != getattr(Limits(), name)
        ]
        return f"<RLM {config.model!r}{calls}{''.join(changed)}>"

    # -- asking ------------------------------------------------------------------------------

    @with_context
    async def aask(
        self,
        query: str,
        context: ContextValue = None,
        *,
        response_model: Any = None,
        recorders: Sequence[Recorder] = (),
        run_id: str | None = None,
        limits: Limits | Mapping[str, Any] | None = None,
        sampling: Mapping[str, Any] | None = None,
        sub_sampling: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
        strict: bool = False,
        cite: bool = False,
        samples: int = 1,
    ) -> RunResult:
        """The async form of `ask`, for programs with an event loop.

            result = await rlm.aask("Which deadlines are named?", Path("contract.txt"))

        It takes the arguments of `ask` (query, context and the rest) and two more:
        recorders: objects that receive every event of this run.
        budget: a `Budget.shared` that this run draws on together with others.

        A notebook may await it; cancelling the task cancels the run.
        """
        changes = RunChanges(limits=limits, sampling=sampling, sub_sampling=sub_sampling, cite=cite)
        profile = self.config.profile or self.runner.resources.info(self.config.model).profile
        config = as_asked(changes.applied_to(self.config), profile, self._left_open)
        task = Task(query, await self.runner.resources.store(context, config))
        result = await self.runner.answer(
            task,
            response_model=response_model,
            recorders=recorders,
            run_id=run_id,
            config=config,
            budget=budget,
            samples=samples,
        )
        return result.strictly(strict)

    @with_context
    def ask(
        self,
        query: str,
        context: ContextValue = None,
        *,
        response_model: Any = None,
        run_id: str | None = None,
        limits: Limits | Mapping[str, Any] | None = None,
        sampling: Mapping[str, Any] | None = None,
        sub_sampling: Mapping[str, Any] | None = None,
        strict: bool = False,
        cite: bool = False,
        samples: int = 1,
    ) -> RunResult:
        """Answer `query` about `context`; at a limit, return the best answer so far.

            result = rlm.ask("Which deadlines are named?", Path("contract.txt"))
            print(result.answer, result.cost_usd)

        context: a str (the text itself, never a path), a `Path` of a file or folder, `files(…)`,
            bytes, an open file, an iterator, or lists and dicts that JSON can hold.
        response_model: the type of the answer: a pydantic model, a dataclass, a JSON schema …
            The answer is a value of this type, or None if no valid one was found.
        run_id: with `journal=`, names the run: an interrupted run is resumed, a finished one
            returns its answer again.
        limits: replace those of this object for this run; a dict replaces only what it names.
        sampling, sub_sampling: added to those of this object, such as `{"temperature": 0}`.
        strict: whether a run without an answer raises NoAnswerError.
        cite: ask for citations; see `result.citations`.
        samples: the most independent runs that vote on the answer, within the limits of one.

        Returns a `RunResult`: `answer`, `stop_reason`, `citations`, `cost_usd`, `usage`, `events`.
        Unless `preview_chars` or `strategy` was given, the model is shown both ends of the context,
        and a weak model reads it instead of writing code.
        """
        named: dict[str, Any] = {"response_model": response_model, "run_id": run_id}
        named |= {"sampling": sampling, "sub_sampling": sub_sampling, "cite": cite}
        named |= {"samples": samples}
        with self.runner.continuable(run_id) as named["run_id"]:
            return portal().call(
                lambda: self.aask(query, context, **named, limits=limits, strict=strict)
            )

    @with_context
    async def stream(
        self,
        query: str,
        context: ContextValue = None,
        *,
        response_model: Any = None,
        run_id: str | None = None,
        limits: Limits | Mapping[str, Any] | None = None,
        sampling: Mapping[str, Any] | None = None,
        sub_sampling: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Yield every event of a run as it happens; leaving the loop cancels the run.

            async for event in rlm.stream("Which lines name a date?", Path("report.txt")):
                print(type(event).__name__)

        The arguments (query, context and the rest) are those of `ask`; `iter` is the blocking form.
        An answer written as prose comes piece by piece, as `OutputStreamed`. A reader that falls
        far behind pauses the run before its next request. An error in the run is raised at the end.
        """

        def start(recorder: Recorder) -> Coroutine[Any, Any, RunResult]:
            return self.aask(
                query,
                context,
                response_model=response_model,
                recorders=(recorder,),
                run_id=run_id,
                limits=limits,
                sampling=sampling,
                sub_sampling=sub_sampling,
            )

        async with aclosing(events_of(start)) as events:
            async for event in events:
                yield event

    @with_context
    def iter(
        self,
        query: str,
        context: ContextValue = None,
        *,
        response_model: Any = None,
        run_id: str | None = None,
        limits: Limits | Mapping[str, Any] | None = None,
        sampling: Mapping[str, Any] | None = None,
        sub_sampling: Mapping[str, Any] | None = None,
    ) -> Generator[Event, None, None]:
        """The blocking form of `stream`: yield every event of a run as it happens.

            for event in rlm.iter("Which lines name a date?", Path("report.txt")):
                if isinstance(event, RunEnded):
                    print(event.answer)

        The arguments (query, context and the rest) are those of `ask`. Nothing starts until
        you ask for the first event. Leaving the loop, or dropping the iterator, cancels the run.
        """
        named: dict[str, Any] = {"response_model": response_model, "run_id": run_id}
        named |= {"limits": limits, "sampling": sampling, "sub_sampling": sub_sampling}
        return portal().iterate(lambda: self.stream(query, context, **named))

    @with_context
    def chat(
        self,
        context: ContextValue = None,
        *,
        load: str | Path | None = None,
        max_tokens: int | None = None,
        max_cost_usd: float | None = None,
    ) -> "late.Chat":
        """Return a chat: several runs over one session. Close it, or use it as a context manager.

        `load` continues a saved chat. `max_tokens` and `max_cost_usd` apply to all turns together,
        including those of a loaded chat; each turn also has the limits of a run.
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
    ) -> "late.Chat":
        from rlm.chat.chat import Chat

        runner, resources = self.runner, self.runner.resources

        async def start(
            task: Task,
            session: RunSession,
            response_model: Any,
            recorders: Sequence[Recorder],
            changes: RunChanges,
            on_budget: Callable[[Budget], None],
        ) -> RunResult:
            await session.set_tools(resources.services().toolset.tools)
            return await runner.answer(
                task,
                session=session,
                response_model=response_model,
                recorders=recorders,
                config=changes.applied_to(self.config),
                on_budget=on_budget,
            )

        storage = resources.new_storage(self.config.model)
        chat = Chat(
            start,
            runner.new_session,
            lambda context: resources.store(context, self.config),
            context,
            spending=spending,
            storage=storage,
            keeps_messages=keeps_messages,
        )
        if load is not None:
            chat.load(load)
        return chat

    @property
    def conversation(self) -> "late.Chat":
        """The chat behind `persistent=True`, with its turns, `save` and `load`."""
        if self._conversation is None:
            raise ConfigError("only RLM(persistent=True) has a conversation; see rlm.chat()")
        return self._conversation

    def grant_tools(self, tools: Any, sub_tools: Any = None) -> None:
        """Change the tools from the next run or turn on; see `tools=` and `sub_tools=`."""
        self.runner.resources.grant(tools, sub_tools)

    # -- the reference's spelling ------------------------------------------------------------

    @with_prompt
    async def acompletion(
        self,
        prompt: ContextValue,
        root_prompt: str | None = None,
        *,
        sampling: Mapping[str, Any] | None = None,
        sub_sampling: Mapping[str, Any] | None = None,
    ) -> "late.Completion":
        """The async form of `completion`.

        With `persistent=True`, each call is a turn of the conversation, unless a tool of that
        turn makes it; a call after `close` begins a new one. The prompt is the context.
        `sampling` and `sub_sampling` are those of `ask`.
        """
        if self._conversation is not None and self._conversation.is_closed:
            self._conversation = self._new_chat(keeps_messages=True)
        conversation = self._conversation
        given: dict[str, Any] = {"sampling": sampling, "sub_sampling": sub_sampling}
        if conversation is not None and not conversation.waits_for_this:
            context = "" if prompt is None else prompt
            result = await conversation.aask(root_prompt, context, **given)
        else:
            config = RunChanges(**given).applied_to(self.config)
            query = FIXED_QUERY if root_prompt is None else root_prompt
            task = Task(query, await self.runner.resources.store(prompt, config))
            result = await self.runner.answer(task, config=config)
        compat.raise_if_ended_early(result, self.config.limits)
        return compat.completion_of(self, result, prompt, logged=self.logger is not None)

    @with_prompt
    def completion(
        self,
        prompt: ContextValue,
        root_prompt: str | None = None,
        *,
        sampling: Mapping[str, Any] | None = None,
        sub_sampling: Mapping[str, Any] | None = None,
    ) -> "late.Completion":
        """Answer as the reference engine does: the prompt is the context.

            completion = rlm.completion(text, root_prompt="Which deadlines are named?")
            print(completion.response)

        prompt: what `ask` takes as context; without a `root_prompt`, it contains the task.
        root_prompt: the query, which the model is shown.
        sampling, sub_sampling: those of `ask`.

        Returns a `Completion`: `response`, `usage_summary`, `execution_time`, and the `RunResult`
        as `result`. If a limit ended the run, raises the error that the reference has for it, with
        `.partial_answer`; Ctrl-C raises CancellationError.
        """
        given: dict[str, Any] = {"sampling": sampling, "sub_sampling": sub_sampling}
        return portal().call(lambda: self.acompletion(prompt, root_prompt, **given), self.stop)

    # -- ending ------------------------------------------------------------------------------

    def stop(self, run_id: str | None = None) -> None:
        """Ask every run of this object, or the named one, to end now with its best answer.

        It may be called from any thread.
        """
        self.runner.stop(run_id)

    async def aclose(self) -> None:
        """Close the connections and sessions of this event loop; a later call opens them again."""
        if self._conversation is not None:
            await self._conversation.aclose()
        await self.runner.resources.close()

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


@with_prompt
def completion(
    prompt: ContextValue, model: Model | None = None, **options: Any
) -> "late.Completion":
    """Answer a prompt: `rlm.completion(prompt, model)` replaces `llm.completion(prompt, model)`."""
    root_prompt = options.pop("root_prompt", None)
    one = RLM(model, **options)
    return portal().call(lambda: _completed_once(one, prompt, root_prompt))


@with_prompt
async def acompletion(
    prompt: ContextValue, model: Model | None = None, **options: Any
) -> "late.Completion":
    """The async form of `completion`. `root_prompt` is the query; options are those of `RLM`."""
    root_prompt = options.pop("root_prompt", None)
    return await _completed_once(RLM(model, **options), prompt, root_prompt)


async def _completed_once(
    one: RLM, prompt: ContextValue, root_prompt: str | None
) -> "late.Completion":
    try:
        return await one.acompletion(prompt, root_prompt)
    finally:
        await one.aclose()


def _runner(config: RunConfig, resources: Resources, listeners: Listeners) -> "late.Runner":
    from rlm.wiring.runner import Runner  # It imports the whole loop, so the class does not.

    return Runner(config, resources, listeners)


def _resources(given: dict[str, Any]) -> Resources:
    """Return the resources that the object keeps, made from the constructor's arguments."""
    from rlm.settings.for_programs import named_models, with_stored_keys
    from rlm.settings.recording import journal_for

    variables = with_stored_keys(os.environ) if given["variables"] is None else given["variables"]
    concurrent = (given["limits"] or Limits()).max_concurrent_calls
    given |= named_models(given, variables) | {"journal": journal_for(given)}
    return Resources(
        model=given["model"],
        settings=ModelSettings.of(
            given["clients"], given["prices"], given["windows"], given["client_options"], variables
        ),
        policy=CallPolicy(
            given["cache"], given["rate_limits"] or {}, given["hedge_after_seconds"], concurrent
        ),
        **{name: given[name] for name in RESOURCE_OPTIONS},
    )
