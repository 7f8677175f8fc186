"""The state of a run: how it starts, its conversation with the model, and how it ends."""

import asyncio
import hashlib
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from rlm import prompts
from rlm.calls.billing import worst_case
from rlm.calls.calls import Calls
from rlm.calls.scope import Scope
from rlm.calls.sending import ReplyStream
from rlm.citations import Citations, Texts
from rlm.config import WEAK, RunConfig
from rlm.context import StoredContext, citable_texts
from rlm.engine.answer_stream import prose_stream
from rlm.engine.decide import (
    Answered,
    Continue,
    Decision,
    Progress,
    StepResult,
    TryMapReduce,
    decide,
    guarded,
    of_wrong_shape,
)
from rlm.engine.grounding import is_exact, is_grounded, is_literal
from rlm.engine.sessions import RunSession
from rlm.engine.task import Ending, Objection, Task
from rlm.errors import CallRefused, ConfigError, ModelError
from rlm.events import (
    BudgetChanged,
    Compacted,
    ContextHashed,
    Diverged,
    Planned,
    RunEnded,
    RunStarted,
)
from rlm.messages import Message, Reply, Request, followed_by, total_of
from rlm.prompts import nudges
from rlm.results import RunResult, Shown, Submission, UsageSummary

__all__ = ["History", "ReplRunState", "RunState"]

SHOWN_CHARS = 4_000
"""How much of each text a `Diverged` event holds."""

FEWEST_MESSAGES_TO_COMPACT = 6
"""Instructions, task and two steps: a shorter history is not worth compacting."""

SEARCHED_BYTES = 16_000_000
"""A larger context is not searched for a weak model's answer."""

MIN_OUTPUT_TOKENS = 1_024
"""A step with a smaller output cap is hardly worth its input."""


class RunState:
    """The state of a run in progress, with any strategy."""

    def __init__(self, task: Task, config: RunConfig, scope: Scope, calls: Calls) -> None:
        self.task = task
        self.config = config
        self.scope = scope
        self.calls = calls
        self.started = time.monotonic()
        self.stop_asked = False
        self._is_cancelled = False
        self._task: asyncio.Task[Any] | None = None
        self._hashing: asyncio.Task[None] | None = None
        self._objections: dict[Submission, Objection | None] = {}
        self.citations = scope.citations = Citations(self._citable_texts)

    def _citable_texts(self) -> Texts:
        """Yield the texts that the run may cite."""
        return citable_texts(self.task.context)

    def stop(self) -> None:
        """Ask the run to end now with the best answer it has; no further request is sent."""
        self.stop_asked = True
        if self._task is not None and not self._is_cancelled:
            self._is_cancelled = True  # Twice, it would lose its answer.
            self._task.cancel()

    def limit_reached(self, error: BaseException) -> str | None:
        """Return the limit that an error reports; None for a genuine error."""
        if isinstance(error, CallRefused):
            return error.limit
        too_late = self.scope.budget.seconds_left == 0
        return "seconds" if too_late and isinstance(error, ModelError) else None

    def was_stopped(self, error: BaseException) -> bool:
        """Whether `stop` caused this error; if so, the run can still await its last requests."""
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
            self._hashing = asyncio.create_task(self._report_hash())
        if self.task.chosen_because:
            self.scope.emit(Planned, strategy=strategy, reason=self.task.chosen_because)

    async def _report_hash(self) -> None:
        """Report the hash of the context while the first requests are in flight."""
        with suppress(ConfigError):  # A file changed: the session needs it and reports it.
            sha256 = await asyncio.wrap_future(self.task.context.hashing())
            self.scope.emit(ContextHashed, context_sha256=sha256)

    async def finish(self, ending: Ending) -> RunResult:
        """End the run; an answer of the wrong shape is dropped.

        `RunEnded` is the last event, so the hash of the context is awaited before it, unless the
        run was stopped.
        """
        rejected = ending.submission
        if rejected is not None and (objection := await self.objection(rejected)):
            ending = ending.without_answer(rejected, objection.problem)
        if self._hashing is not None and not self.stop_asked:
            await self._hashing
        if ending.submission is not None and not _is_structured(ending.submission):
            await self.find_quotes(ending.submission.text)
        return self.end(ending)

    async def find_quotes(self, answer: str) -> None:
        """Look for the quotes of an answer in the context."""
        if self.stop_asked:
            await self.citations.skip(answer)
        elif self.task.context.size_bytes:
            await self.citations.look_into(answer)

    def report_budget(self) -> None:
        tree = self.scope.budget.root
        self.scope.emit(
            BudgetChanged,
            calls=tree.used.calls,
            tokens=tree.used.tokens,
            cost_usd=total_of(tree.usage.values()).cost_usd,
            overshoot_tokens=tree.overshoot.tokens,
        )

    def end(self, ending: Ending, *, failed: bool = False) -> RunResult:
        """Send the last event of the run and return its result."""
        if not self.calls.info(self.config.model).is_language_model:
            ending = ending.without_model()
        if self._hashing is not None:
            self._hashing.cancel()
        submission = ending.submission
        answer = submission.text if submission else None
        rejected_answer = ending.rejected.text if ending.rejected else None
        self.scope.count_rest()
        usage = UsageSummary.of(self.scope.budget.usage)
        seconds = time.monotonic() - self.started
        cited = self.cited()
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
            rejected_answer=rejected_answer,
            **cited,
        )
        return RunResult(
            answer=answer,
            stop_reason=ending.stop_reason,
            answer_source=ending.source,
            run_id=self.scope.run_id,
            steps=self.scope.step,
            usage=usage,
            calls=self.scope.budget.used.calls,
            cost_usd=usage.total.cost_usd if self.scope.step or usage.total.requests else 0.0,
            seconds=seconds,
            limit=ending.limit,
            detail=ending.detail,
            answer_json=submission.json if submission else None,
            rejected_answer=rejected_answer,
            **cited,
        )

    def cited(self) -> dict[str, Any]:
        """Return the fields about citations for the end of the run."""
        return {
            "citations": tuple(self.citations.found),
            "unsupported_quotes": self.citations.unsupported,
            "omitted_citations": self.citations.omitted,
        }

    async def objection(self, submission: Submission) -> Objection | None:
        """Return what is wrong with the shape of an answer; each answer is checked once."""
        if self.task.objection_to is None:
            return None
        if submission not in self._objections:
            self._objections[submission] = await self.task.objection_to(submission)
        return self._objections[submission]


