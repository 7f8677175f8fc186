"""A trace says what happened, and comes back from its JSON as it was."""

import hashlib
import re

import pytest

from rlm.messages import Reply
from rlm_runtime import RLM, Trace, TraceStep
from rlm_runtime.adapters import FakeAdapter

CODE = "print('seen')\nanswers = llm_query_batched(['ask-1', 'ask-2'])\nboom"


@pytest.fixture
def trace() -> Trace:
    adapter = FakeAdapter(script=[CODE, "FINAL_VAR: answers"])
    adapter.add_rule(re.compile("ask-1$"), "first")
    adapter.add_rule(re.compile("ask-2$"), "second")
    return RLM(adapter=adapter).run("Ask both.", "a text")[1]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_the_trace_has_every_step_with_its_kind_and_depth(trace: Trace) -> None:
    kinds = [step.kind for step in trace.steps]
    assert kinds == ["root_call", "subcall", "subcall", "repl_exec", "root_call"]
    assert [step.step_id for step in trace.steps] == [1, 2, 3, 4, 5]
    assert [step.depth for step in trace.steps] == [0, 1, 1, 0, 0]
    cell = trace.steps[3]
    assert cell.code == CODE
    assert (cell.output or "").startswith("seen\n")
    assert cell.error == "NameError: name 'boom' is not defined"
    assert trace.steps[0].output == CODE
    assert trace.stop_reason == "answer"
    assert trace.limit is None


def test_sub_calls_record_hashes_of_their_input_and_output(trace: Trace) -> None:
    calls = {step.prompt_summary: step for step in trace.steps if step.kind == "subcall"}
    for prompt, reply in (("ask-1", "first"), ("ask-2", "second")):
        assert calls[prompt].output == reply
        assert calls[prompt].input_hash == digest(prompt)
        assert calls[prompt].output_hash == digest(reply)
        assert calls[prompt].usage is not None
        assert not calls[prompt].cache_hit


def test_a_request_repeated_with_more_room_is_a_step_too() -> None:
    cut_off = Reply(text="", finish_reason="length")
    answer, trace = RLM(adapter=FakeAdapter([cut_off, "FINAL: yes"])).run("Go on?", "a text")
    assert answer == "yes"
    assert [(step.output, step.prompt_summary == "") for step in trace.steps] == [
        ("", False),
        ("FINAL: yes", True),
    ]


def test_a_trace_survives_json(trace: Trace) -> None:
    again = Trace.from_json(trace.to_json())
    assert again == trace
    assert again.to_json() == trace.to_json()


def test_a_plain_list_of_steps_is_read_too() -> None:
    read = Trace.from_json('[{"step_id": 1, "kind": "subcall", "depth": 1, "cache_key": "x"}]')
    assert read == Trace([TraceStep(step_id=1, kind="subcall", depth=1)])


@pytest.mark.parametrize(
    "text", ["", "nothing", '{"steps": 3}', '[{"kind": "subcall"}]', "[" * 5_000]
)
def test_any_other_json_is_a_value_error(text: str) -> None:
    with pytest.raises((ValueError, RecursionError)):
        Trace.from_json(text)
