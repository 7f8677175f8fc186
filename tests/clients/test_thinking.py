"""Thinking inside the text: found at its beginning only, wherever a stream cuts it."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.clients._chat import ChatDialect, InlineThinking, StreamedChat, chat_reply
from rlm.clients._quirks import QUIRKS
from tests.clients.misbehaving import completion, delta

LOCAL = ChatDialect(QUIRKS["vllm"])
TEXTS = st.lists(
    st.sampled_from(["<think>", "</think>", "<thinking>", "</thinking>", "<", "th", "\n", " ", "é"])
).map("".join)


def divided(*pieces: str) -> tuple[str, str]:
    thinking = InlineThinking()
    answer = "".join([thinking.add(piece) for piece in pieces]) + thinking.end()
    return thinking.reasoning, answer


@pytest.mark.parametrize(
    ("text", "reasoning", "answer"),
    [
        ("<think>\nI add.\n</think>\n\n4", "I add.", "4"),
        ("\n<thinking>I add.</thinking>4 </thinking>", "I add.", "4 </thinking>"),
        ("<think></think>4", "", "4"),
        ("<think>never ends", "never ends", ""),
        ("<think>ends</think>  ", "ends", ""),
        ("The tag <think>is text</think> here", "", "The tag <think>is text</think> here"),
        ("  plain  ", "", "  plain  "),
        ("<thi", "", "<thi"),
        ("<thinner>", "", "<thinner>"),
        ("", "", ""),
    ],
)
def test_thinking_is_separated_from_the_answer(text: str, reasoning: str, answer: str) -> None:
    assert divided(text) == (reasoning, answer)
    assert divided(*text) == (reasoning, answer)


@given(text=TEXTS, cuts=st.lists(st.integers(0, 40), max_size=6))
def test_splitting_the_text_changes_nothing(text: str, cuts: list[int]) -> None:
    places = sorted({0, *cuts, len(text)})
    pieces = [text[start:end] for start, end in pairwise(places)]
    assert divided(*pieces) == divided(text)


@given(text=TEXTS, cuts=st.lists(st.integers(0, 40), max_size=6))
def test_a_stream_gives_the_same_as_a_plain_reply(text: str, cuts: list[int]) -> None:
    places = sorted({0, *cuts, len(text)})
    streamed = LOCAL.streamed()
    shown = ""
    for start, end in pairwise(places):
        shown += streamed.add(delta(text[start:end]))
    shown += streamed.add(delta(finish="stop"))
    plain = LOCAL.reply(completion(text))
    assert streamed.reply() == plain
    assert shown == plain.text


@pytest.mark.parametrize("provider", ["openai", "azure", "openrouter"])
def test_thinking_tags_of_other_servers_are_left_unchanged(provider: str) -> None:
    dialect = ChatDialect(QUIRKS[provider])
    assert dialect.reply(completion("<think>a</think>b")).text == "<think>a</think>b"


@pytest.mark.parametrize(
    ("message", "reasoning"),
    [
        ({"reasoning_content": "field", "content": "<think>inline</think>4"}, "field"),
        ({"reasoning": "field", "content": "4"}, "field"),
        (
            {"content": "4", "reasoning_details": [{"type": "reasoning.summary", "summary": "s"}]},
            "s",
        ),
    ],
)
def test_only_one_source_of_reasoning_is_used(message: dict[str, Any], reasoning: str) -> None:
    reply = LOCAL.reply(completion(None, message=message))
    assert (reply.reasoning, reply.text) == (reasoning, "4")


MISTRAL_CONTENT = [
    {"type": "thinking", "thinking": [{"type": "text", "text": "Let me see."}], "closed": True},
    {"type": "text", "text": "Blue."},
]


def test_thinking_parts_of_a_content_list_are_separated() -> None:
    choice = {"message": {"role": "assistant", "content": MISTRAL_CONTENT}, "finish_reason": "stop"}
    whole = chat_reply({"choices": [choice]}, QUIRKS["mistral"])
    assert (whole.text, whole.reasoning) == ("Blue.", "Let me see.")
    streamed = StreamedChat(QUIRKS["mistral"])
    parts = [{"delta": {"content": [part]}} for part in MISTRAL_CONTENT]
    pieces = [streamed.add({"choices": [part]}) for part in parts]
    streamed.add({"choices": [{"delta": {"content": ""}, "finish_reason": "model_length"}]})
    reply = streamed.reply()
    assert pieces == ["", "Blue."]
    assert (reply.text, reply.reasoning) == ("Blue.", "Let me see.")
    assert reply.finish_reason == "length"
