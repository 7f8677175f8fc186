"""The log that the reference engine would have written, for its viewer and tools.

Its lines contain whole child runs, inside the calls that started them; they are written in pieces.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from rlm.events import (
    CallEnded,
    CallStarted,
    CellEnded,
    CellOutput,
    CellStarted,
    Event,
    ModelAsked,
    ModelReplied,
    RunEnded,
    RunStarted,
)
from rlm.messages import Usage
from rlm.records.trajectories.exports._replies import Conversation
from rlm.records.trajectories.exports._texts import json_of, text_of
from rlm.records.trajectories.index import RunOutline
from rlm.records.trajectories.read import Trajectory
from rlm.records.trajectories.values import as_count, as_dict

__all__ = ["reference_jsonl"]

MAX_DEPTH = 50


def reference_jsonl(trajectory: Trajectory, runs: list[RunOutline]) -> Iterator[str]:
    """Yield a line of metadata and a line per iteration for every root run."""
    known = {run.run_id: run for run in runs}
    unwritten = dict(known)
    for run in runs:
        if run.parent_id not in known:
            about = _metadata(trajectory, run)
            moment = {"type": "metadata", "timestamp": _stamp(run.started)}
            yield json_of({**moment, **about})
            yield from _RunWriter(trajectory, run, unwritten, before="\n", between="\n").pieces()
            yield "\n"


def _stamp(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC).isoformat()


def _metadata(trajectory: Trajectory, run: RunOutline) -> dict[str, Any]:
    """Return how the run was configured, as far as the log says."""
    started: RunStarted | None = None
    for event in trajectory.step_events(run.run_id, 0):
        if isinstance(event, RunStarted):
            started = event
    config = as_dict(started.settings.get("config")) if started else {}
    limits = as_dict(config.get("limits"))
    backend, _, name = run.model.rpartition("/")
    return {
        "root_model": name or run.model,
        "max_depth": as_count(limits.get("max_depth")) or run.depth + 1,
        "max_iterations": as_count(limits.get("max_steps")) or run.steps,
        "backend": backend or "openai",
        "backend_kwargs": {"model_name": name or run.model},
        "environment_type": started.environment if started else "local",
        "environment_kwargs": {},
        "other_backends": None,
    }


class _RunWriter:
    """One run's iterations as text. A step's calls are written as they come.

    `unwritten` holds the runs that may still be put inside a call; each is put there once.
    """

    def __init__(
        self,
        trajectory: Trajectory,
        run: RunOutline,
        unwritten: dict[str, RunOutline],
        *,
        before: str,
        between: str,
        depth: int = 0,
    ) -> None:
        self._trajectory = trajectory
        self._run = run
        self._unwritten = unwritten
        self._separator, self._between = before, between
        self._depth = depth
        self._conversation = Conversation()
        self._iterations = 0
        self._prompts: dict[str, CallStarted] = {}
        self._locals: dict[str, str] = {}
        unwritten.pop(run.run_id, None)
        self._begin_step()

    def _begin_step(self) -> None:
        self._asked: list[dict[str, str]] = []
        self._response: str | None = None
        self._final: str | None = None
        self._answer: str | None = None
        self._is_open = False
        self._cells = 0
        self._in_cell = False
        self._calls = 0
        self._output = {"stdout": "", "stderr": ""}
        self._times = (0.0, 0.0)

    def pieces(self) -> Iterator[str]:
        for step in self._trajectory.steps(self._run.run_id):
            self._begin_step()
            for event in self._trajectory.step_events(self._run.run_id, step):
                self._times = (self._times[0] or event.wall_time, event.wall_time)
                yield from self._lines_of_event(event)
            yield from self._end_step()

    def _end_step(self) -> Iterator[str]:
        """Write a step; an answer requested at the end is a separate iteration."""
        if not self._is_open and self._response is not None:
            yield from self._opened(self._response)
        if self._is_open:
            yield from self._closed(None if self._final is not None else self._answer)
        if self._final is not None:
            yield from self._opened(self._final)
            yield from self._closed(self._answer, is_timed=False)

    def _opened(self, response: str | None) -> Iterator[str]:
        self._iterations += 1
        self._is_open = True
        self._cells = 0
        head = {
            "type": "iteration",
            "iteration": self._iterations,
            "timestamp": _stamp(self._times[1]),
            "prompt": self._asked,
            "response": response or "",
        }
        yield self._separator + json_of(head)[:-1] + ',"code_blocks":['
        self._separator = self._between

    def _closed(self, answer: str | None, *, is_timed: bool = True) -> Iterator[str]:
        if self._in_cell:
            yield from self._end_cell(None)
        seconds = max(0.0, self._times[1] - self._times[0]) if is_timed else None
        end = {"final_answer": answer, "iteration_time": seconds}
        yield "]," + json_of(end)[1:]
        self._is_open = False

    def _lines_of_event(self, event: Event) -> Iterator[str]:
        if isinstance(event, ModelAsked):
            self._conversation.ask(event)
            messages = self._conversation.messages
            self._asked = [{"role": m.role, "content": text_of(m.content)} for m in messages]
        elif isinstance(event, ModelReplied):
            self._replied(event)
        elif isinstance(event, CellStarted):
            yield from self._begin_cell(event.code)
        elif isinstance(event, CellOutput):
            self._output[event.stream] += event.text
        elif isinstance(event, CellEnded):
            yield from self._end_cell(event)
        elif isinstance(event, CallStarted):
            self._prompts[event.call_id] = event
        elif isinstance(event, CallEnded):
            yield from self._call(event)
        elif isinstance(event, RunEnded):
            self._answer = event.answer

    def _replied(self, event: ModelReplied) -> None:
        self._conversation.reply(event)
        if event.error is None and event.purpose == "final":
            self._final = event.text
        elif event.error is None and event.purpose != "compaction":
            self._response = event.text

    def _begin_cell(self, code: str) -> Iterator[str]:
        if not self._is_open:
            yield from self._opened(self._response)
        if self._in_cell:
            yield from self._end_cell(None)
        yield ("," if self._cells else "") + f'{{"code":{json_of(code)},"result":{{"rlm_calls":['
        self._cells += 1
        self._calls = 0
        self._in_cell = True

    def _end_cell(self, event: CellEnded | None) -> Iterator[str]:
        if not self._in_cell:
            return
        if event is not None:
            self._locals |= {**event.new_variables, **event.changed_variables}
        stderr = self._output["stderr"] + ((event.traceback or "") if event else "")
        submitted = event is not None and event.submitted
        result = {
            "stdout": self._output["stdout"],
            "stderr": stderr,
            "locals": self._locals,
            "execution_time": event.seconds if event else 0.0,
            "final_answer": (self._run.answer or "") if submitted else None,
        }
        yield "]," + json_of(result)[1:] + "}"
        self._output = {"stdout": "", "stderr": ""}
        self._in_cell = False

    def _call(self, event: CallEnded) -> Iterator[str]:
        if not self._in_cell:  # Map/reduce calls without any cell.
            yield from self._begin_cell("")
        started = self._prompts.pop(event.call_id, None)
        call: dict[str, Any] = {
            "root_model": event.model,
            "prompt": started.prompt if started else "",
            "response": event.reply,
            "usage_summary": _usage(event.model, self._usage_of(event)),
            "execution_time": event.seconds,
        }
        if event.error is not None:
            call["error"] = event.error
        yield ("," if self._calls else "") + json_of(call)[:-1]
        self._calls += 1
        child = self._unwritten.get(event.child_run_id or "")
        if child is not None and self._depth < MAX_DEPTH:
            yield from self._child(child)
        yield "}"

    def _usage_of(self, event: CallEnded) -> Usage | None:
        """Return what a child run used, which the reference engine states with the call."""
        if event.usage is None and event.child_run_id in self._unwritten:
            return self._trajectory.usage_of(event.child_run_id)
        return event.usage

    def _child(self, child: RunOutline) -> Iterator[str]:
        about = json_of(_metadata(self._trajectory, child))
        yield f',"metadata":{{"run_metadata":{about},"iterations":['
        writer = _RunWriter(
            self._trajectory,
            child,
            self._unwritten,
            before="",
            between=",",
            depth=self._depth + 1,
        )
        yield from writer.pieces()
        yield "]}"


def _usage(model: str, usage: Usage | None) -> dict[str, Any]:
    if usage is None:
        return {"model_usage_summaries": {}}
    summary: dict[str, Any] = {
        "total_calls": usage.requests,
        "total_input_tokens": usage.input_tokens,
        "total_output_tokens": usage.output_tokens,
    }
    cost = {} if usage.cost_usd is None else {"total_cost": usage.cost_usd}
    return {"model_usage_summaries": {model: {**summary, **cost}}, **cost}