class History:
    """The conversation of a run with its model. Append-only, so that prompt caches hit.

    Only compaction rewrites it: near the window, the model writes notes and continues from them.
    """

    def __init__(self, calls: Calls, scope: Scope, config: RunConfig) -> None:
        self._calls = calls
        self._scope = scope
        self._config = config
        self._logged = 0
        self._chars = 0
        self.messages: list[Message] = []
        self.new_stream: Callable[[], ReplyStream | None] = lambda: None
        """Makes the stream that passes on the reply to a step, or returns None."""

    async def open(self, system: str, first: str) -> None:
        """Begin the conversation; a resumed run reuses its recorded opening messages."""
        system = await self._scope.show("system", system)
        first = await self._scope.show("task", first)
        self.messages = [Message("system", system), Message("user", first)]
        self._chars = _chars(self.messages)

    def append(self, reply: Reply, observation: str) -> None:
        """Add a reply and what the model is shown after it."""
        new = _exchange(reply, observation)
        self.messages += new
        self._chars += _chars(new)

    def has_room_for(self, reply: Reply, observation: str) -> bool:
        """Whether the budget allows another step after this observation."""
        budget = self._scope.budget
        if not budget.is_limited:
            return True
        messages = (*self.messages, *_exchange(reply, observation))
        request = self._request(messages, MIN_OUTPUT_TOKENS)
        info = self._calls.info(self._config.model)
        need, room = worst_case(request, info, self._scope.reported), budget.room()
        return need.tokens <= room.tokens and need.picodollars <= room.picodollars

    async def ask(self, variables: tuple[str, ...]) -> Reply:
        """Return the next reply; ask again with a larger cap if an empty one hit its cap."""
        if self._is_near_window():
            await self._compact(variables)
        cap = self._config.limits.step_output_tokens
        reply = await self._step(cap)
        if reply.finish_reason == "length" and not reply.text.strip() and not reply.tool_calls:
            reply = await self._step(2 * cap)
        return reply

    async def _step(self, max_output_tokens: int) -> Reply:
        fresh = len(self.messages) - self._logged
        self._logged = len(self.messages)
        request = self._request(tuple(self.messages), max_output_tokens)
        return await self._calls.run_request(
            self._scope, request, purpose="step", new_messages=fresh, stream=self.new_stream()
        )

    def _request(self, messages: tuple[Message, ...], max_output_tokens: int) -> Request:
        native = self._config.protocol == "tools"
        return Request(
            model=self._config.model,
            messages=messages,
            max_output_tokens=max_output_tokens,
            sampling=self._config.sampling,
            tools=prompts.NATIVE_TOOLS if native else (),
            grows=True,
        )

    def _is_near_window(self) -> bool:
        if not self._config.compaction or len(self.messages) < FEWEST_MESSAGES_TO_COMPACT:
            return False
        window = prompts.call_chars(self._calls.info(self._config.model))
        return self._chars > self._config.compaction_fraction * window

    async def _compact(self, variables: tuple[str, ...]) -> None:
        """Replace everything after the instructions and the task with notes of the model."""
        messages = followed_by(self.messages, prompts.compact())
        request = self._request(messages, self._config.limits.step_output_tokens)
        reply = await self._calls.run_request(
            self._scope, request, purpose="compaction", new_messages=1
        )
        notes = Message("assistant", reply.text or "(no notes)")
        text = await self._scope.show("compaction", prompts.compacted(variables))
        shortened = [*self.messages[:2], notes, Message("user", text)]
        self._scope.emit(
            Compacted,
            messages_before=len(self.messages),
            messages_after=len(shortened),
            chars_before=self._chars,
            chars_after=_chars(shortened),
        )
        self.messages, self._logged, self._chars = shortened, 0, _chars(shortened)


