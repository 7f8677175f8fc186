"""Runs without a REPL: one plain call, or map/reduce."""

import asyncio
from collections.abc import Callable
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from rlm import prompts
from rlm.calls.calls import Calls
from rlm.calls.scope import Scope
from rlm.config import WEAK, RunConfig
from rlm.engine.answer_stream import prose_stream
from rlm.engine.plain_replies import read_submission
from rlm.engine.run_state import RunState
from rlm.engine.task import Ending, Task
from rlm.errors import ConfigError, RLMError
from rlm.messages import Message, Reply, Request, ToolSpec
from rlm.prompts import nudges
from rlm.results import RunResult, StopReason, Submission

__all__ = ["PlainRun", "RelayRun", "Relayed", "choose_strategy"]

MAX_REPAIRS = 3
OPERATOR = "operator"
CODE = "code"
"""The `how` of a reply that is code, and therefore no answer."""


def choose_strategy(calls: Calls, task: Task, config: RunConfig) -> tuple[str, Task]:
    """Return the strategy, and the task with the reason if `auto` chose it."""
    if task.operator is not None:
        return OPERATOR, task
    if task.context.source is not None and config.strategy in ("direct", "mapreduce"):
        raise ConfigError(
            f"strategy={config.strategy!r} reads text, but this context is data to query: use "
            "strategy='rlm'"
        )
    if config.strategy == "mapreduce" and not task.context.size_bytes:
        raise ConfigError(
            "strategy='mapreduce' reads a context part by part, but there is none: use "
            "strategy='direct' (--strategy direct), or pass a context"
        )
    if config.strategy != "auto":
        return config.strategy, task
    info, size = calls.info(config.model), task.context.size_bytes
    profile, most = config.profile or info.profile, prompts.call_chars(info) // 2
    if task.context.source is not None:
        strategy, why = "rlm", "the context is data that only code can query"
    elif task.context.pictures:
        strategy, why = "rlm", "the context has pictures, which only code can look at one by one"
    elif size <= most:
        why = f"the context has {size:,} bytes; {most:,} are half of what fits in one prompt"
        strategy = "direct"
    elif profile not in WEAK:
        strategy, why = "rlm", f"a model of profile {profile!r} can explore the context with code"
    elif profile != "tiny" and task.context.kind != "text":
        strategy, why = "rlm", "the context is structured, and code reads that best"
    else:
        strategy, why = "mapreduce", f"a model of profile {profile!r} reads better than it codes"
    return strategy, replace(task, chosen_because=why)


class PlainRun:
    """A run without a REPL, with the same events and endings as any other run."""

    def __init__(
        self, calls: Calls, config: RunConfig, scope: Scope, task: Task, strategy: str
    ) -> None:
        self.run_state = RunState(task, config, scope, calls)
        self.strategy = strategy

    async def run(self) -> RunResult:
        self.run_state.announce("none", self.strategy)
        try:
            ending = await self._ending()
        except asyncio.CancelledError as error:
            ending = Ending("cancelled", "none", detail="the run was cancelled")
            if not self.run_state.was_stopped(error):
                self.run_state.end(ending, failed=True)
                raise
        except RLMError as error:
            limit = self.run_state.limit_reached(error)
            ending = Ending("limit" if limit else "error", "none", None, limit, str(error))
            if limit is None:
                self.run_state.end(ending, failed=True)
                raise
        return await self.run_state.finish(ending)

    async def _ending(self) -> Ending:
        if self.strategy == OPERATOR:
            return await _operator(self.run_state)
        return await (_direct if self.strategy == "direct" else _mapreduce)(self.run_state)


class Relayed(Struct, frozen=True, kw_only=True):
    """Messages to send unchanged; `on_text` receives the reply piece by piece."""

    messages: tuple[Message, ...]
    max_output_tokens: int
    sampling: dict[str, Any] = field(default_factory=dict)
    tools: tuple[ToolSpec, ...] = ()
    on_text: Callable[[str], None] | None = None


