"""Any JSON may come back: a dialect answers with a Reply or a ValueError, and with nothing else."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm.clients._chat import ChatDialect
from rlm.clients._dialect import Dialect
from rlm.clients._fields import parse
from rlm.clients._quirks import QUIRKS
from rlm.clients.responses import ResponsesDialect
from rlm.errors import ConfigError
from rlm.messages import Message, Reply
from tests.clients.hostile import ANYTHING, mutated
from tests.clients.misbehaving import asked, completion, delta
from tests.clients.test_responses import CALL, SAID, THOUGHT, response
from tests.clients.test_responses_stream import EVENTS, ended

USAGE = {
    "prompt_tokens": 5,
    "completion_tokens": 4,
    "total_tokens": 9,
    "prompt_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 1},
    "completion_tokens_details": {"reasoning_tokens": 3},
    "cost": 0.1,
    "is_byok": True,
    "cost_details": {"upstream_inference_cost": 0.2},
}
TOOL = {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOLD: dict[str, Any] = {
    "content": "<think>a</think>b",
    "refusal": "no",
    "reasoning": "r",
    "reasoning_content": "c",
    "reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "t", "signature": "s"}],
    "tool_calls": [TOOL, {**TOOL, "index": 1, "extra_content": {"x": 1}}],
}
TIMINGS = {"cache_n": 1, "prompt_n": 2, "predicted_n": 3}
ABOUT = {"usage": USAGE, "timings": TIMINGS, "x_groq": {"usage": USAGE}}
CHAT = completion(None, message=TOLD, **ABOUT)
CHUNKS = [delta(**TOLD), delta(**TOLD), delta("x", finish="stop") | ABOUT]
WHOLE = response(THOUGHT, SAID, CALL)
REPORTS: list[dict[str, Any]] = [
    {"error": {"code": 429, "message": "m"}},
    {"type": "error", "code": "invalid_prompt", "message": "m"},
    ended(kind="failed", error={"code": "server_error", "message": "m"}),
]
DIALECTS: list[Dialect] = [
    *(ChatDialect(QUIRKS[name]) for name in ("openai", "openrouter", "vllm")),
    *(ResponsesDialect(QUIRKS[name]) for name in ("openai", "openrouter")),
]
KEYS = ("choices", "message", "delta", "content", "text", "type", "output", "usage", "error")
OBJECTS = st.dictionaries(st.sampled_from(KEYS), ANYTHING, max_size=5)


def check_plain(dialect: Dialect, payload: dict[str, Any]) -> None:
    report = dialect.error_in(payload)
    assert report is None or report[0] is None or 400 <= report[0] < 600
    try:
        reply = dialect.reply(payload)
    except ValueError:
        return
    check(dialect, reply)


def check_stream(dialect: Dialect, events: list[dict[str, Any]]) -> None:
    streamed = dialect.streamed()
    for each in events:
        dialect.error_in(each)
        assert isinstance(streamed.add(each), str)
    assert isinstance(streamed.complete, bool)
    streamed.finish()
    try:
        reply = streamed.reply()
    except ValueError:
        return
    check(dialect, reply)


def check(dialect: Dialect, reply: Reply) -> None:
    """Everything in it is of its own type, and it can be sent back."""
    texts = (reply.text, reply.reasoning, reply.model)
    assert all(isinstance(text, str) for text in texts)
    for call in reply.tool_calls:
        assert isinstance(call.id, str)
        assert isinstance(call.name, str)
        assert isinstance(call.arguments, dict)
    if reply.usage is not None:
        assert reply.usage.total_tokens >= 0
        assert reply.usage.input_tokens >= reply.usage.cached_tokens
        assert reply.usage.output_tokens >= reply.usage.reasoning_tokens
    said = Message("assistant", reply.text, tool_calls=reply.tool_calls, opaque=reply.opaque)
    try:
        dialect.body(asked(messages=(said,)), stream=False)
    except ConfigError:  # for numbers that JSON does not have, such as NaN
        assert "nan" in repr(reply) or "inf" in repr(reply)


@pytest.mark.parametrize("dialect", DIALECTS)
@given(data=st.data())
@settings(max_examples=50)
def test_arbitrary_replies_are_read_or_refused(dialect: Dialect, data: st.DataObject) -> None:
    check_plain(dialect, data.draw(OBJECTS))
    check_stream(dialect, data.draw(st.lists(OBJECTS, max_size=3)))


@pytest.mark.parametrize("dialect", DIALECTS)
@given(data=st.data())
@settings(max_examples=100)
def test_mutated_replies_are_read_or_refused(dialect: Dialect, data: st.DataObject) -> None:
    is_chat = isinstance(dialect, ChatDialect)
    whole = CHAT if is_chat else WHOLE
    events = CHUNKS if is_chat else [*EVENTS, ended(THOUGHT, SAID, CALL)]
    check_plain(dialect, data.draw(mutated([whole, *REPORTS])))
    changed = list(events)
    for place in data.draw(st.lists(st.integers(0, len(events) - 1), min_size=1, max_size=3)):
        changed[place] = data.draw(mutated([events[place]]))
    check_stream(dialect, changed)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_deeply_nested_replies_do_no_harm(dialect: Dialect) -> None:
    deep: Any = "x"
    for _ in range(900):
        deep = [{"text": deep, "type": "output_text"}]
    for payload in (
        completion(None, message={"content": deep, "refusal": deep, "reasoning": deep}),
        response({**SAID, "content": deep}, {"type": "reasoning", "summary": deep}),
    ):
        check_plain(dialect, payload)


def test_a_reply_of_slow_numbers_is_refused_before_it_is_decoded() -> None:
    for number, count in (("1e300", 60_000), ("1" * 900, 2_000)):
        text = f'{{"usage": [{",".join([number] * count)}]}}'
        with pytest.raises(ValueError, match="exponent"):
            parse(text)
    told = {"logprobs": [-1.5e-07] * 1_000, "text": "1e300," * 90_000}
    assert parse(json.dumps(told)) == told
