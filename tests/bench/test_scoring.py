"""Scorers: by hand first, then what must hold for any answer."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.bench import scoring
from rlm.bench.registry import find_tasks
from rlm.bench.task import Task

LABELS = ["ham", "spam"]
OTHERS = ", ".join(map(str, range(5_000_000, 5_000_012)))


def task(spec: str) -> Task:
    (found,) = find_tasks(spec).values()
    return found


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("4471902", 1.0),
        ("The access number for amber-otter is 4471902.", 1.0),
        ("**4471902**", 1.0),
        ("4,471,902", 1.0),
        ('{"answer": "4471902"}', 1.0),
        ("```\n4471902\n```", 1.0),
        ("First I saw 1234567. Final answer: 4471902", 1.0),
        ("4471902 or 1234567", 1.0),  # RULER asks only whether it is there
        ("44719021", 0.0),
        ("14471902", 0.0),
        ("447190", 0.0),
        ("", 0.0),
        ("none", 0.0),
    ],
)
def test_scoring_one_needle(answer: str, score: float) -> None:
    assert task("s-niah/single").score(answer, ["4471902"]) == score


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("1111111\n2222222\n3333333\n4444444", 1.0),
        ("4444444, 3333333, 2222222 and 1111111", 1.0),
        ("[1111111, 2222222, 3333333, 4444444]", 1.0),
        ("1111111, 2222222", 0.5),
        ("1111111, 1111111, 1111111, 1111111", 0.25),
        (
            "1111111, 2222222, 3333333, 4444444, " + ", ".join(map(str, range(5000000, 5000012))),
            1.0,
        ),
    ],
)
def test_scoring_several_needles(answer: str, score: float) -> None:
    gold = ["1111111", "2222222", "3333333", "4444444"]
    assert task("s-niah/multi-value").score(answer, gold) == score


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("42", 1.0),
        ("42.0", 1.0),
        ("There are 42 instances.", 1.0),
        ("Answer: 42", 1.0),
        ("**Answer:** 42", 1.0),
        ("of 317 lines\n\nfinal answer: 42.", 1.0),
        ("41", 0.75),
        ("44", 0.75**2),
        ("-42", 0.75**84),
        ("1,042", 0.75**1000),
        ("42 or 43", 0.0),
        ("Of 317 lines, 42 are spam", 0.0),  # it is unclear which of the two it means
        ("v42", 0.0),
        ("forty-two", 0.0),
        ("", 0.0),
    ],
)
def test_scoring_a_number(answer: str, score: float) -> None:
    gold = {"kind": "number", "value": 42}
    assert task("oolong/counting").score(answer, gold) == pytest.approx(score)


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("spam", 1.0),
        ("SPAM.", 1.0),
        ('"spam"', 1.0),
        ("Label: spam", 1.0),
        ("The most common label is **spam**", 1.0),
        ('{"label": "spam"}', 1.0),
        ("ham", 0.0),
        ("spam or ham", 0.0),
        ("not spam", 0.0),
        ("spammy", 0.0),
        ("I compared ham and spam. Answer: spam", 1.0),
        ("", 0.0),
    ],
)
def test_scoring_a_label(answer: str, score: float) -> None:
    gold = {"kind": "choice", "value": "spam", "among": LABELS}
    assert task("oolong/counting").score(answer, gold) == score


def test_a_label_contained_in_another_is_not_matched() -> None:
    among = ["phone", "lost or stolen phone", "less common"]
    assert scoring.one_choice("It is lost_or_stolen-phone!", among) == "lost or stolen phone"
    assert scoring.one_choice("phone", among) == "phone"
    assert scoring.one_choice("Less  common", among) == "less common"


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("2023-03-07", 1.0),
        ("2023/3/7", 1.0),
        ("Mar 07, 2023", 1.0),
        ("March 7th, 2023", 1.0),
        ("on 7 March 2023.", 1.0),
        ("the 7th of march 2023", 1.0),
        ("2023-03-07, that is March 7, 2023", 1.0),
        ("2023-03-08", 0.0),
        ("2023-03-07 or 2023-03-08", 0.0),
        ("07/03/2023", 0.0),
        ("2023-13-07", 0.0),
        ("March 2023", 0.0),
        ("", 0.0),
    ],
)
def test_scoring_a_date(answer: str, score: float) -> None:
    assert task("oolong/timeline").score(answer, {"kind": "date", "value": "2023-03-07"}) == score


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("48213", 1.0),
        ("User 48213", 1.0),
        ("User 48213 has 5 of them", 1.0),
        ("48213 and 48214", 0.0),
        ("48214", 0.0),
        ("482130", 0.0),
    ],
)
def test_scoring_a_user(answer: str, score: float) -> None:
    assert task("oolong/user").score(answer, {"kind": "user", "value": 48213}) == score


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("(1, 2)\n(3, 4)", 1.0),
        ("(2, 1), (4, 3)", 1.0),
        ("[[1, 2], [3, 4]]", 1.0),
        ('[["1", "2"], ["4", "3"]]', 1.0),
        ('{"answer": [[1, 2], [3, 4]]}', 1.0),
        ("1, 2\n3, 4", 1.0),
        ("- 1 and 2\n- 3 and 4", 1.0),
        ("1. 1 and 2\n2. 3 and 4", 1.0),
        ("(1, 2)", 2 / 3),
        ("(1, 2)\n(3, 4)\n(1, 3)\n(1, 4)", 2 / 3),
        ("(1, 2), (1, 2), (2, 1), (3, 4)", 1.0),
        ("(1, 1)", 0.0),
        ("1 2 3 4", 0.0),  # four numbers are not pairs
        ("none", 0.0),
        ("", 0.0),
    ],
)
def test_scoring_pairs(answer: str, score: float) -> None:
    assert task("oolong-pairs").score(answer, [[1, 2], [3, 4]]) == pytest.approx(score)


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("Velmora", 1.0),
        ("the town of velmora", 1.0),
        ("Answer: Velmora.", 1.0),
        ("Velmora or Tarnwick", 0.0),
        ("Velmorast", 0.0),
        ("Tarnwick", 0.0),
        ("", 0.0),
    ],
)
def test_scoring_a_name(answer: str, score: float) -> None:
    gold = {"value": "Velmora", "among": ["Tarnwick", "Velmora"]}
    assert task("multihop/2-hops").score(answer, gold) == score


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("B", 1.0),
        ("b", 1.0),
        ("(B)", 1.0),
        ("B)", 1.0),
        ("B.", 1.0),
        ("**B**", 1.0),
        ("B) 19", 1.0),
        ("19", 1.0),
        ("The answer is B", 1.0),
        ("option B", 1.0),
        ('{"answer": "B"}', 1.0),
        ("A", 0.0),
        ("A) 19", 0.0),  # its letter and its text contradict each other
        ("A or (B)", 1.0),  # a bare A is an article to most readers
        ("(A) or (B)", 0.0),
        ("A function calls it", 0.0),
        ("A) 17\nB) 19\nC) 20\nD) 31", 0.0),
        ("E", 0.0),
        ("", 0.0),
    ],
)
def test_scoring_a_letter(answer: str, score: float) -> None:
    gold = {"value": "B", "options": ["17", "19", "20", "31"]}
    assert task("codeqa/calls").score(answer, gold) == score


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("amber-otter-1\nquiet-reef-22", 1.0),
        ("['quiet-reef-22', 'amber-otter-1']", 1.0),
        ("Amber-Otter-1, Quiet-Reef-22", 1.0),
        ("from bold-moth-3 … Final Answer: [amber-otter-1, quiet-reef-22]", 1.0),
        ("amber-otter-1", 2 / 3),
        ("amber-otter-12", 0.0),
        ("amber-otter", 0.0),
        ("", 0.0),
    ],
)
def test_scoring_nodes(answer: str, score: float) -> None:
    gold = ["amber-otter-1", "quiet-reef-22"]
    assert task("graphwalks/bfs").score(answer, gold) == pytest.approx(score)


@pytest.mark.parametrize("char", ["a", "1", " ", "(", "-", "\n", "`", "answer", "not "])
def test_endless_answers_are_scored_in_linear_time(char: str) -> None:
    """A backtracking pattern would take hours for these."""
    endless = char * 50_000
    for spec, gold in GOLDS.items():
        assert task(spec).score(endless, gold) < 1e-9


def test_f1_without_wanted_items() -> None:
    assert scoring.f1(set(), set()) == 1.0
    assert scoring.f1({1}, set()) == 0.0


# -- whatever a model writes -----------------------------------------------------------------------

GOLDS: dict[str, Any] = {
    "s-niah/multi-value": ["1111111", "2222222"],
    "oolong/counting": {"kind": "number", "value": 42},
    "oolong/user": {"kind": "user", "value": 48213},
    "oolong/timeline": {"kind": "date", "value": "2023-03-07"},
    "oolong-pairs": [[1, 2], [3, 4]],
    "multihop/2-hops": {"value": "Velmora", "among": ["Tarnwick", "Velmora"]},
    "codeqa/calls": {"value": "B", "options": ["17", "19", "20", "31"]},
    "graphwalks/bfs": ["amber-otter-1", "quiet-reef-22"],
}
PIECES = st.sampled_from(
    [*"([{\"'`*,.:;|\\\n ABCD", "answer:", "```", "1111111", "42", "2023-03-07", "(1, 2)", "B)"]
)
ANSWERS = st.text(max_size=30) | st.lists(PIECES, max_size=12).map("".join)


@given(ANSWERS, st.sampled_from(sorted(GOLDS)))
def test_any_answer_scores_from_0_to_1(answer: str, spec: str) -> None:
    assert 0.0 <= task(spec).score(answer, GOLDS[spec]) <= 1.0


WRAPPINGS = st.sampled_from(
    [
        "{}",
        "  {}\n",
        "Answer: {}",
        "Final answer: {}",
        "```\n{}\n```",
        "I looked at the whole context.\n\nThe answer is: {}",
    ]
)


@given(WRAPPINGS, st.sampled_from(sorted(GOLDS)))
def test_a_right_answer_scores_1_in_any_wording(wrapping: str, spec: str) -> None:
    one = task(spec)
    assert one.score(wrapping.format(one.reference(GOLDS[spec])), GOLDS[spec]) == 1.0


@given(WRAPPINGS, st.sampled_from(sorted(GOLDS)))
def test_a_wrong_answer_does_not_score_1_in_any_wording(wrapping: str, spec: str) -> None:
    wrong = {
        "s-niah/multi-value": "3333333",
        "oolong/counting": "1042",
        "oolong/user": "48214",
        "oolong/timeline": "2024-03-07",
        "oolong-pairs": "(1, 3)",
        "multihop/2-hops": "Tarnwick",
        "codeqa/calls": "C",
        "graphwalks/bfs": "amber-otter-2",
    }
    assert task(spec).score(wrapping.format(wrong[spec]), GOLDS[spec]) < 1e-9


@given(st.permutations(["1111111", "2222222", "3333333"]), st.sampled_from([", ", "\n", " and "]))
def test_the_order_of_numbers_does_not_count(numbers: list[str], joint: str) -> None:
    assert scoring.numbers_found(joint.join(numbers), sorted(numbers)) == 1.0


IDS = st.integers(10_000, 99_999)
PAIRS = st.sets(
    st.tuples(IDS, IDS).filter(lambda pair: pair[0] != pair[1]).map(frozenset), max_size=6
)


@given(PAIRS, st.sampled_from(["json", "lines", "tuples"]), st.randoms(use_true_random=False))
def test_pairs_are_read_in_any_order_and_form(
    pairs: set[frozenset[int]], form: str, random: Any
) -> None:
    shown = [random.sample(sorted(pair), 2) for pair in pairs]
    random.shuffle(shown)
    if form == "json":
        answer = json.dumps(shown)
    elif form == "lines":
        answer = "\n".join(f"{one}, {two}" for one, two in shown)
    else:
        answer = "; ".join(f"({one},{two})" for one, two in shown)
    assert scoring.all_pairs(answer) == pairs


@given(PAIRS, PAIRS)
def test_f1_is_symmetric_and_1_only_for_equal_sets(
    one: set[frozenset[int]], two: set[frozenset[int]]
) -> None:
    score = scoring.f1(one, two)
    assert score == scoring.f1(two, one)
    assert (score == 1.0) == (one == two)


@given(st.integers(-(10**9), 10**9), st.integers(-(10**6), 10**6))
def test_a_number_is_scored_by_its_distance(wanted: int, error: int) -> None:
    assert scoring.number(str(wanted + error), wanted) == pytest.approx(0.75 ** abs(error))


@given(st.text(max_size=200))
def test_the_scored_text_is_part_of_the_answer(text: str) -> None:
    found = scoring.final_text(text)
    as_text = re.sub(r"\s+", "", found)
    assert as_text in re.sub(r"\s+", "", text) or text.strip()[:1] in '{["'
