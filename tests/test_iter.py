"""`RLM.iter`: the events of a run, for code without an event loop."""

import gc
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from rlm import RLM, ModelError, ScriptedClient
from rlm.events import CallStarted, Event, RunEnded, RunStarted, StepStarted
from rlm.records.recorders import in_process

STEP = "```repl\nprint(len(context))\n```"
LAST = "```repl\nFINAL('one')\n```"


def engine(*script: Any, **options: Any) -> RLM:
    delay = options.pop("delay_seconds", 0.0)
    return RLM(ScriptedClient(script or [STEP, LAST], delay_seconds=delay), **options)


def wait_for_no_run(one: RLM) -> None:
    """Wait until an abandoned run has ended."""
    for _ in range(200):
        if not one.runner.running:
            return
        time.sleep(0.02)
    pytest.fail(f"still running: {one.runner.running}")


def test_every_event_comes_in_order() -> None:
    with engine() as one:
        events = list(one.iter("What?", "some text"))
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunEnded)
    assert events[-1].answer == "one"
    assert [each.step for each in events if isinstance(each, StepStarted)] == [1, 2]
    assert [each.monotonic_time for each in events] == sorted(e.monotonic_time for e in events)


def test_nothing_starts_before_the_first_event_is_requested() -> None:
    client = ScriptedClient([LAST])
    with RLM(client) as one:
        events = one.iter("What?", "some text")
        assert client.requests == []
        next(events)
        events.close()


def test_leaving_the_loop_cancels_the_run() -> None:
    with engine(delay_seconds=30) as one:
        for event in one.iter("What?", "some text"):
            assert isinstance(event, RunStarted)
            break
        assert not one.runner.running


def test_closing_the_iterator_waits_until_the_run_has_ended() -> None:
    with engine(delay_seconds=30) as one:
        events = one.iter("What?", "some text")
        next(events)
        assert len(one.runner.running) == 1
        events.close()
        assert not one.runner.running
        assert list(events) == []


def test_a_garbage_collected_iterator_ends_its_run() -> None:
    with engine(delay_seconds=30) as one:
        ring: list[Any] = [one.iter("What?", "some text")]
        next(ring[0])
        ring.append(ring)
        del ring
        gc.collect()
        wait_for_no_run(one)


def test_an_iterator_collected_on_the_portals_own_thread_ends_its_run() -> None:
    from rlm.portal import portal

    with engine(delay_seconds=30) as one:
        events = one.iter("What?", "some text")
        next(events)
        held = [events]
        del events

        async def drop() -> None:
            held.clear()

        portal().call(drop)
        wait_for_no_run(one)


def test_an_error_of_the_run_is_raised_after_its_last_event() -> None:
    with engine(ModelError("no such key")) as one:
        seen: list[Event] = []
        with pytest.raises(ModelError, match="no such key"):
            seen.extend(one.iter("What?", "some text"))
        assert isinstance(seen[-1], RunEnded)
        assert seen[-1].error


def test_no_thread_is_left_behind() -> None:
    with engine(*[LAST] * 20) as one:
        list(one.iter("What?", "some text"))
        before = threading.active_count()
        for _ in range(5):
            list(one.iter("What?", "some text"))
            events = one.iter("What?", "some text")
            next(events)
            events.close()
        assert threading.active_count() <= before


def test_a_slow_reader_pauses_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_process, "MAX_WAITING", 40)
    calls = ScriptedClient(["x"] * 600)
    cell = "```repl\nfor n in range(600):\n    llm_query(str(n))\nFINAL('done')\n```"
    with RLM(ScriptedClient([cell]), sub_model=calls) as one:
        events = one.iter("What?", "some text")
        for event in events:
            if isinstance(event, CallStarted):
                break
        time.sleep(1.0)
        asked = len(calls.requests)
        assert asked < 60
        rest = list(events)
    assert len(calls.requests) == 600
    assert isinstance(rest[-1], RunEnded)
    assert rest[-1].answer == "done"


def test_iter_works_inside_a_running_loop() -> None:
    import asyncio

    async def main() -> int:
        with engine() as one:
            return len(list(one.iter("What?", "some text")))

    assert asyncio.run(main()) > 5


def test_a_program_may_end_with_an_open_iterator() -> None:
    program = (
        "from rlm import RLM, ScriptedClient\n"
        "one = RLM(ScriptedClient(['x'], delay_seconds=60))\n"
        "events = one.iter('What?', 'some text')\n"
        "print(type(next(events)).__name__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30
    )
    assert done.stdout == "RunStarted\n"
    assert (done.returncode, done.stderr) == (0, "")


def test_a_turn_of_a_chat_can_be_iterated_and_abandoned() -> None:
    script = ["```repl\nx = 5\nFINAL('kept')\n```", STEP, "```repl\nFINAL(x)\n```"]
    with engine(*script) as one, one.chat("some text") as chat:
        events = list(chat.iter("What?"))
        assert isinstance(events[-1], RunEnded)
        assert events[-1].answer == "kept"
        for event in chat.iter("And then?"):
            if isinstance(event, StepStarted):
                break
        assert not one.runner.running
        assert len(chat.turns) == 1
