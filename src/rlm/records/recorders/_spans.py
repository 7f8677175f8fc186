"""OpenTelemetry spans and metrics of a run."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rlm.events import CallEnded, ModelReplied
from rlm.records.recorders import _genai

TOKENS = "gen_ai.client.token.usage"
SECONDS = "gen_ai.client.operation.duration"
TOKEN_BUCKETS = [4**power for power in range(14)]
SECOND_BUCKETS = [0.01 * 2**power for power in range(14)]
"""The boundaries that the conventions name: 1 to 67,108,864 tokens, 0.01 to 81.92 seconds."""


class Meters:
    """Metrics that count requests that were really sent, not stored replies."""

    def __init__(self, provider: Any, version: str | None) -> None:
        meter = provider.get_meter("rlm", version)
        self._tokens = meter.create_histogram(
            TOKENS,
            unit="{token}",
            description="Tokens of requests to models.",
            explicit_bucket_boundaries_advisory=TOKEN_BUCKETS,
        )
        self._seconds = meter.create_histogram(
            SECONDS,
            unit="s",
            description="Seconds that requests to models took, waits and retries included.",
            explicit_bucket_boundaries_advisory=SECOND_BUCKETS,
        )

    def add(self, event: ModelReplied | CallEnded) -> None:
        about = _genai.request(event.model)
        failed = {} if event.error is None else {_genai.ERROR_TYPE: "request_failed"}
        self._seconds.record(event.seconds, {**about, **failed})
        if event.usage is None:
            return
        for kind, number in (
            ("input", event.usage.input_tokens),
            ("output", event.usage.output_tokens),
        ):
            self._tokens.record(number, {**about, "gen_ai.token.type": kind})


UNFINISHED = "unfinished"
MAX_OPEN_CALLS = 10_000
"""The most open calls of one run; events from a file may hold any number."""


@dataclass(slots=True)
class OpenSpan:
    """A span, and the context that makes others its children; requests have none."""

    span: Any
    context: Any = None


@dataclass(slots=True)
class OpenRun:
    """What is open in a run: at most one step, one request of its own and one cell; many calls."""

    span: OpenSpan
    parent_id: str | None
    step: OpenSpan | None = None
    request: OpenSpan | None = None
    cell: OpenSpan | None = None
    calls: dict[str, OpenSpan] = field(default_factory=dict)
    children: dict[str, None] = field(default_factory=dict)

    @property
    def innermost(self) -> OpenSpan:
        return self.cell or self.step or self.span

    @property
    def is_full(self) -> bool:
        return len(self.calls) >= MAX_OPEN_CALLS

    def place_of_child(self, call_id: str | None) -> OpenSpan:
        """Return the span of the call that started a child run, which contains it."""
        call = None if call_id is None else self.calls.get(call_id)
        return self.innermost if call is None or call.context is None else call

    def outermost_first(self) -> Iterator[OpenSpan]:
        """Yield all open spans except the run's own."""
        yield from (each for each in (self.step, self.cell, self.request) if each is not None)
        yield from self.calls.values()


class Spans:
    """Opens and ends spans; times are in seconds since 1970."""

    def __init__(self, trace: Any, tracer: Any) -> None:
        self._trace = trace
        self._tracer = tracer

    def open(
        self, name: str, now: float, about: dict[str, Any], above: OpenSpan | None
    ) -> OpenSpan:
        """Open the span of a run; without `above`, inside the caller's current span."""
        span = self._start(name, now, about, above, self._trace.SpanKind.INTERNAL)
        return OpenSpan(span, self._trace.set_span_in_context(span))

    def open_request(self, now: float, about: dict[str, Any], above: OpenSpan) -> OpenSpan:
        name = f"{_genai.CHAT} {about['gen_ai.request.model']}"
        return OpenSpan(self._start(name, now, about, above, self._trace.SpanKind.CLIENT))

    def _start(
        self, name: str, now: float, about: dict[str, Any], above: OpenSpan | None, kind: Any
    ) -> Any:
        return self._tracer.start_span(
            name,
            context=None if above is None else above.context,
            kind=kind,
            attributes=about,
            start_time=_nanoseconds(now),
        )

    def close(
        self,
        opened: OpenSpan,
        now: float,
        about: dict[str, Any] | None = None,
        failure: tuple[str, str] | None = None,
    ) -> None:
        try:
            if about:
                opened.span.set_attributes(about)
            if failure is not None:
                self.fail(opened, *failure)
        finally:
            opened.span.end(_nanoseconds(now))

    def fail(self, opened: OpenSpan, error_type: str, reason: str) -> None:
        opened.span.set_attribute(_genai.ERROR_TYPE, error_type)
        opened.span.set_status(self._trace.StatusCode.ERROR, reason or error_type)

    def abandon(self, opened: OpenSpan, now: float) -> None:
        """End a span that will not be finished."""
        self.close(opened, now, None, (UNFINISHED, "not finished when its run ended"))

    def note(self, opened: OpenSpan | None, name: str, now: float, facts: dict[str, Any]) -> None:
        if opened is not None:
            opened.span.add_event(name, facts, _nanoseconds(now))


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1_000_000_000)
