"""The steps of a root run as a trajectory of Harbor (ATIF), for `harbor view`."""

from datetime import UTC, datetime

from harbor.models.trajectories import (
    Agent,
    FinalMetrics,
    Metrics,
    Observation,
    ObservationResult,
    Step,
    ToolCall,
    Trajectory,
)

from recursivelm_harbor.accounting import clean, used_by
from rlm.events import CellEnded, CellOutput, CellStarted, Event, ModelReplied
from rlm.messages import Usage
from rlm.results.cards import last_line, words_of

__all__ = ["TrajectoryRecorder"]

MAX_CHARS = 100_000


class TrajectoryRecorder:
    """A recorder that collects the replies and cells of the root run."""

    def __init__(self, instruction: str, agent: Agent) -> None:
        self._agent = agent
        self._steps = [Step(step_id=1, source="user", message=clean(instruction))]
        self._texts: dict[str, str] = {}
        self._total = Usage()

    def record(self, event: Event) -> None:
        self._total += used_by(event) or Usage()
        if event.depth:
            return
        if isinstance(event, ModelReplied) and not event.error:
            self._replied(event)
        elif isinstance(event, CellStarted):
            self._started(event)
        elif isinstance(event, CellOutput):
            self._add(_id(event), event.text)
        elif isinstance(event, CellEnded):
            self._add(_id(event), last_line(event))

    def trajectory(self) -> Trajectory:
        """Return what was recorded so far."""
        for step in self._steps:
            if step.tool_calls:
                results = [
                    ObservationResult(
                        source_call_id=call.tool_call_id,
                        content=self._texts.get(call.tool_call_id, "")[:MAX_CHARS],
                    )
                    for call in step.tool_calls
                ]
                step.observation = Observation(results=results)
        return Trajectory(
            agent=self._agent,
            steps=self._steps,
            final_metrics=FinalMetrics(
                total_prompt_tokens=self._total.input_tokens,
                total_completion_tokens=self._total.output_tokens,
                total_cached_tokens=self._total.cached_tokens,
                total_cost_usd=self._total.cost_usd,
                total_steps=len(self._steps),
            ),
        )

    def _replied(self, event: ModelReplied) -> None:
        used = event.usage or Usage()
        self._steps.append(
            Step(
                step_id=len(self._steps) + 1,
                timestamp=datetime.fromtimestamp(event.wall_time, UTC).isoformat(),
                source="agent",
                model_name=event.model,
                message=clean(words_of(event.text, limit=MAX_CHARS)),
                reasoning_content=clean(event.reasoning) or None,
                metrics=Metrics(
                    prompt_tokens=used.input_tokens,
                    completion_tokens=used.output_tokens,
                    cached_tokens=used.cached_tokens,
                    cost_usd=used.cost_usd,
                ),
            )
        )

    def _started(self, event: CellStarted) -> None:
        step = self._steps[-1]
        if step.source == "agent":
            call = ToolCall(
                tool_call_id=_id(event),
                function_name="python",
                arguments={"code": clean(event.code)},
            )
            step.tool_calls = [*(step.tool_calls or []), call]

    def _add(self, call_id: str, text: str) -> None:
        self._texts[call_id] = self._texts.get(call_id, "") + clean(text)


def _id(event: CellStarted | CellOutput | CellEnded) -> str:
    return f"{event.run_id}-{event.step}-{event.cell}"
