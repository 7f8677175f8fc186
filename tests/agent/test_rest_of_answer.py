"""The rule that combines streamed chunks and the submitted answer into one text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.agent.agent import rest_of


@pytest.mark.parametrize(
    ("streamed", "submitted", "rest"),
    [
        ("", "all of it", "all of it"),
        ("all ", "all of it", "of it"),
        ("all of it", "all of it", ""),
        ("It is 42.", "42.", ""),
        ("Looking. ", "Found.", "Found."),
        ("Everything was said.", "", ""),
        ("ab", "abab", "ab"),
    ],
)
def test_the_rest_of_an_answer_follows_the_streamed_text(
    streamed: str, submitted: str, rest: str
) -> None:
    assert rest_of(streamed, submitted) == rest


@given(st.text(), st.text())
def test_streamed_text_and_the_rest_contain_the_whole_submission(s: str, submitted: str) -> None:
    answer = s + rest_of(s, submitted)
    assert answer.startswith(s)
    assert answer.endswith(submitted)


@given(st.lists(st.text()), st.text())
def test_a_submission_that_continues_the_stream_is_not_repeated(
    pieces: list[str], end: str
) -> None:
    streamed = "".join(pieces)
    assert streamed + rest_of(streamed, streamed + end) == streamed + end