class ReplRunState(RunState):
    """The state of a run of the loop, with its session, history and progress."""

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
        history.new_stream = self._answer_stream

    def _citable_texts(self) -> Texts:
        """Yield the texts of `context`, then those of the other contexts of a chat."""
        yield from super()._citable_texts()
        for name, context in self.session.contexts.items():
            if name.startswith("context_") and isinstance(context, StoredContext):
                for file, pieces in citable_texts(context):
                    yield name if file is None else f"{name}/{file}", pieces

    def _answer_stream(self) -> ReplyStream | None:
        """Return a stream for an answer in prose, if an answer of any form would be accepted."""
        if not self.scope.wants_pieces:
            return None
        rejected = guarded(self.progress, self.config.guards, self.scope.step)
        if (
            rejected
            or self._checks_literals
            or self.task.objection_to is not None
            or self.config.protocol != "fences"
        ):
            return None
        return prose_stream(self.scope, after_marker=True)

    def stop(self) -> None:
        """Ask the run to end now; its cell is interrupted, and its variables stay candidates."""
        self.stop_asked = True
        self.session.stop(super().stop)

    async def decide(self, step_result: StepResult) -> Decision:
        """Decide what follows from a step; an answer must have the shape asked for."""
        self.progress.note(step_result)
        progress, guards = self.progress, self.config.guards
        decision = decide(step_result, progress, guards, self.scope.step, self.session.variables)
        if not isinstance(decision, Answered):
            return decision
        submission = decision.submission
        if await self._is_ungrounded(step_result, submission):
            if not progress.asked_to_look:
                progress.asked_to_look = True
                return Continue((nudges.LOOK_AGAIN,))
            if is_exact(submission.text):
                return TryMapReduce("the answer is in neither the context nor any output")
        if (objection := await self.objection(submission)) is None:
            return decision
        if not self.calls.info(self.config.model).is_language_model:
            guards = replace(guards, wrong_shape_limit=1)  # Its passages never fit.
        return of_wrong_shape(submission, objection.problem, objection.kind, progress, guards)

    @property
    def _checks_literals(self) -> bool:
        """Whether an answer may still be sent back because nothing seen so far holds it."""
        profile = self.config.profile or self.calls.info(self.config.model).profile
        is_open = self.config.guards.check_values
        has_steps = self.scope.step < self.config.limits.max_steps
        has_values = self.task.context.size_bytes > 0 and self.task.objection_to is None
        return profile in WEAK and is_open and has_steps and has_values

    async def _is_ungrounded(self, step_result: StepResult, submission: Submission) -> bool:
        """Whether a weak model may have invented its answer.

        Output that a cell copies from its own code is no evidence: the value may be made up.
        """
        if not self._checks_literals:
            return False
        text, context = submission.text, self.task.context
        if not is_literal(text, step_result.actions, step_result.results):
            return False
        evidence = [output for code, output in self.progress.outputs if text not in code]
        if is_grounded(text, (self.task.query, self.task.prologue, *evidence)):
            return False
        if context.size_bytes > SEARCHED_BYTES or context.source is not None:
            return False
        return not await asyncio.to_thread(lambda: is_grounded(text, (context.text(),)))

    async def already_shown(self, step_result: StepResult) -> Shown | None:
        """Return what the model was shown after this step in an earlier execution.

        The cells ran again only to restore their variables. If their output differs this time,
        an event reports it.
        """
        known = await self.scope.recorded("observation")
        if known is not None and known.outputs != _outputs(step_result):
            printed = "\n".join(result.stdout for result in step_result.results)
            self.scope.emit(Diverged, recorded=known.text[:SHOWN_CHARS], now=printed[:SHOWN_CHARS])
        return known

    async def show(self, step_result: StepResult, text: str) -> str:
        """Store and return what the model is shown after this step."""
        if not self.scope.has_store:
            return text
        return await self.scope.show("observation", text, _outputs(step_result))


def _is_structured(submission: Submission) -> bool:
    """Whether an answer is a list or dict, whose strings are not quotes."""
    return submission.json is not None and submission.json.lstrip()[:1] in ("{", "[")


def _outputs(step_result: StepResult) -> str:
    """Return a digest of what the cells printed and how they ended."""
    parts = [
        (result.stdout, result.stderr, result.error and (result.error.type, result.error.message))
        for result in step_result.results
    ]
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _exchange(reply: Reply, observation: str) -> list[Message]:
    """Return a reply and its observation as messages; every native tool call gets a result."""
    said = Message("assistant", reply.text, tool_calls=reply.tool_calls, opaque=reply.opaque)
    new = [said] if reply.tool_calls else [said, Message("user", observation)]
    for number, call in enumerate(reply.tool_calls):
        text = "(see the first result)" if number else observation
        new.append(Message("tool", text, tool_call_id=call.id))
    return new


def _chars(messages: list[Message]) -> int:
    return sum(len(m.content) for m in messages if isinstance(m.content, str))
