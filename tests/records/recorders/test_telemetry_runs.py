"""Telemetry of real runs; and whatever happens, no span leaks and no run suffers."""

import asyncio
import logging
import re
import threading
from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace

from rlm import RLM, Limits, ScriptedClient
from rlm.clients.callable import CallableClient
from rlm.events import CallStarted, Event, RunStarted
from rlm.messages import Reply
from rlm.records.recorders import telemetry
from tests.cli.test_progress import ended, started
from tests.fakes import PlanEnvironment, cell
from tests.records.recorders.any_events import many_events
from tests.records.recorders.telemetry_spies import (
    CALL,
    USED,
    InMemorySpanExporter,
    SimpleSpanProcessor,
    Spies,
    a_run,
    asked,
)
from tests.shape.documents import blocks_of, run_python
from tests.shape.tree import ROOT

# -- real runs ------------------------------------------------------------------------------------


async def test_every_request_span_is_inside_the_cell_that_made_it() -> None:
    spies = Spies()
    root = ScriptedClient([cell(["batch", 64]), cell(["final", "done"])])
    rlm = RLM(
        root,
        sub_model=CallableClient(lambda request: Reply(text="yes", usage=USED)),
        environment=PlanEnvironment(),
        recorders=[spies.recorder],
    )
    assert (await rlm.aask("?", "text")).answer == "done"
    await rlm.aclose()
    names = [span.name for span in spies.spans]
    calls = [name for name in names if name.startswith("chat")]
    assert (len(calls), names.count("execute_code"), names.count("rlm.step")) == (66, 2, 2)
    first_cell = spies.named("execute_code")[0]
    inside = [span for span in spies.spans if span.parent and span.parent == first_cell.context]
    assert len(inside) == 64
    assert {span.context.trace_id for span in spies.spans} == {first_cell.context.trace_id}
    assert all(first_cell.start_time <= span.start_time for span in inside)
    assert all(span.start_time <= span.end_time <= first_cell.end_time for span in inside)
    assert not spies.recorder._runs


async def test_child_runs_are_inside_the_calls_that_started_them() -> None:
    def model(messages: list[Any]) -> str:
        said = "\n".join(str(message["content"]) for message in messages)
        return (
            cell(["final", "leaf"])
            if re.search(r"piece \d", said)
            else cell(["rlm", 3], ["final", "done"])
        )

    spies = Spies()
    rlm = RLM(
        CallableClient(model),
        environment=PlanEnvironment(),
        limits=Limits(max_depth=2),
        recorders=[spies.recorder],
    )
    await rlm.aask("?", "text")
    await rlm.aclose()
    assert len(spies.named("invoke_agent rlm")) == 4
    assert ("invoke_agent rlm", "execute_tool rlm_query") in spies.parents()
    assert ("execute_tool rlm_query", "execute_code") in spies.parents()
    callers = {span.context.span_id for span in spies.named("execute_tool rlm_query")}
    children = [span for span in spies.named("invoke_agent rlm") if span.parent is not None]
    assert {span.parent.span_id for span in children} == callers


async def test_a_cancelled_run_leaves_no_span_open() -> None:
    spies = Spies()

    async def forever(prompt: str) -> str:
        flying.set()
        await asyncio.sleep(3_600)
        return ""

    flying = asyncio.Event()
    rlm = RLM(
        ScriptedClient([cell(["batch", 8])]),
        sub_model=CallableClient(forever),
        environment=PlanEnvironment(),
        recorders=[spies.recorder],
    )
    run = asyncio.ensure_future(rlm.aask("?", "text"))
    await flying.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await rlm.aclose()
    assert not spies.recorder._runs
    unfinished = [s for s in spies.spans if s.attributes.get("error.type") == "unfinished"]
    assert {span.name.split()[0] for span in unfinished} >= {"chat"}
    root = spies.named("invoke_agent rlm")[0]
    assert root.attributes["rlm.run.stop_reason"] == "cancelled"
    assert all(span.end_time <= root.end_time for span in spies.spans)


def test_a_run_span_is_inside_its_callers_span() -> None:
    """Also through the sync door, which runs the engine in another thread."""
    spies = Spies()
    tracer = spies.provider.get_tracer("program")
    client = ScriptedClient([cell(["final", "done"])])
    with (
        RLM(client, environment=PlanEnvironment(), recorders=[spies.recorder]) as rlm,
        tracer.start_as_current_span("request"),
    ):
        rlm.ask("?", "text")
    assert ("invoke_agent rlm", "request") in spies.parents()


def test_the_guides_example_runs() -> None:
    """In the documents' own tests it is left out: the extra is not there."""
    guide = ROOT / "docs" / "guides" / "telemetry.md"
    (block,) = [each for each in blocks_of(guide.read_text("utf-8")) if each.language == "python"]
    run_python(block, {})


# -- nothing leaks, nothing breaks ----------------------------------------------------------------


