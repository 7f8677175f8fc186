"""The trajectory of a run in the reference's shape: its configuration, and a row per iteration.

A row is `{"iteration", "prompt", "response", "code_blocks", "final_answer", "iteration_time", …}`;
the calls of a block are in its result as `rlm_calls`, and a child run is in the call that started
it as `metadata`.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import msgspec

from rlm.events import (
    BudgetChanged,
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
    StepStarted,
)
from rlm.messages import Message, Usage, bare_name
from rlm.results import BY_ITSELF

__all__ = ["TrajectoryBuilder", "metadata_of", "trajectory"]

Row = dict[str, Any]
Values = Callable[[CellEnded], Row | None]
"""Returns the variables of a REPL after a cell, if they are known."""

MAX_DEPTH = 50
"""Child runs nested deeper are left out: a log may come from a stranger."""

FAILED_CHILD = "Error: Child RLM completion failed - "


def trajectory(events: Iterable[Event], values: Values | None = None) -> Row:
    """Return the configuration and the rows of the root run, of its last attempt."""
    builder = TrajectoryBuilder(values=values)
    for event in events:
        builder.add(event)
    return builder.whole()


class TrajectoryBuilder:
    """Builds the trajectory of one run tree, event by event.

    `on_iteration` is called with each row of the root run when it is complete. `values` returns
    what `locals` hold; without it, they are the types and sizes of variables.
    """

    def __init__(
        self,
        on_iteration: Callable[[Row], None] | None = None,
        values: Values | None = None,
    ) -> None:
        self._on_iteration = on_iteration
        self._values = values
        self._runs: dict[str, _Run] = {}
        self._children: dict[str, _Run] = {}  # that have ended, by id
        self._root: _Run | None = None

    @property
    def steps(self) -> int:
        """How many steps the root run has begun."""
        return 0 if self._root is None else self._root.steps

    def whole(self) -> Row:
        """Return what there is so far; a step in progress is its last row."""
        return {"run_metadata": {}, "iterations": []} if self._root is None else self._root.whole()

    def add(self, event: Event) -> None:
        """Add an event of the tree; those of other trees are ignored."""
        if isinstance(event, RunStarted):
            self._begin(event)
            return
        run = self._runs.get(event.run_id)
        if run is None:
            return
        if isinstance(event, CallEnded):
            run.end_call(event, self._children.pop(event.child_run_id or "", None))
        else:
            run.add(event)
        if isinstance(event, RunEnded):
            del self._runs[event.run_id]
            if run is not self._root and run.depth < MAX_DEPTH:
                self._children[event.run_id] = run

    def _begin(self, event: RunStarted) -> None:
        is_root = self._root is None or event.run_id == self._root.run_id
        if not is_root and event.parent_id not in self._runs:
            return
        depth = 0 if is_root else self._runs[event.parent_id or ""].depth + 1
        run = _Run(event, depth, self._on_iteration if is_root else None, self._values)
        self._runs[event.run_id] = run
        if is_root:
            self._root = run


class _Run:
    """The rows of one run."""

    def __init__(
        self,
        event: RunStarted,
        depth: int,
        on_iteration: Callable[[Row], None] | None,
        values: Values | None,
    ) -> None:
        self._values = values
        self.run_id = event.run_id
        self.depth = depth
        self.metadata = metadata_of(event)
        self.rows: list[Row] = []
        self.steps = 0
        self.usage: Usage | None = None
        self._on_iteration = on_iteration
        self._messages: list[Row] = []
        self._row: Row | None = None
        self._started = 0.0
        self._calls: dict[str, tuple[int, CallStarted]] = {}
        self._ended_calls: list[tuple[int, Row]] = []
        self._locals: Row = {}
        self._submitted: Row | None = None

    def whole(self) -> Row:
        open_rows = [] if self._row is None else [self._row]
        return {"run_metadata": self.metadata, "iterations": [*self.rows, *open_rows]}

    def add(self, event: Event) -> None:
        if isinstance(event, StepStarted):
            self._end_row(event)
            self.steps = event.step
            self._begin_row(event)
        elif isinstance(event, ModelAsked):
            self._asked(event)
        elif isinstance(event, ModelReplied):
            self._replied(event)
        elif isinstance(event, CellStarted | CellOutput | CellEnded):
            self._cell(event)
        elif isinstance(event, CallStarted):
            self._calls[event.call_id] = len(self._calls), event
        elif isinstance(event, BudgetChanged):
            self._end_row(event)
        elif isinstance(event, RunEnded):
            self._end(event)

    # -- rows --------------------------------------------------------------------------------

    def _begin_row(self, event: Event) -> None:
        self._started = event.monotonic_time
        self._row = {
            "type": "iteration",
            "iteration": len(self.rows) + 1,
            "timestamp": _stamp(event.wall_time),
            "prompt": [],
            "response": "",
            "code_blocks": [],
            "final_answer": None,
            "iteration_time": None,
        }

    def _end_row(self, event: Event) -> None:
        row, self._row = self._row, None
        if row is None:
            return
        row["timestamp"] = _stamp(event.wall_time)
        row["iteration_time"] = max(0.0, event.monotonic_time - self._started)
        self.rows.append(row)
        if self._on_iteration is not None:
            self._on_iteration(row)

    def _asked(self, event: ModelAsked) -> None:
        known = max(0, event.message_count - len(event.new_messages))
        self._messages = [*self._messages[:known], *map(_message, event.new_messages)]
        if event.purpose == "compaction":
            return
        if event.purpose in {"final", "direct"} or self._row is None:
            self._end_row(event)
            self._begin_row(event)
        if self._row is not None:
            self._row["prompt"] = list(self._messages)

    def _replied(self, event: ModelReplied) -> None:
        if event.error is not None or event.purpose == "compaction":
            return
        self._messages.append({"role": "assistant", "content": event.text})
        if self._row is not None:
            self._row["response"] = event.text

    def _end(self, event: RunEnded) -> None:
        self.usage = event.usage
        if event.stop_reason in BY_ITSELF and self._submitted is not None:
            self._submitted["final_answer"] = event.answer
        if self._row is not None:
            self._row["final_answer"] = event.answer
        self._end_row(event)

    # -- blocks and their calls --------------------------------------------------------------

    def _cell(self, event: CellStarted | CellOutput | CellEnded) -> None:
        if self._row is None:
            return
        blocks = self._row["code_blocks"]
        if isinstance(event, CellStarted):
            result: Row = {"stdout": "", "stderr": "", "locals": {}, "execution_time": None}
            blocks.append(
                {"code": event.code, "result": {**result, "rlm_calls": [], "final_answer": None}}
            )
        elif blocks and isinstance(event, CellOutput):
            blocks[-1]["result"][event.stream] = event.text
        elif blocks and isinstance(event, CellEnded):
            self._end_cell(event, blocks[-1]["result"])

    def _end_cell(self, event: CellEnded, result: Row) -> None:
        result["execution_time"] = event.seconds
        if event.error_type:
            result["stderr"] += f"\n{event.error_type}: {event.error_message}"
        self._locals = {**self._locals, **event.new_variables, **event.changed_variables}
        known = None if self._values is None else self._values(event)
        result["locals"] = self._locals if known is None else known
        in_order = sorted(self._ended_calls, key=lambda each: each[0])
        result["rlm_calls"] = [call for _, call in in_order]
        self._ended_calls, self._calls = [], {}
        self._submitted = result if event.submitted else None

    def end_call(self, event: CallEnded, child: "_Run | None") -> None:
        """Add a call; as in the reference, a plain call that failed is left out."""
        place, started = self._calls.get(event.call_id, (0, None))
        if self._row is None or (event.error is not None and event.kind == "llm"):
            return
        usage = child.usage if child is not None and event.usage is None else event.usage
        model = bare_name(event.model)
        call = {
            "root_model": model,
            "prompt": started.prompt if started else "",
            "response": event.reply if event.error is None else f"{FAILED_CHILD}{event.error}",
            "usage_summary": _usage(model, usage),
            "execution_time": event.seconds,
        }
        if child is not None:
            call["metadata"] = child.whole()
        self._ended_calls.append((place, call))


def metadata_of(event: RunStarted) -> Row:
    """Return how a run is configured, under our names and under those of the reference."""
    config = event.settings.get("config")
    config = config if isinstance(config, dict) else {}
    limits = config.get("limits")
    limits = limits if isinstance(limits, dict) else {}
    name = bare_name(event.model)
    ours: Row = msgspec.to_builtins(event)
    return {
        **ours,
        "root_model": name,
        "max_depth": limits.get("max_depth") or event.depth + 1,
        "max_iterations": limits.get("max_steps"),
        "backend": event.model.partition("/")[0],
        "backend_kwargs": {"model_name": name},
        "environment_type": event.environment,
        "environment_kwargs": {},
        "other_backends": None,
    }


def _message(message: Message) -> Row:
    return {"role": message.role, "content": message.content}


def _stamp(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds).isoformat()
    except (ValueError, OverflowError, OSError):
        return ""


def _usage(model: str, usage: Usage | None) -> Row:
    if usage is None:
        return {"model_usage_summaries": {}}
    cost = {} if usage.cost_usd is None else {"total_cost": usage.cost_usd}
    summary = {
        "total_calls": usage.requests,
        "total_input_tokens": usage.input_tokens,
        "total_output_tokens": usage.output_tokens,
        **cost,
    }
    return {"model_usage_summaries": {model: summary}, **cost}