class RelayRun(PlainRun):
    """One request of a client of the server, with the budget and events of any other run."""

    def __init__(
        self, calls: Calls, config: RunConfig, scope: Scope, task: Task, relayed: Relayed
    ) -> None:
        super().__init__(calls, config, scope, task, "direct")
        self.relayed = relayed
        self.reply: Reply | None = None

    async def _ending(self) -> Ending:
        run, relayed = self.run_state, self.relayed
        run.scope.step = 1
        request = Request(
            model=run.config.model,
            messages=relayed.messages,
            max_output_tokens=relayed.max_output_tokens,
            sampling=relayed.sampling,
            tools=relayed.tools,
        )
        self.reply = await run.calls.run_request(
            run.scope, request, purpose="direct", on_text=relayed.on_text
        )
        return Ending("answer", "asked", Submission(self.reply.text, "direct"))


async def _operator(run: RunState) -> Ending:
    """Run one operator over the items of the context; a partial result is an answer too."""
    from rlm.engine.operators import run_operator

    assert run.task.operator is not None
    model = run.config.sub_model
    result = await run_operator(run.task.operator, run.calls, run.scope, run.config, model)
    submission = Submission(result.note, OPERATOR, await result.to_json())
    if result.missing:
        stop_reason: StopReason = "limit" if result.limit else "error"
        return Ending(stop_reason, "asked", submission, result.limit, result.reason)
    return Ending("answer", "asked", submission)


async def _mapreduce(run: RunState) -> Ending:
    from rlm.engine.mapreduce import map_reduce

    answer = await map_reduce(run.calls, run.task, run.scope, run.config)
    submission = Submission(answer or "NOT FOUND", "mapreduce")
    return _ending(await _repair(run, submission))


async def _direct(run: RunState) -> Ending:
    """Ask once with the whole context; raise if it does not fit the window."""
    text = run.task.context.text()
    most = prompts.call_chars(run.calls.info(run.config.model))
    if len(text) > most:
        raise ConfigError(
            f"strategy='direct' sends the whole context, but its {len(text):,} characters exceed "
            f"the {most:,} that {run.config.model} safely takes: use strategy='rlm' or 'auto'"
        )
    run.scope.step = 1
    submission = await _ask_for_answer(run, _direct_prompt(run.task, text), "direct")
    return _ending(await _repair(run, submission))


def _ending(submission: Submission) -> Ending:
    if submission.how == CODE:
        detail = "the model replied twice with code for a REPL instead of an answer"
        return Ending("error", "none", None, "invalid_responses", detail)
    return Ending("answer", "asked", submission)


def _direct_prompt(task: Task, text: str) -> str:
    """Return the text itself if it is the task; else query, prologue and text."""
    if task.query == prompts.FIXED_QUERY:
        return "\n\n".join(filter(None, [text, task.prologue]))
    query = "\n\n".join(filter(None, [task.query, task.prologue]))
    return prompts.direct_prompt(query, text) if text else query


async def _repair(run: RunState, submission: Submission) -> Submission:
    """Send an answer of the wrong shape back, at most a few times."""
    repeated, mistake = 0, ""
    for _ in range(MAX_REPAIRS):
        objection = await run.objection(submission)
        if objection is None:
            break
        repeated = repeated + 1 if objection.kind == mistake else 1
        if repeated == run.config.guards.wrong_shape_limit:
            break
        mistake, advice = objection.kind, nudges.wrong_shape(objection.problem)
        text = f"{run.task.prologue}\n\nYour answer was:\n{submission.text}\n\n{advice}"
        submission = await _ask_for_answer(run, text, "repair")
    return submission


async def _ask_for_answer(run: RunState, prompt: str, purpose: str) -> Submission:
    """Return the answer to one prompt; send back a reply like `FINAL_VAR(x)`."""
    messages = (Message("user", prompt),)
    reply = await _reply(run, messages, purpose)
    plain = read_submission(reply)
    if plain.is_code:
        said = Message("assistant", reply.text)
        reply = await _reply(run, (*messages, said, Message("user", nudges.NO_CODE_NOW)), purpose)
        plain = read_submission(reply)
    if plain.is_code:
        return Submission("", CODE)
    return Submission(plain.text, purpose, plain.json)


async def _reply(run: RunState, messages: tuple[Message, ...], purpose: str) -> Reply:
    request = Request(
        model=run.config.model,
        messages=messages,
        max_output_tokens=run.config.limits.step_output_tokens,
        sampling=run.config.sampling,
    )
    plain = purpose == "direct" and run.task.objection_to is None
    stream = prose_stream(run.scope, after_marker=False) if plain else None
    return await run.calls.run_request(run.scope, request, purpose=purpose, stream=stream)
