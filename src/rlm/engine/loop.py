"""The loop: ask the model, run the cells of its reply, decide, repeat.

Read `run`, then `step`; the rest is what they call. Collaborators do the work: `History` asks the
model, `RunSession` runs cells, `Bridge` answers what cells ask for, and `ReplRunState` decides. No
provider, sandbox or file format is named here.
"""

from functools import partial

from msgspec.structs import replace

from rlm import prompts
from rlm.calls.scope import Scope
from rlm.config import RunConfig
from rlm.engine import children
from rlm.engine.bridge import Bridge
from rlm.engine.cells import Actions, Cell, parse_reply, parse_tool_calls
from rlm.engine.children import ChildAnswer, ChildTask
from rlm.engine.decide import Answered, StepResult, TryMapReduce, WrongShape
from rlm.engine.ending import FinalCall, ending_by_shape, ending_of, give_up
from rlm.engine.opening import opening
from rlm.engine.run_state import History, ReplRunState
from rlm.engine.sessions import RunSession
from rlm.engine.task import Ending, Services, Task
from rlm.errors import ModelError
from rlm.events import StepStarted
from rlm.messages import Reply
from rlm.portal import inside
from rlm.prompts.observation import budget_worth_showing, observation
from rlm.results import CellResult, RunResult, Shown, Submission

__all__ = ["ReplRun"]