def test_spans_left_open_by_a_run_end_with_it() -> None:
    spies = Spies()
    child = started("child", "root", 1, parent_call_id="root.9")
    spies.feed(
        *a_run()[:7],
        CallStarted(
            run_id="root", call_id="root.9", kind="rlm", model="a/b", prompt="read this part"
        ),
        child,
        asked(run_id="child"),
        replace(ended("root", stop_reason="cancelled"), wall_time=5_000_000_000.0),
    )
    unfinished = [s.name for s in spies.spans if s.attributes.get("error.type") == "unfinished"]
    assert unfinished == [
        "chat claude-sonnet-5-5",
        "invoke_agent rlm",
        "execute_tool rlm_query",
        "execute_code",
    ]
    assert spies.spans[-1].name == "invoke_agent rlm"
    assert spies.spans[-1].end_time == 5_000_000_000_000_000_000
    assert not spies.recorder._runs


def test_a_run_resumed_after_a_kill_gets_a_new_span() -> None:
    spies = Spies()
    spies.feed(*a_run()[:4], *a_run())
    roots = spies.named("invoke_agent rlm")
    assert [root.attributes.get("error.type") for root in roots] == ["unfinished", None]
    assert not spies.recorder._runs


def test_close_ends_all_open_spans() -> None:
    spies = Spies()
    spies.feed(*a_run()[:9])
    spies.recorder.close()
    assert {span.name for span in spies.spans} >= {"invoke_agent rlm", "rlm.step", "execute_code"}
    assert not spies.recorder._runs


def test_runs_and_calls_that_never_end_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "MAX_OPEN_RUNS", 10)
    monkeypatch.setattr("rlm.records.recorders._spans.MAX_OPEN_CALLS", 10)
    spies = Spies()
    spies.feed(*(started(f"run-{number}") for number in range(50)))
    assert len(spies.recorder._runs) == 10
    assert len(spies.spans) == 40
    for number in range(50):
        call = CallStarted(run_id="run-49", call_id=str(number), prompt="p", **CALL)
        spies.recorder.record(call)
    assert len(spies.recorder._runs["run-49"].calls) == 10


def test_a_chain_of_thousands_of_runs_ends_at_once() -> None:
    spies = Spies()
    spies.feed(started("0"), *(started(str(n), str(n - 1), n) for n in range(1, 2_000)))
    spies.feed(ended("0"))
    assert len(spies.spans) == 2_000
    assert not spies.recorder._runs


def test_events_of_unknown_runs_and_calls_are_ignored() -> None:
    spies = Spies()
    spies.feed(*a_run()[1:])
    assert spies.spans == []


def test_a_failing_span_processor_ends_no_run_and_leaks_no_span(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def on_end(span: Any) -> None:
        ends.append(span)
        raise RuntimeError("the collector is gone")

    ends: list[Any] = []
    spies = Spies()
    broken = SimpleSpanProcessor(spies.exporter)
    broken.on_end = on_end
    spies.provider.add_span_processor(broken)
    with caplog.at_level(logging.ERROR):
        spies.feed(*a_run()[:9], ended("root"))
    assert len(spies.spans) == len(ends) == 5
    assert not spies.recorder._runs
    assert [record.message for record in caplog.records] == [
        "telemetry failed on ModelReplied; this is reported once"
    ]


def test_many_threads_may_record_at_once() -> None:
    spies = Spies()

    def one(number: int) -> None:
        for event in a_run():
            spies.recorder.record(replace(event, run_id=f"run-{number}"))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(spies.spans) == 16 * 6
    assert len({span.context.trace_id for span in spies.spans}) == 16
    assert not spies.recorder._runs


def test_a_run_whose_parent_is_unknown_is_a_root_span() -> None:
    spies = Spies()
    lonely: RunStarted = started("child", "nobody", 1, parent_call_id="nothing")
    spies.feed(lonely, ended("child", "nobody", 1))
    assert spies.parents() == {("invoke_agent rlm", "")}


def test_a_child_started_by_a_plain_call_is_inside_the_cell() -> None:
    spies = Spies()
    odd: RunStarted = started("child", "root", 1, parent_call_id="root.1")
    spies.feed(*a_run()[:8], odd, ended("child", "root", 1), ended("root"))
    assert ("invoke_agent rlm", "execute_code") in spies.parents()


@given(many_events)
def test_every_started_span_ends_whatever_the_events(events: list[Event]) -> None:
    begun: list[Any] = []
    spies = Spies(capture_content=True)
    watching = SimpleSpanProcessor(InMemorySpanExporter())
    watching.on_start = lambda span, parent_context=None: begun.append(span)
    spies.provider.add_span_processor(watching)
    spies.feed(*events)
    for run_id in ("a", "b", "c"):
        spies.recorder.record(ended(run_id))
    assert not spies.recorder._has_failed
    assert not spies.recorder._runs
    assert len(begun) == len(spies.spans)
    assert all(not span.is_recording() for span in begun)
