"""`GenericChatClient`: whatever a server answers and a parser makes of it, a reply or one error.

What it sends, and how it behaves over HTTP, is in tests/rlm_runtime/test_adapters.py.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.clients.generic import GenericChatClient
from rlm.messages import Reply

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["out", "text", "usage", "prompt_tokens"]), inner)
    ),
    max_leaves=8,
)


def parse(data: dict[str, Any]) -> Any:
    return data["out"][0]["text"], data.get("usage")


@given(st.dictionaries(st.sampled_from(["out", "usage", "text"]), JSON))
def test_any_payload_is_a_reply_or_a_value_error(payload: dict[str, Any]) -> None:
    client = GenericChatClient("http://127.0.0.1:1", response_parser=parse)
    try:
        reply = client._dialect.reply(payload)
    except ValueError:
        return
    assert isinstance(reply, Reply)
    assert reply.text == payload["out"][0]["text"]


@pytest.mark.parametrize(
    ("found", "usage"),
    [
        ("text", None),
        (("text", None), None),
        (("text", {"prompt_tokens": 3, "completion_tokens": 4}), (3, 4)),
        (("text", {"input_tokens": 3, "output_tokens": 4}), (3, 4)),
        (("text", {"prompt_tokens": 3}), None),
        (("text", "much"), None),
    ],
)
def test_a_parser_may_return_usage_with_the_text(found: Any, usage: tuple[int, int] | None) -> None:
    client = GenericChatClient("http://127.0.0.1:1", response_parser=lambda _: found)
    reply = client._dialect.reply({})
    assert reply.text == "text"
    said = reply.usage and (reply.usage.input_tokens, reply.usage.output_tokens)
    assert said == usage
