"""Bounds on input tokens: never too low for any tokenizer, and tight where one has reported."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rlm.calls.billing import ReportedPrefix
from rlm.messages import MESSAGE_OVERHEAD_TOKENS, Message, Request, ToolSpec, Usage, bound_tokens
from tests.calls.tokenizers import RandomTokenizer

SYSTEM = Message("system", "s" * 4_000)
TASK = Message("user", "t" * 4_000)
REPLY = Message("assistant", "r" * 400)
OUTPUT = Message("user", "o" * 800)


def request(*messages: Message, model: str = "m", cap: int = 100, **other: Any) -> Request:
    return Request(model=model, messages=messages, max_output_tokens=cap, **other)


def used(tokens: int) -> Usage:
    return Usage(input_tokens=tokens, output_tokens=1)


def test_bytes_are_counted_not_characters() -> None:
    assert bound_tokens((Message("user", "aé😀"),)) == 7 + MESSAGE_OVERHEAD_TOKENS
    assert bound_tokens((Message("user", "\ud800"),)) == 3 + MESSAGE_OVERHEAD_TOKENS


def test_the_first_request_is_bounded_by_its_bytes() -> None:
    assert ReportedPrefix().bound(request(SYSTEM, TASK)) == 8_000 + 2 * MESSAGE_OVERHEAD_TOKENS


def test_a_later_request_counts_reported_tokens_plus_the_bytes_of_new_messages() -> None:
    known = ReportedPrefix()
    known.note(request(SYSTEM, TASK), used(2_000))
    longer = request(SYSTEM, TASK, REPLY, OUTPUT, cap=200)  # another output cap changes no input
    assert known.bound(longer) == 2_000 + 1_200 + 2 * MESSAGE_OVERHEAD_TOKENS
    known.note(longer, used(2_300))
    longest = request(*longer.messages, REPLY)
    assert known.bound(longest) == 2_300 + 400 + MESSAGE_OVERHEAD_TOKENS


def test_the_reported_count_is_reused_only_for_an_identical_prefix() -> None:
    known = ReportedPrefix()
    known.note(request(SYSTEM, TASK, tools=()), used(2_000))
    tool = ToolSpec("python", "runs code", {})
    for other in (
        request(SYSTEM, Message("user", "t" * 4_001), REPLY),
        request(SYSTEM, TASK, REPLY, model="other"),
        request(SYSTEM, TASK, REPLY, tools=(tool,)),
        request(SYSTEM, TASK, REPLY, sampling={"reasoning": "high"}),
        request(SYSTEM),
    ):
        assert known.bound(other) == other.bound_tokens


def test_a_shortened_conversation_keeps_the_count_reported_for_its_start() -> None:
    known = ReportedPrefix()
    known.note(request(SYSTEM, TASK), used(2_000))
    known.note(request(SYSTEM, TASK, REPLY, OUTPUT), used(2_400))
    notes = Message("assistant", "n" * 50)
    assert known.bound(request(SYSTEM, TASK, notes)) == 2_000 + 50 + MESSAGE_OVERHEAD_TOKENS


def test_reported_hidden_tokens_are_counted() -> None:
    known = ReportedPrefix()
    known.note(request(TASK), used(9_000))  # a provider that adds instructions of its own
    assert known.bound(request(TASK)) == 9_000


def test_an_implausibly_low_reported_count_is_ignored() -> None:
    known = ReportedPrefix()
    known.note(request(SYSTEM, TASK), used(2_000))
    longer = request(SYSTEM, TASK, REPLY, OUTPUT)
    known.note(longer, used(300))
    assert known.bound(longer) == longer.bound_tokens
    known.note(longer, used(2_300))
    assert known.bound(longer) == longer.bound_tokens  # it may leave something out again
    first = ReportedPrefix()
    first.note(request(SYSTEM, TASK), used(10))
    assert first.bound(longer) == longer.bound_tokens


def test_a_reply_without_usage_leaves_the_known_count_unchanged() -> None:
    known = ReportedPrefix()
    known.note(request(SYSTEM, TASK), used(2_000))
    known.note(request(SYSTEM, TASK, REPLY), None)
    bound = known.bound(request(SYSTEM, TASK, REPLY))
    assert bound == 2_000 + 400 + MESSAGE_OVERHEAD_TOKENS


@given(st.integers(0, 2**32), st.lists(st.text(max_size=80), min_size=1, max_size=12), st.data())
def test_no_tokenizer_exceeds_the_bound(seed: int, texts: list[str], data: st.DataObject) -> None:
    tokenizer, known = RandomTokenizer(seed), ReportedPrefix()
    messages: tuple[Message, ...] = ()
    for number, text in enumerate(texts):
        if data.draw(st.booleans()):  # as compaction does
            messages = messages[: data.draw(st.integers(0, len(messages)))]
        messages = (*messages, Message("assistant" if number % 2 else "user", text))
        asked = request(*messages)
        tokens = tokenizer.count(messages)
        assert tokens <= known.bound(asked)
        if data.draw(st.booleans()):
            known.note(asked, used(tokens))
