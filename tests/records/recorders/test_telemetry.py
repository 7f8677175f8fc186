"""What spans and metrics say of a run, and what they do not say unless they are asked to."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from rlm.events import CallEnded, CallStarted, CellEnded, CellStarted, ToolCalled
from rlm.messages import Usage
from rlm.records.recorders import _genai, _spans, telemetry
from tests.cli.test_progress import ended, started
from tests.records.recorders.telemetry_spies import (
    InMemoryMetricReader,
    MeterProvider,
    SpanKind,
    Spies,
    StatusCode,
    a_run,
    asked,
    replied,
    sdk,
)

# -- what spans say -------------------------------------------------------------------------------


def test_spans_have_names_kinds_and_parents() -> None:
    spies = Spies()
    spies.feed(*a_run())
    assert spies.parents() == {
        ("invoke_agent rlm", ""),
        ("rlm.step", "invoke_agent rlm"),
        ("chat claude-sonnet-5-5", "rlm.step"),
        ("execute_code", "rlm.step"),
        ("chat gpt-5-mini", "execute_code"),
        ("execute_tool look_up", "execute_code"),
    }
    clients = {span.name for span in spies.spans if span.kind is SpanKind.CLIENT}
    assert clients == {"chat claude-sonnet-5-5", "chat gpt-5-mini"}
    assert {span.status.status_code for span in spies.spans} == {StatusCode.UNSET}


def test_a_request_span_has_the_attributes_of_the_conventions() -> None:
    spies = Spies()
    spies.feed(*a_run())
    attributes = dict(spies.named("chat claude-sonnet-5-5")[0].attributes)
    assert attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "claude-sonnet-5-5",
        "gen_ai.request.max_tokens": 4_096,
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 900,
        "gen_ai.usage.output_tokens": 40,
        "gen_ai.usage.cache_read.input_tokens": 500,
        "gen_ai.usage.reasoning.output_tokens": 8,
        "rlm.cost_usd": 0.02,
        "rlm.request.purpose": "step",
        "rlm.request.message_count": 2,
        "rlm.retries": 0,
        "rlm.stored": False,
        "rlm.step": 1,
    }
    (retry,) = spies.named("chat claude-sonnet-5-5")[0].events
    assert (retry.name, dict(retry.attributes)) == (
        "rlm.retry",
        {"attempt": 1, "wait_seconds": 0.5},
    )


def test_a_run_span_tells_how_the_run_ended_and_what_happened() -> None:
    spies = Spies()
    spies.feed(*a_run())
    (root,) = spies.named("invoke_agent rlm")
    assert root.attributes["gen_ai.agent.name"] == "rlm"
    assert root.attributes["rlm.run.id"] == "root"
    assert root.attributes["rlm.run.stop_reason"] == "answer"
    assert root.attributes["gen_ai.usage.input_tokens"] == 1_000
    assert [event.name for event in root.events] == ["rlm.session_opened"]
    (step,) = spies.named("rlm.step")
    happened = [event.name for event in step.events]
    assert happened == ["rlm.session_lost", "rlm.diverged", "rlm.compacted"]


def test_our_attribute_names_are_those_of_the_conventions_package() -> None:
    names = sdk("semconv._incubating.attributes.gen_ai_attributes")
    metrics = sdk("semconv._incubating.metrics.gen_ai_metrics")
    known = {value for name, value in vars(names).items() if name.startswith("GEN_AI_")}
    spies = Spies(capture_content=True)
    spies.feed(*a_run(), started("b"), asked(run_id="b"), replied(run_id="b", usage=FULL))
    used = {key for span in spies.spans for key in span.attributes if key.startswith("gen_ai.")}
    assert len(used) > 15
    assert used <= known
    assert metrics.GEN_AI_CLIENT_TOKEN_USAGE == _spans.TOKENS
    assert metrics.GEN_AI_CLIENT_OPERATION_DURATION == _spans.SECONDS


FULL = Usage(9, 9, 1, 1, 0.1, 1, 1)


def test_times_are_those_of_the_events() -> None:
    spies = Spies()
    spies.feed(
        started("root"),
        replace(asked(), wall_time=1_000.5),
        replace(replied(), wall_time=1_002.25),
        ToolCalled(
            run_id="root", call_id="1", name="t", arguments={}, seconds=0.5, wall_time=2_000.0
        ),
        ended("root"),
    )
    chat, tool = spies.spans[:2]
    assert (chat.start_time, chat.end_time) == (1_000_500_000_000, 1_002_250_000_000)
    assert (tool.start_time, tool.end_time) == (1_999_500_000_000, 2_000_000_000_000)


def test_failures_have_a_status_and_an_error_type() -> None:
    spies = Spies()
    failing: dict[str, Any] = {"run_id": "root", "call_id": "root.3"}
    rlm_call: dict[str, Any] = {**failing, "kind": "rlm", "model": "a/b"}
    spies.feed(
        started("root"),
        asked(),
        replied(error="429: too many requests", usage=None),
        CellStarted(run_id="root", cell=1, code="x"),
        CallStarted(prompt="p", **rlm_call),
        CallEnded(error="SECRET", **rlm_call),
        ToolCalled(name="look", arguments={}, error="SECRET", **failing),
        CellEnded(
            run_id="root", cell=1, seconds=1, calls=0, error_type="KeyError", error_message="SECRET"
        ),
        ended("root", stop_reason="error", error="SECRET"),
    )
    told = {span.name: (span.attributes["error.type"], span.status) for span in spies.spans}
    assert {status.status_code for _, status in told.values()} == {StatusCode.ERROR}
    assert {name: (kind, status.description) for name, (kind, status) in told.items()} == {
        "chat claude-sonnet-5-5": ("request_failed", "429: too many requests"),
        "execute_tool rlm_query": ("child_failed", "child_failed"),
        "execute_tool look": ("tool_failed", "tool_failed"),
        "execute_code": ("KeyError", "KeyError"),
        "invoke_agent rlm": ("run_failed", "run_failed"),
    }
    assert spies.spans[0].attributes["gen_ai.response.finish_reasons"] == ("error",)


def test_a_stored_reply_has_no_usage() -> None:
    """It was paid before: who adds spans up must not count it twice."""
    reader = InMemoryMetricReader()
    spies = Spies(meter_provider=MeterProvider([reader]))
    spies.feed(started("root"), asked(), replied(stored=True))
    attributes = spies.spans[0].attributes
    assert attributes["rlm.stored"] is True
    assert not [key for key in attributes if "usage" in key or "cost" in key]
    assert reader.get_metrics_data() is None


# -- content --------------------------------------------------------------------------------------


def everything_said(spans: list[Any]) -> str:
    told = [
        f"{span.name} {dict(span.attributes)} {span.status.description} "
        f"{[(event.name, dict(event.attributes)) for event in span.events]}"
        for span in spans
    ]
    return "\n".join(told)


def test_no_content_is_captured_unless_requested() -> None:
    assert "SECRET" not in everything_said(Spies().feed(*a_run()))


def test_captured_content_follows_the_conventions() -> None:
    spies = Spies(capture_content=True)
    spies.feed(*a_run())
    chat = spies.named("chat claude-sonnet-5-5")[0].attributes
    assert json.loads(chat["gen_ai.input.messages"])[1] == {
        "role": "user",
        "parts": [{"type": "text", "content": "SECRET question"}],
    }
    assert json.loads(chat["gen_ai.output.messages"]) == [
        {
            "role": "assistant",
            "parts": [{"type": "text", "content": "SECRET reply"}],
            "finish_reason": "stop",
        }
    ]
    tool = spies.named("execute_tool look_up")[0].attributes
    assert tool["gen_ai.tool.call.arguments"] == '{"key":"SECRET"}'
    assert spies.named("execute_code")[0].attributes["rlm.cell.code"] == "SECRET code"
    root = spies.named("invoke_agent rlm")[0].attributes
    assert "SECRET query" in root["gen_ai.input.messages"]
    assert "SECRET answer" in root["gen_ai.output.messages"]


@pytest.mark.parametrize(
    ("value", "option", "captured"),
    [
        ("SPAN_ONLY", None, True),
        ("true", None, True),
        ("span_and_event", None, True),
        ("EVENT_ONLY", None, False),
        ("NO_CONTENT", None, False),
        ("", None, False),
        ("true", False, False),
        ("false", True, True),
    ],
)
def test_the_standard_variable_applies_unless_the_caller_decides(
    monkeypatch: pytest.MonkeyPatch, value: str, option: bool | None, captured: bool
) -> None:
    monkeypatch.setenv(telemetry.CAPTURE_VARIABLE, value)
    spans = Spies(capture_content=option).feed(*a_run())
    assert ("SECRET" in everything_said(spans)) is captured


def test_long_texts_are_truncated_and_lone_surrogates_replaced() -> None:
    spies = Spies(capture_content=True)
    spies.feed(
        started("root"),
        CellStarted(run_id="root", cell=1, code="x" * 1_000_000),
        ToolCalled(run_id="root", call_id="\ud800", name="\udfff", arguments={"a": "\ud800"}),
        ended("root"),
    )
    assert len(spies.named("execute_code")[0].attributes["rlm.cell.code"]) == _genai.CONTENT_CHARS
    everything_said(spies.spans).encode()


# -- metrics --------------------------------------------------------------------------------------


def test_requests_are_recorded_as_metrics() -> None:
    reader = InMemoryMetricReader()
    spies = Spies(meter_provider=MeterProvider([reader]))
    spies.feed(*a_run(), replied(error="no", usage=None, seconds=2.0))
    data = reader.get_metrics_data()
    assert data is not None
    metrics = {each.name: each for each in data.resource_metrics[0].scope_metrics[0].metrics}
    tokens, seconds = metrics[_spans.TOKENS], metrics[_spans.SECONDS]
    points: Any = tokens.data.data_points
    sums = {
        (point.attributes["gen_ai.request.model"], point.attributes["gen_ai.token.type"]): point.sum
        for point in points
    }
    assert sums == {
        ("claude-sonnet-5-5", "input"): 900,
        ("claude-sonnet-5-5", "output"): 40,
        ("gpt-5-mini", "input"): 900,
        ("gpt-5-mini", "output"): 40,
    }
    assert points[0].explicit_bounds[-1] == 67_108_864
    failed = [p for p in seconds.data.data_points if "error.type" in (p.attributes or {})]
    assert [getattr(point, "sum", None) for point in failed] == [2.0]
    assert (tokens.unit, seconds.unit) == ("{token}", "s")
