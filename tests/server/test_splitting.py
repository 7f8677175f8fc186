"""Messages to a query and a context: whatever they are, nothing of their text is lost."""

import json

from hypothesis import given
from hypothesis import strategies as st

from rlm.prompts import FIXED_QUERY
from rlm.server.answering import Stopper, cut_to_tokens
from rlm.server.conversation import EDGE_CHARS, Split, TextMessage, is_large, split

LIMIT = 40
TEXTS = st.text(alphabet="ab?\n é", max_size=120)
MESSAGES = st.lists(
    st.builds(
        TextMessage, st.sampled_from(["system", "developer", "user", "assistant", "tool"]), TEXTS
    ),
    max_size=6,
)


def _all_of(found: Split) -> list[str]:
    """Every text that the model can see or read."""
    texts = [found.query, found.prologue]
    for context in found.contexts.values():
        if isinstance(context, str):
            texts.append(context)
        else:
            texts += [each["content"] for each in context or [] if isinstance(each, dict)]
    return texts


@given(MESSAGES)
def test_splitting_loses_no_message(messages: list[TextMessage]) -> None:
    texts = _all_of(split(messages, LIMIT))
    for message in messages:
        if message.text.strip():
            assert any(message.text in text for text in texts), (message, texts)


@given(MESSAGES)
def test_the_prompt_is_bounded(messages: list[TextMessage]) -> None:
    found = split(messages, LIMIT)
    assert len(found.query) <= max(LIMIT, 2 * EDGE_CHARS + 2, len(FIXED_QUERY))
    told = sum(len(m.text) + len(m.role) + 5 for m in messages)
    assert len(found.prologue) <= min(told, 4 * LIMIT * len(messages)) + 300


@given(MESSAGES)
def test_the_same_messages_are_split_the_same_way(messages: list[TextMessage]) -> None:
    """A resumed run must get the same query again."""
    assert split(messages, LIMIT) == split(list(messages), LIMIT)
    assert json.dumps(split(messages, LIMIT).context)


def test_the_last_user_message_is_the_query() -> None:
    messages = [
        TextMessage("user", "first"),
        TextMessage("assistant", "yes"),
        TextMessage("user", "second"),
    ]
    found = split(messages, 1_000)
    assert found.query == "second"
    assert "first" in found.prologue
    assert found.context is None


def test_the_question_is_found_at_either_end_of_a_large_message() -> None:
    body = "\n\n".join(f"paragraph {n} " + "x" * 50 for n in range(100))
    for text, query in (
        (f"What is it?\n\n{body}\n\n{'y' * 5_000}", "What is it?"),
        (f"{'y' * 5_000}\n\n{body}\n\nWhat is it?", "What is it?"),
        (f"Read this.\n\n{body}\n\nWhat is it?", "Read this.\n\nWhat is it?"),
        ("z" * 5_000 + "\nWhat is it?", "What is it?"),
        ("z" * 5_000, FIXED_QUERY),
    ):
        found = split([TextMessage("user", text)], 1_000)
        assert found.query == query
        assert found.context == text


def test_several_contexts_have_names() -> None:
    messages = [
        TextMessage("system", "s" * 2_000),
        TextMessage("user", "u" * 2_000),
        TextMessage("assistant", "a"),
        TextMessage("user", f"{'m' * 2_000}\n\nWhy?"),
    ]
    found = split(messages, 1_000)
    assert isinstance(found.context, dict)
    assert set(found.context) == {"message", "instructions", "conversation"}
    assert found.query == "Why?"


def test_messages_that_fit_the_limit_are_not_large() -> None:
    assert not is_large([TextMessage("user", "x" * 10)], 10)
    assert is_large([TextMessage("user", "x" * 6), TextMessage("user", "x" * 5)], 10)


# -- where answers end ----------------------------------------------------------------------------


@given(
    st.lists(st.text(alphabet="abc", max_size=4), max_size=12),
    st.lists(st.text(alphabet="abc", min_size=1, max_size=4), max_size=4),
)
def test_streamed_pieces_stop_where_the_whole_text_would(
    pieces: list[str], stops: list[str]
) -> None:
    whole = "".join(pieces)
    found = [at for at in (whole.find(stop) for stop in stops) if at >= 0]
    wanted = whole[: min(found)] if found else whole
    stopper = Stopper(stops)
    said = "".join(stopper.feed(piece) for piece in pieces) + stopper.end()
    assert (said, stopper.stopped) == (wanted, bool(found))


@given(st.text(max_size=60), st.integers(1, 20))
def test_a_truncated_answer_is_a_prefix(text: str, tokens: int) -> None:
    kept, cut = cut_to_tokens(text, tokens)
    assert text.startswith(kept)
    assert len(kept.encode("utf-8", "surrogatepass")) <= 4 * tokens
    assert cut == (kept != text)