class ReplRun:
    """One run with a REPL. Its child runs are objects of this class too, and draw on its budget."""

    def __init__(
        self,
        services: Services,
        config: RunConfig,
        scope: Scope,
        task: Task,
        kept_session: RunSession | None = None,
    ) -> None:
        self.services = services
        self.config = config
        self.scope = scope
        self.closes_session = kept_session is None
        self.session = kept_session or services.new_session(config, task)
        contexts, grants = self.session.contexts, services.child_toolset.names
        calls, tools = services.calls, services.toolset.tools
        self.bridge = Bridge(calls, config, scope, self.start_child, tools, contexts, grants)
        self.session.serve(scope, self.bridge)
        self.history = History(calls, scope, config)
        self.run_state = ReplRunState(task, config, scope, calls, self.session, self.history)
        self.final_call: FinalCall | None = None

    async def run(self) -> RunResult:
        """Execute the whole run; every limit ends it with a result, not with an error."""
        self.bridge.inside = inside.get()  # A blocking call from a tool of this run would deadlock.
        self.run_state.announce(self.services.environment.name, "rlm")
        try:
            ending = await self._steps()
        except BaseException as error:  # noqa: BLE001 - errors that are not endings are raised again
            ending = await ending_of(self.run_state, self.final_call, error)
        finally:
            if self.final_call is not None:
                self.final_call.held.release()
            await self.session.leave(self.bridge, close=self.closes_session)
        return await self.run_state.finish(ending)

    async def _steps(self) -> Ending:
        info = self.services.calls.info(self.config.model)
        self.final_call = FinalCall(self.scope, self.config, info)
        await self.session.open()
        task, session = self.run_state.task, self.session
        messages = await opening(self.services, self.config, self.scope, task, session)
        await self.history.open(*messages)
        while self.scope.step < self.config.limits.max_steps:
            if (ending := await self.step()) is not None:
                return ending
        detail = "no steps left (max_steps)"
        return await give_up(self.run_state, self.final_call, "steps", detail, limit="steps")

    async def step(self) -> Ending | None:
        """Ask for one reply, run its cells, and decide what follows."""
        self.scope.step += 1
        self.scope.emit(StepStarted)
        reply = await self.history.ask(self.session.variables)
        result = await self.act(reply)
        decision = await self.run_state.decide(result)
        if (shown := await self.run_state.already_shown(result)) is not None:
            return await self._repeat_step(reply, shown)
        if isinstance(decision, Answered):
            return Ending("answer", "submitted", decision.submission)
        if isinstance(decision, WrongShape):
            return ending_by_shape(self.run_state, decision)
        if isinstance(decision, TryMapReduce):
            return await self._try_map_reduce(decision.reason)
        text = self._observation(reply, result.results, decision.notes)
        self.history.append(reply, await self.run_state.show(result, text))
        self.run_state.report_budget()
        return await self._end_if_failing()

    async def _repeat_step(self, reply: Reply, shown: Shown) -> Ending | None:
        """Continue after a step as an earlier execution did, whatever `decide` says now.

        The newest step that it stored may be where it was about to give up.
        """
        self.history.append(reply, shown.text)
        self.run_state.report_budget()
        return await self._end_if_failing() if shown.is_last else None

    async def act(self, reply: Reply) -> StepResult:
        """Run the cells of a reply, then look up its final if that names a variable."""
        actions = self._actions(reply)
        results = await self.execute(actions)
        final, looked_up = actions.final, None
        if final is not None and (final.kind == "variable" or final.maybe_name):
            looked_up = await self.session.lookup(final.text)
        return StepResult(actions, results, looked_up, empty=not reply.text.strip())

    async def execute(self, actions: Actions) -> tuple[CellResult, ...]:
        """Run the cells in order; stop after the first that fails or submits an answer.

        A later cell may replace an answer that an earlier step left behind.
        """
        results: list[CellResult] = []
        for number, cell in enumerate(actions.cells, 1):
            result = await self.session.run_cell(number, cell.code)
            results.append(result)
            submitted = result.submission is not None and result.submission.is_new
            if result.error is not None or submitted:
                break
        return tuple(results)

    async def start_child(self, task: ChildTask) -> ChildAnswer:
        """Execute a child run; only its answer comes back."""
        context = await children.context_of(task, self.scope, self.config.limits)
        query = task.prompt if task.has_context else prompts.FIXED_QUERY
        budget = self.scope.budget.child(self.config.limits)
        scope = self.scope.child(budget, await children.digest_of(context, task.distinct(query)))
        config = replace(self.config, model=task.model)
        services = self.services.for_child(task.tools)
        if (known := await children.recalled(scope, self.scope.step)) is not None:
            return known
        child = ReplRun(services, config, scope, Task(query, context, task.call_id))
        async with self.scope.tree.child_slot(scope.depth):
            result = await child.run()
        return await children.answered(scope, self.scope.step, result)

    def _actions(self, reply: Reply) -> Actions:
        """Parse a reply; after too many without code or answer, run `guards.fallback_code`."""
        native = reply.tool_calls
        actions = parse_tool_calls(native) if native else parse_reply(reply.text)
        guards = self.config.guards
        last_chance = self.run_state.progress.invalid_in_a_row + 1 == guards.invalid_response_limit
        if guards.fallback_code and last_chance and not actions.cells and actions.final is None:
            return Actions((Cell(guards.fallback_code),))
        return actions

    def _observation(
        self, reply: Reply, results: tuple[CellResult, ...], notes: tuple[str, ...]
    ) -> str:
        if not results:
            return "\n".join(notes)
        return observation(
            results,
            output_chars=self.config.limits.output_chars,
            steps_left=self.config.limits.max_steps - self.scope.step,
            notes=notes,
            left=budget_worth_showing(self.scope.budget.left(), self.config.limits),
            fits=partial(self.history.has_room_for, reply),
        )

    async def _try_map_reduce(self, reason: str) -> Ending:
        """Let map/reduce answer, without model-written code, because the model can't."""
        from rlm.engine.mapreduce import map_reduce  # Imported late: few runs get here.

        calls = self.services.calls
        try:
            answer = await map_reduce(calls, self.run_state.task, self.scope, self.config)
        except ModelError as error:
            if self.run_state.limit_reached(error):
                raise
            detail = f"{reason}; map/reduce failed: {error}"
            return await give_up(self.run_state, self.final_call, "error", detail)
        submission = None if answer is None else Submission(answer, "mapreduce")
        if submission is not None and await self.run_state.objection(submission) is None:
            return Ending("answer", "asked", submission)
        return await give_up(self.run_state, self.final_call, "error", reason, "stuck")

    async def _end_if_failing(self) -> Ending | None:
        """End the run if too many cells failed, or too many replies did nothing, in a row."""
        failing = self.run_state.progress.failing(self.config.guards, self.config.limits.max_errors)
        if failing is None:
            return None
        return await give_up(self.run_state, self.final_call, "error", *failing)
