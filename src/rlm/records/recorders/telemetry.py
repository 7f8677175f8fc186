"""A run as OpenTelemetry spans and metrics: `RLM(model, recorders=[TelemetryRecorder()])`.

There is a span for each run, step, model request, cell, tool and child run, with the times of the
events. Needs the extra `otel`; the program's own provider decides where spans go.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from typing import Any

from rlm._util.distribution import install_command, own_version
from rlm.errors import ConfigError
from rlm.events import (
    BudgetChanged,
    CallEnded,
    CallRetried,
    CallStarted,
    CellEnded,
    CellOutput,
    CellStarted,
    Compacted,
    ContextHashed,
    Diverged,
    Event,
    ModelAsked,
    ModelReplied,
    RunEnded,
    RunStarted,
    SessionLost,
    SessionOpened,
    StepStarted,
    ToolCalled,
)
from rlm.records.recorders import _genai
from rlm.records.recorders._spans import Meters, OpenRun, Spans

__all__ = ["CAPTURE_VARIABLE", "TelemetryRecorder"]

log = logging.getLogger("rlm")

CAPTURE_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
CAPTURING = frozenset({"true", "1", "span_only", "span_and_event"})
MAX_OPEN_RUNS = 10_000
"""Runs that never end, as in the log of a killed process, must not pile up."""


class TelemetryRecorder:
    """Turns events, from any thread, into spans, and into metrics if there is a `meter_provider`.

    Prompts, replies, code and output are left out unless `capture_content` is true, or is None and
    OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT says so. Failures inside a telemetry provider
    are logged once and never reach the run.
    """

    def __init__(
        self,
        tracer_provider: Any = None,
        *,
        meter_provider: Any = None,
        capture_content: bool | None = None,
    ) -> None:
        trace, version = _api("opentelemetry.trace"), own_version()
        tracer = trace.get_tracer("rlm", version, tracer_provider)
        self._spans = Spans(trace, tracer)
        self._meters = None if meter_provider is None else Meters(meter_provider, version)
        self._captures = _captures(capture_content)
        self._runs: dict[str, OpenRun] = {}
        self._lock = threading.RLock()
        self._has_failed = False

    def record(self, event: Event) -> None:
        take = TAKERS.get(type(event))
        if take is None:
            return
        try:
            with self._lock:
                take(self, event)
        except Exception:  # the plugin boundary: span processors are the caller's code
            if not self._has_failed:
                self._has_failed = True
                log.exception("telemetry failed on %s; this is reported once", type(event).__name__)

    def close(self) -> None:
        """End the spans of runs in progress, for a program that is about to end."""
        with self._lock:
            for run_id in list(self._runs):
                self._drop(run_id, time.time())

    # -- runs and steps ----------------------------------------------------------------------

    def _run_started(self, event: RunStarted) -> None:
        self._drop(event.run_id, event.wall_time)
        while len(self._runs) >= MAX_OPEN_RUNS:
            self._drop(next(iter(self._runs)), event.wall_time)
        parent = None if event.parent_id is None else self._runs.get(event.parent_id)
        above = None if parent is None else parent.place_of_child(event.parent_call_id)
        about = self._with(_genai.run(event), _genai.run_content, event)
        name = f"{_genai.INVOKE_AGENT} {_genai.AGENT}"
        opened = self._spans.open(name, event.wall_time, about, above)
        self._runs[event.run_id] = OpenRun(opened, event.parent_id)
        if parent is not None:
            parent.children[event.run_id] = None

    def _context_hashed(self, event: ContextHashed) -> None:
        if (run := self._runs.get(event.run_id)) is not None:
            run.span.span.set_attributes(_genai.context_hash(event))

    def _run_ended(self, event: RunEnded) -> None:
        run = self._runs.get(event.run_id)
        if run is None:
            return
        about = self._with(_genai.ended(event), _genai.ended_content, event)
        failed = event.error is not None or event.stop_reason == "error"
        run.span.span.set_attributes(about)
        if failed:
            self._spans.fail(run.span, "run_failed", self._reason(event.error or event.detail))
        self._drop(event.run_id, event.wall_time, finished=True)

    def _drop(self, run_id: str, now: float, *, finished: bool = False) -> None:
        """End everything open in a run and below it, innermost first, and forget it.

        The stack ends every span, even when a span processor fails on some.
        """
        if (run := self._runs.pop(run_id, None)) is None:
            return
        parent = None if run.parent_id is None else self._runs.get(run.parent_id)
        if parent is not None:
            parent.children.pop(run_id, None)
        end = self._spans.close if finished else self._spans.abandon
        with ExitStack() as ends:
            ends.callback(end, run.span, now)
            if finished and run.step is not None:
                ends.callback(end, run.step, now)
                run.step = None
            ahead = [run]
            while ahead:
                this = ahead.pop()
                for opened in this.outermost_first():
                    ends.callback(self._spans.abandon, opened, now)
                for child in filter(None, [self._runs.pop(each, None) for each in this.children]):
                    ends.callback(self._spans.abandon, child.span, now)
                    ahead.append(child)

    def _step_started(self, event: StepStarted) -> None:
        self._step_ended(event)
        if (run := self._runs.get(event.run_id)) is not None:
            about = {"rlm.step": event.step}
            run.step = self._spans.open("rlm.step", event.wall_time, about, run.span)

    def _step_ended(self, event: StepStarted | BudgetChanged) -> None:
        run = self._runs.get(event.run_id)
        if run is not None and run.step is not None:
            opened, run.step = run.step, None
            self._spans.close(opened, event.wall_time)

    # -- requests ----------------------------------------------------------------------------

    def _on_asked(self, event: ModelAsked) -> None:
        if (run := self._runs.get(event.run_id)) is None:
            return
        if run.request is not None:
            opened, run.request = run.request, None
            self._spans.abandon(opened, event.wall_time)
        about = self._with(_genai.request_attributes(event), _genai.asked_content, event)
        run.request = self._spans.open_request(event.wall_time, about, run.innermost)

    def _on_replied(self, event: ModelReplied) -> None:
        run = self._runs.get(event.run_id)
        if run is not None and run.request is not None:
            opened, run.request = run.request, None
            about = self._with(_genai.answered(event), _genai.answered_content, event)
            self._spans.close(opened, event.wall_time, about, self._failure(event))
        self._measure(event)

    def _call_started(self, event: CallStarted) -> None:
        if (run := self._runs.get(event.run_id)) is None or run.is_full:
            return
        now, above = event.wall_time, run.innermost
        if (before := run.calls.pop(event.call_id, None)) is not None:
            self._spans.abandon(before, now)
        about = _genai.called(event)
        if event.kind == "llm":
            about = self._with(about, _genai.called_content, event)
            run.calls[event.call_id] = self._spans.open_request(now, about, above)
            return
        about = _genai.tool("rlm_query", event.call_id)
        if self._captures:
            about["gen_ai.tool.call.arguments"] = _genai.content(event.prompt)
        name = f"{_genai.EXECUTE_TOOL} rlm_query"
        run.calls[event.call_id] = self._spans.open(name, now, about, above)

    def _call_ended(self, event: CallEnded) -> None:
        run = self._runs.get(event.run_id)
        opened = None if run is None else run.calls.pop(event.call_id, None)
        if opened is not None and event.kind == "llm":
            about = self._with(_genai.answered(event), _genai.answered_content, event)
            self._spans.close(opened, event.wall_time, about, self._failure(event))
        elif opened is not None:
            about = {"rlm.stored": event.stored}
            if self._captures:
                about["gen_ai.tool.call.result"] = _genai.content(event.reply)
            self._spans.close(opened, event.wall_time, about, self._failure(event))
        if event.kind == "llm":
            self._measure(event)

    def _on_retried(self, event: CallRetried) -> None:
        if (run := self._runs.get(event.run_id)) is None:
            return
        opened = run.request if event.call_id is None else run.calls.get(event.call_id)
        facts = {"attempt": event.attempt, "wait_seconds": event.wait_seconds}
        self._spans.note(opened, "rlm.retry", event.wall_time, facts)

    def _failure(self, event: ModelReplied | CallEnded) -> tuple[str, str] | None:
        """Return the class of an error and its text, which for a child may quote its prompt."""
        if event.error is None:
            return None
        is_child = isinstance(event, CallEnded) and event.kind == "rlm"
        if is_child:
            return "child_failed", self._reason(event.error)
        return "request_failed", _genai.clean(event.error)

    def _measure(self, event: ModelReplied | CallEnded) -> None:
        if self._meters is not None and not event.stored:
            self._meters.add(event)

    # -- cells and tools ---------------------------------------------------------------------

    def _cell_started(self, event: CellStarted) -> None:
        if (run := self._runs.get(event.run_id)) is None:
            return
        if run.cell is not None:
            opened, run.cell = run.cell, None
            self._spans.abandon(opened, event.wall_time)
        about: dict[str, Any] = {"rlm.cell.number": event.cell, "rlm.step": event.step}
        if self._captures:
            about["rlm.cell.code"] = _genai.content(event.code)
        above = run.step or run.span
        run.cell = self._spans.open("execute_code", event.wall_time, about, above)

    def _cell_output(self, event: CellOutput) -> None:
        run = self._runs.get(event.run_id)
        if run is None or run.cell is None:
            return
        about: dict[str, Any] = {f"rlm.cell.{event.stream}_chars": event.written_chars}
        if self._captures:
            about[f"rlm.cell.{event.stream}"] = _genai.content(event.text)
        run.cell.span.set_attributes(about)

    def _cell_ended(self, event: CellEnded) -> None:
        run = self._runs.get(event.run_id)
        if run is None or run.cell is None:
            return
        opened, run.cell = run.cell, None
        failure = None
        if event.error_type is not None:
            failure = _genai.clean(event.error_type), self._reason(event.error_message or "")
        self._spans.close(opened, event.wall_time, _genai.cell_ended(event), failure)

    def _tool_called(self, event: ToolCalled) -> None:
        if (run := self._runs.get(event.run_id)) is None:
            return
        about = {**_genai.tool(event.name, event.call_id), "rlm.stored": event.stored}
        about = self._with(about, _genai.tool_content, event)
        name = f"{_genai.EXECUTE_TOOL} {_genai.clean(event.name)}"
        opened = self._spans.open(name, event.wall_time - event.seconds, about, run.innermost)
        failure = None if event.error is None else ("tool_failed", self._reason(event.error))
        self._spans.close(opened, event.wall_time, {}, failure)

    # -- things that happen within a span ----------------------------------------------------

    def _on_happening(self, event: SessionOpened | SessionLost | Compacted | Diverged) -> None:
        if (run := self._runs.get(event.run_id)) is not None:
            name, facts = _happening(event)
            self._spans.note(run.step or run.span, name, event.wall_time, facts)

    def _with(
        self, about: dict[str, Any], texts: Callable[[Any], dict[str, Any]], event: Event
    ) -> dict[str, Any]:
        """Return the attributes of an event, with its texts if they are wanted."""
        return {**about, **texts(event)} if self._captures else about

    def _reason(self, text: str) -> str:
        """Return what went wrong; include texts of people or models only if content is captured."""
        return _genai.clean(text) if self._captures else ""


def _happening(
    event: SessionOpened | SessionLost | Compacted | Diverged,
) -> tuple[str, dict[str, Any]]:
    if isinstance(event, SessionOpened):
        layers = [_genai.clean(layer) for layer in event.layers]
        return "rlm.session_opened", {"layers": layers, "seconds": event.seconds}
    if isinstance(event, SessionLost):
        return "rlm.session_lost", {"restored": event.restored}
    if isinstance(event, Diverged):
        return "rlm.diverged", {"step": event.step}
    facts = {"messages_before": event.messages_before, "messages_after": event.messages_after}
    return "rlm.compacted", facts


TAKERS: dict[type[Event], Callable[[TelemetryRecorder, Any], None]] = {
    BudgetChanged: TelemetryRecorder._step_ended,
    CallEnded: TelemetryRecorder._call_ended,
    CallRetried: TelemetryRecorder._on_retried,
    CallStarted: TelemetryRecorder._call_started,
    CellEnded: TelemetryRecorder._cell_ended,
    CellOutput: TelemetryRecorder._cell_output,
    CellStarted: TelemetryRecorder._cell_started,
    Compacted: TelemetryRecorder._on_happening,
    Diverged: TelemetryRecorder._on_happening,
    ModelAsked: TelemetryRecorder._on_asked,
    ModelReplied: TelemetryRecorder._on_replied,
    RunEnded: TelemetryRecorder._run_ended,
    RunStarted: TelemetryRecorder._run_started,
    ContextHashed: TelemetryRecorder._context_hashed,
    SessionLost: TelemetryRecorder._on_happening,
    SessionOpened: TelemetryRecorder._on_happening,
    StepStarted: TelemetryRecorder._step_started,
    ToolCalled: TelemetryRecorder._tool_called,
}


def _captures(wanted: bool | None) -> bool:
    if wanted is not None:
        return wanted
    return os.environ.get(CAPTURE_VARIABLE, "").strip().lower() in CAPTURING


def _api(module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"telemetry needs the package {error.name!r}: {install_command('otel')}"
        ) from error
