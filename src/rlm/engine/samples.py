"""Several runs of one query, on one budget: the most frequent answer wins.

The samples are child runs and are recorded, resumed and shown as such. Only as many run at once as
could settle the vote, and none is started once no other answer can win.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from rlm import prompts
from rlm._util.text import counted
from rlm.calls.calls import Calls
from rlm.calls.scope import Scope
from rlm.config import RunConfig
from rlm.engine.children import charge, spent_by
from rlm.engine.loop import ReplRun
from rlm.engine.run_state import RunState
from rlm.engine.strategies import PlainRun
from rlm.engine.task import Ending, Task
from rlm.engine.voting import Tally, ballot_of
from rlm.errors import CallRefused, ConfigError, ModelError, RLMError
from rlm.events import CallEnded, CallStarted, StepStarted
from rlm.messages import Message, Reply, ReplyKey, Request
from rlm.prompts.observation import cut
from rlm.results import BY_ITSELF, RunResult, Sample, Submission, UsageSummary

__all__ = ["SampledRun"]

SHOWN_ANSWER_CHARS = 4_000
"""How much of each tied answer the judge is shown."""

NOT_NEEDED = "no longer needed: the other samples had settled the answer"

Execution = ReplRun | PlainRun
StartSample = Callable[[Scope, RunConfig, Task], Execution]
"""Makes the run of a sample, with the strategy of its configuration."""


class SamplesState(RunState):
    """The state of the run above the samples: stopping it stops them."""

    winner: RunResult | None = None

    def __init__(self, task: Task, config: RunConfig, scope: Scope, calls: Calls) -> None:
        super().__init__(task, config, scope, calls)
        self.samples: dict[int, RunState] = {}

    def stop(self) -> None:
        """Ask all samples to end now with the best answers they have."""
        if not self.samples:
            super().stop()
        self.stop_asked = True
        for each in list(self.samples.values()):
            each.stop()

    async def find_quotes(self, answer: str) -> None:
        """Do nothing: the samples have found their quotes."""

    def cited(self) -> dict[str, Any]:
        if self.winner is None:
            return super().cited()
        names = ("citations", "unsupported_quotes", "omitted_citations")
        return {name: getattr(self.winner, name) for name in names}


class SampledRun(PlainRun):
    """A run of `count` samples, whose answer is the one most of them give."""

    run_state: SamplesState

    def __init__(
        self,
        calls: Calls,
        config: RunConfig,
        scope: Scope,
        task: Task,
        count: int,
        start: StartSample,
    ) -> None:
        self.run_state = SamplesState(task, config, scope, calls)
        self.strategy = "samples"
        self.count = count
        self._start = start
        self._tally = Tally(count)
        self._results: dict[int, RunResult] = {}
        self._scopes: dict[int, Scope] = {}

    async def run(self) -> RunResult:
        result = await super().run()
        return replace(result, samples=self._samples())

    def _samples(self) -> tuple[Sample, ...]:
        return tuple(
            Sample(
                answer=result.answer,
                run_id=result.run_id,
                stop_reason=result.stop_reason,
                cost_usd=result.cost_usd,
                votes=self._tally.votes_of(number),
                detail=result.detail,
            )
            for number, result in sorted(self._results.items())
        )

    async def _ending(self) -> Ending:
        scope = self.run_state.scope
        scope.step = 1
        scope.emit(StepStarted)
        running: dict[asyncio.Task[RunResult], int] = {}
        try:
            await self._collect(running)
        finally:
            await self._cancel(running)
        if not self._tally.leaders:
            self._count_all()
        return await self._decide()

    async def _collect(self, running: "dict[asyncio.Task[RunResult], int]") -> None:
        """Run samples until the answer is settled or all have ended."""
        most = self.run_state.config.limits.max_child_sessions
        while not self._tally.is_settled and self._tally.left:
            wanted = min(self._tally.missing, most)
            if self.run_state.stop_asked:
                wanted = 0
            while len(running) < wanted and len(self._scopes) < self.count:
                number = len(self._scopes)
                scope = self._scopes[number] = self._scope_of(number)
                running[asyncio.create_task(self._sample(number, scope))] = number
            if not running:
                return
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=running.__getitem__):
                self._note(running.pop(task), task.result())

    async def _cancel(self, running: "dict[asyncio.Task[RunResult], int]") -> None:
        """Cancel the samples that are no longer needed."""
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        for task, number in running.items():
            if task.cancelled() or task.exception() is not None:
                scope = self._scopes[number]
                self._results[number] = _without_answer(scope, "cancelled", NOT_NEEDED)
            else:
                self._note(number, task.result())

    def _note(self, number: int, result: RunResult) -> None:
        self._results[number] = result
        has_voted = result.stop_reason in BY_ITSELF and result.answer is not None
        self._tally.add(number, _ballot(result) if has_voted else None)

    def _count_all(self) -> None:
        """Count the best answers of samples that ended early, if there are no other answers."""
        self._tally = Tally(self.count)
        for number, result in self._results.items():
            self._tally.add(number, None if result.answer is None else _ballot(result))

    # -- one sample --------------------------------------------------------------------------

    def _scope_of(self, number: int) -> Scope:
        scope, limits = self.run_state.scope, self.run_state.config.limits
        child = scope.child(scope.budget.child(limits), f"sample{number}")
        child.sample = number
        return child

    async def _sample(self, number: int, scope: Scope) -> RunResult:
        """Return the result of one sample; its failure is a result too."""
        parent = self.run_state
        call_id = f"{parent.scope.run_id}.sample{number}"
        about = {"call_id": call_id, "kind": "rlm", "model": parent.config.model}
        parent.scope.emit(CallStarted, **about, prompt=parent.task.query)
        task = replace(parent.task, parent_call_id=call_id, settings={})
        result, stored = await _recalled(scope), True
        if result is None:
            execution = self._start(scope, _config_of(parent.config, number), task)
            parent.samples[number] = execution.run_state
            try:
                result, stored = await self._executed(execution, scope), False
            finally:
                del parent.samples[number]
        error = result.detail if result.answer is None else None
        parent.scope.emit(
            CallEnded,
            **about,
            reply=result.answer or "",
            child_run_id=scope.run_id,
            seconds=result.seconds,
            stored=stored,
            error=error,
        )
        return result

    async def _executed(self, execution: Execution, scope: Scope) -> RunResult:
        try:
            async with scope.tree.child_slot(scope.depth):
                result = await execution.run()
        except ConfigError:
            raise
        except RLMError as error:
            return _without_answer(scope, "error", str(error))
        if result.answer is not None and result.stop_reason in BY_ITSELF:
            await _remember(scope, result)
        return result

    # -- the answer --------------------------------------------------------------------------

    async def _decide(self) -> Ending:
        leaders = self._tally.leaders
        if not leaders:
            return self._no_answer()
        chosen, detail = leaders[0], ""
        if len(leaders) > 1 and not self.run_state.stop_asked:
            chosen, detail = await self._judge(leaders)
        winner = self._results[chosen]
        self.run_state.winner = winner
        return Ending(
            winner.stop_reason,
            winner.answer_source,
            Submission(winner.answer, "samples", winner.answer_json),
            winner.limit,
            detail or winner.detail,
        )

    def _no_answer(self) -> Ending:
        """Return the ending of a run none of whose samples has an answer."""
        if self.run_state.stop_asked:
            return Ending("cancelled", "none", detail="the run was cancelled")
        results = [result for _, result in sorted(self._results.items())]
        reasons = {(result.stop_reason, result.limit) for result in results}
        why, limit = reasons.pop() if len(reasons) == 1 else ("error", None)
        first = results[0].detail or results[0].stop_reason
        detail = f"none of {counted(len(results), 'sample')} has an answer; the first: {first}"
        return Ending(why, "none", None, limit, detail)

    async def _judge(self, leaders: list[int]) -> tuple[int, str]:
        """Let the model choose between tied answers, without the context."""
        run = self.run_state
        answers = "\n\n".join(
            f"Answer {place}:\n{cut(self._results[number].answer, SHOWN_ANSWER_CHARS)}"
            for place, number in enumerate(leaders, 1)
        )
        request = Request(
            model=run.config.model,
            messages=(
                Message("user", prompts.fill("judge", query=run.task.query, answers=answers)),
            ),
            max_output_tokens=run.config.limits.step_output_tokens,
            sampling=run.config.sampling,
        )
        tied = f"{counted(len(leaders), 'answer')} were equally frequent"
        try:
            reply = await run.calls.run_request(run.scope, request, purpose="judge")
        except asyncio.CancelledError as error:
            if not run.was_stopped(error):
                raise
            return leaders[0], f"{tied}: this is the first of them"
        except (ModelError, CallRefused) as error:
            return leaders[0], f"{tied}, and the judge failed ({error}): this is the first of them"
        numbers = [int(each) for each in re.findall(r"\b\d{1,2}\b", reply.text)]
        places = [each for each in numbers if 1 <= each <= len(leaders)]
        if not places:
            return leaders[0], (
                f"{tied}, and the judge named none of them: this is the first of them"
            )
        return leaders[places[-1] - 1], f"{tied}; a judge chose this one"


def _ballot(result: RunResult) -> str:
    return ballot_of(str(result.answer), result.answer_json)


def _config_of(config: RunConfig, number: int) -> RunConfig:
    """Return the configuration of a sample: one level deeper, and with its own seeds."""
    limits = replace(config.limits, max_depth=config.limits.max_depth + 1)
    given: dict[str, Any] = {"limits": limits, "seed": config.seed + number}
    for name in ("sampling", "sub_sampling"):
        options = getattr(config, name)
        if isinstance(options.get("seed"), int):
            given[name] = {**options, "seed": options["seed"] + number}
    return replace(config, **given)


def _without_answer(scope: Scope, why: Any, detail: str) -> RunResult:
    usage = UsageSummary.of(scope.budget.usage)
    return RunResult(
        answer=None,
        stop_reason=why,
        answer_source="none",
        run_id=scope.run_id,
        steps=scope.step,
        calls=scope.budget.used.calls,
        usage=usage,
        cost_usd=usage.total.cost_usd,
        seconds=0.0,
        detail=detail,
    )


# -- for later executions -------------------------------------------------------------------------


async def _remember(scope: Scope, result: RunResult) -> None:
    """Store the result of a sample, so that it does not run again when the run is resumed.

    One that stopped at a limit runs again, because the limit may be higher then.
    """
    plain = msgspec.to_builtins(replace(result, events=(), usage=UsageSummary()))
    opaque = {**spent_by(scope), "result": plain}
    await scope.remember(_key(scope), Reply(text=str(result.answer), opaque=opaque))


async def _recalled(scope: Scope) -> RunResult | None:
    """Return the result of an earlier execution; count what it used."""
    known = await scope.recall(_key(scope))
    if known is None or known.finish_reason == "failed":
        return None
    charge(scope, known.opaque)
    try:
        result = msgspec.convert(known.opaque.get("result"), RunResult)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"the result of a sample in the journal can't be read: {error}"
        ) from error
    return replace(result, usage=UsageSummary.of(scope.budget.usage))


def _key(scope: Scope) -> ReplyKey:
    return ReplyKey(scope.path, "answer", 0, "child", 1)
