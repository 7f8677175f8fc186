"""Convert the events of recursivelm to a trajectory: what models said and what code did."""

from collections.abc import Sequence

from rlm.events import (
    CallEnded,
    CallStarted,
    CellOutput,
    CellStarted,
    Event,
    ModelAsked,
    ModelReplied,
    RunEnded,
)
from rlm.messages import Message, Usage

from elizaos_plugin_rlm.results import RLMCost, RLMTrajectory, RLMTrajectoryStep

__all__ = ["trajectory_of"]


def trajectory_of(events: Sequence[Event]) -> RLMTrajectory:
    """Return the trajectory of a run and its children; the run may still be active."""
    builder = _Builder(events[0])
    for event in events:
        builder.add(event)
    builder.trajectory.events = tuple(events)
    return builder.trajectory


class _Builder:
    """Builds a trajectory in one pass; steps are looked up by run and number."""

    def __init__(self, first: Event) -> None:
        self._root = first.run_id
        self._asked: dict[str, str] = {}
        self._steps: dict[tuple[str, int], RLMTrajectoryStep] = {}
        self._root_usage = self._sub_usage = Usage()
        started_ms = int(first.wall_time * 1000)
        self.trajectory = RLMTrajectory(
            trajectory_id=first.run_id, start_time_ms=started_ms, end_time_ms=started_ms
        )

    def add(self, event: Event) -> None:
        trajectory = self.trajectory
        trajectory.end_time_ms = max(trajectory.end_time_ms, int(event.wall_time * 1000))
        trajectory.max_depth_reached = max(trajectory.max_depth_reached, event.depth)
        match event:
            case ModelAsked():
                self._asked[event.run_id] = _last_text(event.new_messages)
            case ModelReplied():
                self._replied(event)
            case CellStarted() | CellOutput():
                self._cell(event)
            case CallStarted():
                self._asked[event.call_id] = event.prompt
            case CallEnded():
                self._called(event)
            case RunEnded() if event.run_id == self._root:
                trajectory.final_response = event.answer or ""
                trajectory.stop_reason = event.stop_reason
                trajectory.total_iterations = event.steps
            case _:
                pass

    def _replied(self, event: ModelReplied) -> None:
        prompt = self._asked.pop(event.run_id, "")
        step = self._new(event, event.model, prompt, event.text, event.usage, event.seconds)
        step.error = event.error
        self._steps[event.run_id, event.step] = step
        self._count(event.usage, is_root=event.run_id == self._root)

    def _called(self, event: CallEnded) -> None:
        """Add a call from a cell; the usage of a child run comes from its own events."""
        prompt = self._asked.pop(event.call_id, "")
        step = self._new(event, event.model, prompt, event.reply, event.usage, event.seconds)
        step.error, step.is_subcall = event.error, True
        self.trajectory.subcall_count += 1
        self._count(event.usage, is_root=False)

    def _cell(self, event: CellStarted | CellOutput) -> None:
        step = self._steps.get((event.run_id, event.step))
        if step is None:
            return
        if isinstance(event, CellStarted):
            step.code_executed = "\n\n".join(filter(None, [step.code_executed, event.code]))
        else:
            step.repl_output += event.text

    def _new(
        self,
        event: ModelReplied | CallEnded,
        model: str,
        prompt: str,
        response: str,
        usage: Usage | None,
        seconds: float,
    ) -> RLMTrajectoryStep:
        usage = usage or Usage()
        step = RLMTrajectoryStep(
            step_number=len(self.trajectory.steps) + 1,
            timestamp_ms=int(event.wall_time * 1000),
            run_id=event.run_id,
            depth=event.depth,
            model=model,
            prompt=prompt,
            response=response,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost_usd=usage.cost_usd,
            duration_ms=int(seconds * 1000),
        )
        self.trajectory.steps.append(step)
        return step

    def _count(self, usage: Usage | None, *, is_root: bool) -> None:
        if is_root:
            self._root_usage += usage or Usage()
        else:
            self._sub_usage += usage or Usage()
        total = self._root_usage + self._sub_usage
        self.trajectory.cost = RLMCost(
            root_input_tokens=self._root_usage.input_tokens,
            root_output_tokens=self._root_usage.output_tokens,
            subcall_input_tokens=self._sub_usage.input_tokens,
            subcall_output_tokens=self._sub_usage.output_tokens,
            total_cost_usd=total.cost_usd,
            requests=total.requests,
        )


def _last_text(messages: Sequence[Message]) -> str:
    if not messages:
        return ""
    content = messages[-1].content
    if isinstance(content, str):
        return content
    return "\n".join(str(part["text"]) for part in content if "text" in part)
