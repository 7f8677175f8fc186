"""The real SDK with its in-memory exporters, and one made-up run with one of everything."""

from typing import Any

import pytest

from rlm.events import (
    BudgetChanged,
    CallEnded,
    CallRetried,
    CallStarted,
    CellEnded,
    CellStarted,
    Compacted,
    Diverged,
    Event,
    ModelAsked,
    ModelReplied,
    SessionLost,
    SessionOpened,
    StepStarted,
    ToolCalled,
)
from rlm.messages import Message, Usage
from rlm.records.recorders.telemetry import TelemetryRecorder
from tests.cli.test_progress import ended, started

WHY = "the extra otel is not installed; see make test-adapters"


def sdk(module: str) -> Any:
    return pytest.importorskip(f"opentelemetry.{module}", reason=WHY)


TracerProvider = sdk("sdk.trace").TracerProvider
SimpleSpanProcessor = sdk("sdk.trace.export").SimpleSpanProcessor
InMemorySpanExporter = sdk("sdk.trace.export.in_memory_span_exporter").InMemorySpanExporter
MeterProvider = sdk("sdk.metrics").MeterProvider
InMemoryMetricReader = sdk("sdk.metrics.export").InMemoryMetricReader
SpanKind, StatusCode = sdk("trace").SpanKind, sdk("trace").StatusCode

USED = Usage(900, 40, cached_tokens=500, reasoning_tokens=8, cost_usd=0.02, requests=1)
CALL: dict[str, Any] = {"kind": "llm", "model": "openai/gpt-5-mini"}


class Spies:
    """A provider, a recorder on it, and the spans that ended."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.recorder = TelemetryRecorder(self.provider, **options)

    def feed(self, *events: Event) -> list[Any]:
        for event in events:
            self.recorder.record(event)
        return self.spans

    @property
    def spans(self) -> list[Any]:
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]

    def parents(self) -> set[tuple[str, str]]:
        """Every (name, name of its parent) there is."""
        names = {span.context.span_id: span.name for span in self.spans}
        return {
            (span.name, names[span.parent.span_id] if span.parent else "") for span in self.spans
        }


def asked(**facts: Any) -> ModelAsked:
    given: dict[str, Any] = {
        "run_id": "root",
        "step": 1,
        "purpose": "step",
        "model": "anthropic/claude-sonnet-5-5",
        "new_messages": (Message("system", "be brief"), Message("user", "SECRET question")),
        "message_count": 2,
        "max_output_tokens": 4_096,
    }
    return ModelAsked(**{**given, **facts})


def replied(**facts: Any) -> ModelReplied:
    given: dict[str, Any] = {
        "run_id": "root",
        "step": 1,
        "purpose": "step",
        "model": "anthropic/claude-sonnet-5-5",
        "text": "SECRET reply",
        "usage": USED,
    }
    return ModelReplied(**{**given, **facts})


def a_run() -> list[Event]:
    """One of everything, in order."""
    return [
        started("root", query="SECRET query"),
        SessionOpened(run_id="root", environment="local", layers=("a", "b"), seconds=0.1),
        StepStarted(run_id="root", step=1),
        asked(),
        CallRetried(run_id="root", model="a/b", attempt=1, wait_seconds=0.5, error="busy"),
        replied(),
        CellStarted(run_id="root", step=1, cell=1, code="SECRET code"),
        CallStarted(run_id="root", step=1, call_id="root.1", prompt="SECRET prompt", **CALL),
        CallEnded(run_id="root", step=1, call_id="root.1", reply="SECRET", usage=USED, **CALL),
        ToolCalled(
            run_id="root",
            call_id="root.2",
            name="look_up",
            arguments={"key": "SECRET"},
            result="SECRET",
            seconds=0.25,
        ),
        CellEnded(run_id="root", cell=1, seconds=0.5, calls=2),
        SessionLost(run_id="root", reason="SECRET"),
        Diverged(run_id="root", step=1, recorded="SECRET", now="SECRET"),
        Compacted(
            run_id="root", messages_before=9, messages_after=2, chars_before=9, chars_after=2
        ),
        BudgetChanged(run_id="root", calls=1, tokens=940, cost_usd=0.02),
        ended("root", answer="SECRET answer"),
    ]
