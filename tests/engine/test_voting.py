"""Equal answers are counted by value, and a vote is settled when nothing can change it."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.engine.voting import MAX_COMPARED_CHARS, Tally, ballot_of


@pytest.mark.parametrize(
    "answers",
    [
        ["Paris", " paris. ", "PARIS!", '"Paris"', "**Paris**", "“Paris.”"],
        ["1,000", "1000", "1000.0", "1000.", "+1000", "1e3"],
        ["12,345,678 people", "12345678  People."],
        ["-0.50", "-.5", "-0.5"],
        ["ﬁve", "FIVE"],
        ["0", "0.0", "0,"],
    ],
)
def test_equivalent_answers_get_the_same_ballot(answers: list[str]) -> None:
    assert len({ballot_of(each) for each in answers}) == 1


def test_very_long_answers_are_compared_without_normalising() -> None:
    most = "\N{ARABIC LIGATURE SALLALLAHOU ALAYHE WASALLAM}" * MAX_COMPARED_CHARS
    assert len(ballot_of(most)) == 18 * len(most)
    assert ballot_of(most + "a") == most + "a"
    assert ballot_of("[]", "[" + " " * MAX_COMPARED_CHARS + "]") == "[]"


@pytest.mark.parametrize(
    ("one", "other"),
    [("007", "7"), ("1,5", "15"), ("1,00", "100"), ("a b", "ab"), ("10", "-10"), ("nan", "0")],
)
def test_different_answers_get_different_ballots(one: str, other: str) -> None:
    assert ballot_of(one) != ballot_of(other)


def test_structured_answers_are_compared_by_value() -> None:
    same = ['{"a": 1.0, "b": [2]}', '{"b": [2.0], "a": 1}']
    assert len({ballot_of(f"text {n}", each) for n, each in enumerate(same)}) == 1
    assert ballot_of("x", '{"a": true}') != ballot_of("x", '{"a": 1}')
    assert ballot_of("x", '["A"]') != ballot_of("x", '["a"]')
    assert ballot_of("X", "[" * 100_000) == ballot_of("x")
    assert ballot_of("Yes", '"Yes"') == ballot_of("yes.")


@given(st.text(max_size=60), st.none() | st.text(st.sampled_from('[]{}":,1.e'), max_size=40))
def test_any_answer_has_a_ballot(answer: str, answer_json: str | None) -> None:
    assert ballot_of(answer, answer_json) == ballot_of(answer, answer_json)


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers())
def test_equal_numbers_get_the_same_ballot_in_every_notation(value: float) -> None:
    assert ballot_of(json.dumps(value)) == ballot_of(f" {json.dumps(value)}. ")


@given(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=12))
def test_a_settled_vote_stays_settled(votes: list[str | None]) -> None:
    tally = Tally(len(votes))
    settled_for: str | None = None
    for number, vote in enumerate(votes):
        missing = tally.missing
        tally.add(number, vote)
        if settled_for is None and tally.is_settled:
            settled_for = votes[tally.leaders[0]]
            assert missing == 1  # The vote that settled it was the only one still missing.
        assert tally.left == len(votes) - number - 1
    counts = Counter(vote for vote in votes if vote is not None).most_common(2)
    if settled_for is not None:
        assert counts[0][0] == settled_for
        assert len(counts) == 1 or counts[0][1] > counts[1][1]
    assert {votes[leader] for leader in tally.leaders} == {
        vote for vote, count in Counter(v for v in votes if v).items() if count == counts[0][1]
    }


def test_the_tally_asks_for_as_many_votes_as_could_settle_it() -> None:
    tally = Tally(5)
    assert tally.missing == 3
    tally.add(0, "a")
    assert tally.missing == 2
    tally.add(1, "b")
    assert tally.missing == 2
    tally.add(2, "a")
    assert (tally.missing, tally.is_settled) == (1, False)
    tally.add(3, "a")
    assert (tally.missing, tally.is_settled, tally.leaders) == (0, True, [0])
    assert [tally.votes_of(number) for number in range(5)] == [3, 1, 3, 3, 0]
